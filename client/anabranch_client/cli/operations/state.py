"""``anabranch state``: list, verify and compact the stores of a pipeline.

The state directory is read by a command of the runtime, run as a process. With ``--live``, the data
come from the service, to which the runtime reports them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch_client.cli.context import Json, Url, connect, show
from anabranch_client.doctor.requirements import remedy_of
from anabranch_client.errors import ClientError, ProcessError, UsageError
from anabranch_client.render import state as render_state
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_contract.rest.documents import document

state = typer.Typer(no_args_is_help=True)

Where = Annotated[
    Path,
    typer.Option("--state", envvar="ANABRANCH_STORAGE", help="The pipeline's state directory."),
]
Live = Annotated[
    bool,
    typer.Option("--live", help="Read from a running pipeline's service, not a state directory."),
]
DEFAULT = Path(".anabranch/state")


@state.command("list")
@state.command("ls", hidden=True)
def state_list(
    where: Where = DEFAULT, live: Live = False, url: Url = DEFAULT_URL, as_json: Json = False
) -> None:
    """List the stores: relation, size, segments and queries."""
    if live:
        with connect(url) as client:
            show(document(client.state()), render_state.live_table, as_json)
    else:
        show(ask(where, "ls"), render_state.stores_table, as_json)


@state.command("show")
def state_show(
    store: Annotated[str, typer.Argument(help="A store's name, as listed.")],
    where: Where = DEFAULT,
    live: Live = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show one store with its segments."""
    if live:
        with connect(url) as client:
            show(document(client.stored(store)), render_state.live_detail, as_json)
    else:
        show(ask(where, "show", store), render_state.store_detail, as_json)


@state.command("verify")
def state_verify(where: Where = DEFAULT, as_json: Json = False) -> None:
    """Verify all of the state against its checksums; exit code 1 if there are problems."""
    found = ask(where, "verify")
    show(found, render_state.verdict, as_json)
    if found["problems"]:
        raise typer.Exit(1)


@state.command("compact")
def state_compact(where: Where = DEFAULT, as_json: Json = False) -> None:
    """Merge each store's segments into one; the pipeline must be stopped."""
    show(ask(where, "compact"), render_state.compacted, as_json)


def ask(where: Path, *command: str) -> dict[str, Any]:
    """Run the runtime's command ``command`` on the state directory ``where``; return its JSON
    answer.

    Raises:
        UsageError: the directory or the store can't be used.
        ClientError: the state is damaged or in use.
        ProcessError: the runtime is not installed, or died.
    """
    argv = [sys.executable, "-m", "anabranch_runtime.inspection", "--state", str(where), *command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError as cause:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        absent = said[-1].startswith("ModuleNotFoundError")
        raise ProcessError(
            f"the state can't be inspected: {said[-1]}",
            remedy=remedy_of("runtime") if absent else "run this where the runtime is installed",
        ) from cause
    if "error" in found:
        error = found["error"]
        kind = UsageError if error["field"] else ClientError
        raise kind(error["message"], field=error["field"], remedy=error["remedy"])
    return found
