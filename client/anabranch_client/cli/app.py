"""The ``anabranch`` command line.

Exit codes: 0 done; 1 something failed; 2 an argument or input file that can't be used; 3 a replay
went through, but the service had refused a query or one had failed; 130 interrupted.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from anabranch_client.cli import access as cli_access
from anabranch_client.cli import planning as cli_planning
from anabranch_client.cli import state as cli_state
from anabranch_client.cli import up as cli_up
from anabranch_client.cli.context import TOKEN_FILE, Guarded, Json, Master, interruptible, stderr
from anabranch_client.cli.queries import queries
from anabranch_client.cli.streams import streams
from anabranch_client.errors import ClientError
from anabranch_client.processes.pipeline import Pipeline, running
from anabranch_client.render import tables as render

REFUSED = 3
#: The demo has five epochs, and queries come and go after each third.
_LEAST_BATCHES = 15
# Replays need pyarrow and numpy, which take a quarter of a second: the two commands that run one
# import their modules.

app = typer.Typer(
    cls=Guarded,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Continuous multi-way joins over shared streams, planned together, run on Spark.",
)
app.command("up")(cli_up.up)
app.command("down")(cli_up.down)
app.add_typer(streams, name="stream")
app.add_typer(queries, name="query")
app.add_typer(cli_planning.epochs, name="epochs")
app.add_typer(cli_planning.plans, name="plan")
app.add_typer(cli_planning.planning, name="settings")
app.add_typer(cli_state.state, name="state")
app.add_typer(cli_access.tokens, name="token")
app.command("audit")(cli_access.audit)


@app.callback()
def common(
    token_file: Annotated[
        Path | None,
        typer.Option(help="File that holds the service's token; default: ANABRANCH_TOKEN."),
    ] = None,
) -> None:
    """Continuous multi-way joins over shared streams, planned together, run on Spark."""
    TOKEN_FILE.set(token_file)


@app.command()
def replay(
    scenario: Annotated[Path, typer.Argument(help="The scenario (YAML).")],
    out: Annotated[Path, typer.Option("--out", help="Folder for results, report and logs.")],
    as_json: Json = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Keep the service up at the end.")
    ] = False,
    master: Master = None,
) -> None:
    """Run recorded streams through the real service and the real pipeline."""
    from anabranch_client.replay.progress import LiveView
    from anabranch_client.replay.replay import (
        prepare_folder,
        remove_working_data,
        run_to_report,
        step_spec,
    )
    from anabranch_client.replay.scenario import load_scenario

    played = load_scenario(scenario)
    folder = prepare_folder(out)
    spec = step_spec(played, folder, master)
    console = stderr()
    try:
        with interruptible(), running(spec) as pipeline:
            with LiveView(played, console) as view:
                report = run_to_report(played, pipeline, view)
            if as_json:
                render.print_json(report)
            else:
                render.print_table(render.report_tables(report))
            if dashboard:
                console.print(f"dashboard: {pipeline.url} (Ctrl-C ends it)")
                _hold(pipeline)
    finally:
        remove_working_data(folder)
    if any(query["status"] in ("rejected", "failed") for query in report["queries"].values()):
        raise typer.Exit(REFUSED)


@app.command()
def demo(
    scale: Annotated[float, typer.Option(min=0.001, help="TPC-H scale factor.")] = 0.01,
    batches: Annotated[int, typer.Option(min=_LEAST_BATCHES, help="Micro-batches.")] = 20,
    keep: Annotated[bool, typer.Option("--keep", help="Leave all running at the end.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to keep everything in.")] = None,
    as_json: Json = False,
    master: Master = None,
) -> None:
    """Plan, run and check five joins over TPC-H; the exit code says whether all are exact."""
    from anabranch_client.replay.demo import check, demo_scenario, demo_summary
    from anabranch_client.replay.progress import LiveView
    from anabranch_client.replay.replay import (
        prepare_folder,
        remove_working_data,
        run_to_report,
        step_spec,
    )
    from anabranch_client.replay.tpch import generate

    folder = prepare_folder(out or Path(tempfile.mkdtemp(prefix="anabranch-demo-")))
    console = stderr()
    try:
        with interruptible():
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
                    render.print_table(demo_summary(result, folder))
                if keep:
                    console.print(f"all is still running; see {pipeline.url}; Ctrl-C stops it")
                    _hold(pipeline)
    finally:
        remove_working_data(folder)
        if out is None:
            shutil.rmtree(folder / "tpch", ignore_errors=True)
    if not result.exact:
        wrong = [name for name, found in result.comparisons.items() if not found.match]
        raise ClientError(
            f"the results of {', '.join(wrong)} differ from the oracle's",
            remedy=f"see {folder}",
        )


def _watch_over(pipeline: Pipeline) -> None:
    """Return never: raise when a process ends or the user has had enough."""
    while True:
        pipeline.check()
        time.sleep(0.5)


def _hold(pipeline: Pipeline) -> None:
    """Keep everything running until the user has had enough."""
    try:
        _watch_over(pipeline)
    except KeyboardInterrupt:
        return
