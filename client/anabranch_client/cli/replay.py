"""``anabranch replay`` and ``anabranch demo``: recorded streams through a separate pipeline."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from anabranch_client.cli.context import (
    CacheDirectory,
    Json,
    Master,
    ObjectStore,
    interruptible,
    show,
    stderr,
)
from anabranch_client.doctor.requirements import WHOLE, require
from anabranch_client.errors import ClientError, RefusedError, UsageError
from anabranch_client.processes.pipeline import Pipeline, running
from anabranch_client.render import tables as render

#: Minimum number of batches of the demo, which has five epochs and changes its queries after one
#: third and two thirds of the batches.
_LEAST_BATCHES = 15
Force = Annotated[
    bool, typer.Option("--force", help="Replace the output of an earlier replay in --out.")
]
# Commands import their modules on use: importing pyarrow and numpy takes a quarter of a second.


def replay(
    scenario: Annotated[Path, typer.Argument(help="The scenario (YAML).")],
    out: Annotated[
        Path | None, typer.Option("--out", help="A new folder for results, report and logs.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the scenario, its files and SQL; run nothing.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Keep the service and its pages up at the end.")
    ] = False,
    master: Master = None,
    object_store: ObjectStore = None,
    cache_directory: CacheDirectory = None,
) -> None:
    """Run recorded streams through the real service and the real pipeline.

    The scenario is checked before Spark starts. Exit code 1: a query was refused or failed.
    """
    require(WHOLE, "anabranch replay")
    from anabranch_client.replay.folder import output_folder, refuse_used
    from anabranch_client.replay.outline import notes, outline, outline_table
    from anabranch_client.replay.progress import LiveView
    from anabranch_client.replay.rehearsal import rehearse
    from anabranch_client.replay.replay import run_to_report, step_spec
    from anabranch_client.replay.scenario import load_scenario

    played = load_scenario(scenario)
    if out is not None:
        refuse_used(out, force=force)
    elif not check:
        raise UsageError("is missing", field="--out", remedy="name a new folder, or give --check")
    console = stderr()
    with interruptible(), console.status("checking the scenario"):
        rehearse(played)
    if check:
        show(outline(played), outline_table, as_json)
    if check or out is None:
        return
    for note in notes(played):
        typer.echo(f"note: {note}", err=True)
    with (
        interruptible(),
        output_folder(out, force=force) as folder,
        running(step_spec(played, folder, master, object_store, cache_directory)) as pipeline,
    ):
        with LiveView(played, console) as view:
            report = run_to_report(played, pipeline, view)
        if as_json:
            render.print_json(report)
        else:
            render.print_table(render.report_tables(report))
        if dashboard:
            console.print(f"dashboard: {pipeline.url} (Ctrl-C ends it)")
            _hold(pipeline)
    bad = [name for name, q in report["queries"].items() if q["status"] in ("rejected", "failed")]
    if bad:
        raise RefusedError(
            f"refused or failed: {', '.join(bad)}",
            field="queries",
            remedy=f"{folder / 'report.json'} says why",
        )


def demo(
    scale: Annotated[float, typer.Option(min=0.001, help="TPC-H scale factor.")] = 0.01,
    batches: Annotated[int, typer.Option(min=_LEAST_BATCHES, help="Micro-batches.")] = 20,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the pipeline up at the end.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="A new folder for all files.")] = None,
    force: Force = False,
    as_json: Json = False,
    master: Master = None,
) -> None:
    """Plan, run and check five joins over TPC-H; exit code 0 if all are exact."""
    require(WHOLE, "anabranch demo")
    from anabranch_client.replay.demo import SHOWN, check, demo_scenario, demo_summary
    from anabranch_client.replay.folder import output_folder
    from anabranch_client.replay.progress import LiveView
    from anabranch_client.replay.replay import run_to_report, step_spec
    from anabranch_client.replay.tpch import generate

    console = stderr()
    home = out or Path(tempfile.mkdtemp(prefix="anabranch-demo-"))
    with interruptible(), output_folder(home, force=force) as folder:
        try:
            with console.status("generating TPC-H"):
                streams = generate(folder / "tpch", scale, batches)
            played = demo_scenario(streams, batches)
            with running(step_spec(played, folder, master)) as pipeline:
                with LiveView(played, console) as view:
                    report = run_to_report(played, pipeline, view, leave=not keep)
                with console.status("running the oracle"):
                    result = check(played, report, pipeline)
                if as_json:
                    render.print_json(result.document())
                else:
                    most = SHOWN if render.read_by_a_person() else None
                    render.print_table(demo_summary(result, folder, most))
                if keep:
                    console.print(f"all is still running; see {pipeline.url}; Ctrl-C stops it")
                    _hold(pipeline)
        finally:
            if out is None:
                shutil.rmtree(folder / "tpch", ignore_errors=True)
    if not result.exact:
        wrong = [name for name, found in result.comparisons.items() if not found.match]
        raise ClientError(
            f"the results of {', '.join(wrong)} differ from the oracle's", remedy=f"see {folder}"
        )


def _watch_over(pipeline: Pipeline) -> None:
    """Wait without end; raise an error when a process ends or the user interrupts."""
    while True:
        pipeline.check()
        time.sleep(0.5)


def _hold(pipeline: Pipeline) -> None:
    """Keep the pipeline running until the user interrupts it."""
    try:
        _watch_over(pipeline)
    except KeyboardInterrupt:
        return
