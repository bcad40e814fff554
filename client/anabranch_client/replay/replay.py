"""``anabranch replay``: plays a scenario, and produces exact results and a report."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.environment import given_redis_url
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec
from anabranch_client.replay.player import ScenarioObserver, play
from anabranch_client.replay.report import finish_results, make_report
from anabranch_client.replay.scenario import Scenario


def step_spec(
    scenario: Scenario,
    out: Path,
    master: str | None,
    object_store: str | None = None,
    cache_directory: str | None = None,
) -> PipelineSpec:
    """Start parameters of the pipeline of a replay into ``out``."""
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
        object_store=object_store,
        cache_directory=cache_directory,
        # The user wrote the scenario, so its files may be anywhere.
        access=Permissions(tuple(Path(s.path).resolve() for s in scenario.streams)),
    )


def run_to_report(
    scenario: Scenario, pipeline: Pipeline, observer: ScenarioObserver, *, leave: bool = True
) -> dict[str, Any]:
    """Play the scenario, end the runtime (if ``leave``), complete the results, and make the report.

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
