"""Options, output and interruptions that all commands share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from anabranch_client.errors import UsageError
from anabranch_client.processes.signals import ending_signals
from anabranch_client.render.tables import print_json, print_table
from anabranch_client.rest.api import DEFAULT_URL, Client
from anabranch_client.rest.token import TOKEN_FILE, given_token
from anabranch_contract.rest.documents import Document

Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
Folder = Annotated[
    Path, typer.Option("--dir", help="Folder for state, results and logs; reused by later starts.")
]
#: Default folder of a pipeline.
HOME = Path(".anabranch")
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="ANABRANCH_MASTER",
        help="Spark's master, e.g. local[2] or spark://host:7077.",
        show_default=False,
    ),
]
ObjectStore = Annotated[
    str | None,
    typer.Option(
        "--object-store",
        metavar="URI",
        help="Location of the durable state, e.g. s3://bucket/prefix?region=eu-west-1.",
        show_default=False,
    ),
]
CacheDirectory = Annotated[
    str | None,
    typer.Option(
        "--cache-directory",
        metavar="PATH",
        help="With --object-store on a cluster: each host's folder for stored rows.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
Url = Annotated[str, typer.Option("--url", envvar="ANABRANCH_URL", help="Address of the service.")]


def connect(url: str = DEFAULT_URL) -> Client:
    """A client of the service at ``url``."""
    return Client(url.rstrip("/"), token=given_token(TOKEN_FILE.get()))


def show(
    found: Document | Sequence[Document] | dict[str, Any],
    shape: Callable[[Any], RenderableType],
    as_json: bool,
) -> None:
    """Write an answer to standard output, as JSON or as laid out by ``shape``."""
    if not as_json:
        print_table(shape(found))
    elif isinstance(found, Document):
        print_json(found.document())
    else:
        print_json(found if isinstance(found, dict) else [one.document() for one in found])


def stderr() -> Console:
    """The console on standard error, for progress and notes."""
    return Console(stderr=True)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Context that treats SIGTERM and SIGHUP as Ctrl-C: child processes are always ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with ending_signals(interrupt):
        yield


def confirm(*, yes: bool) -> None:
    """Ask for confirmation on the terminal, unless ``yes``.

    Raises:
        UsageError: standard input is not a terminal.
        typer.Exit: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to confirm on", field="--yes", remedy="say --yes")
    if not typer.confirm("Do it?"):
        typer.echo("nothing is changed", err=True)
        raise typer.Exit(1)
