"""``anabranch replay``: a scenario in, exact results and a report out."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

from anabranch_client.errors import UsageError
from anabranch_client.processes.allowed import Access
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec, given_redis_url
from anabranch_client.replay.player import Observer, play
from anabranch_client.replay.report import finish_results, make_report
from anabranch_client.replay.scenario import Scenario
from anabranch_client.supervise.home import refuse_held

#: Folders of a replay, replaced when it is run again.
_OWN = ("results", "logs", "redis", "state")


def prepare_folder(out: Path) -> Path:
    """``out``, made if needed, without what an earlier replay has left there.

    Raises:
        UsageError: it can't be written.
        HeldError: `anabranch up` runs in it.
    """
    refuse_held(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in _OWN:
            if (out / name).is_dir():
                shutil.rmtree(out / name)
        (out / "report.json").unlink(missing_ok=True)
        (out / "results").mkdir()
    except OSError as cause:
        raise UsageError(
            f"cannot write {cause.filename or out}: {cause.strerror or cause}",
            field="--out",
            remedy="name a folder that can be written",
        ) from cause
    return out.resolve()


def step_spec(scenario: Scenario, out: Path, master: str | None) -> PipelineSpec:
    """How the pipeline of a replay into ``out`` is started."""
    return PipelineSpec(
        home=out,
        results=out / "results",
        mode="step",
        namespace=f"anabranch-{uuid.uuid4().hex[:12]}",
        optimizer=scenario.optimizer[0],
        parallelism=scenario.parallelism,
        epoch_batches=scenario.every,
        revise_batches=scenario.revise,
        redis_url=given_redis_url(),
        master=master,
        # The scenario is the user's own: its files may be anywhere.
        access=Access(tuple(Path(s.path).resolve() for s in scenario.streams)),
    )


def remove_working_data(out: Path) -> None:
    """Remove what only the processes needed; results, logs and the report stay."""
    for name in ("state", "redis"):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "service.port").unlink(missing_ok=True)


def run_to_report(
    scenario: Scenario, pipeline: Pipeline, observer: Observer, *, leave: bool = True
) -> dict[str, Any]:
    """Play, let the runtime leave (if ``leave``), complete the results, report.

    The report is returned, and written to ``report.json`` in the pipeline's folder.
    """
    played = play(scenario, pipeline, observer)
    if leave:
        pipeline.finish_runtime()
    results = finish_results(played, pipeline.spec.results)
    report = make_report(scenario, played, results)
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    (pipeline.spec.home / "report.json").write_text(text, encoding="utf-8")
    return report
