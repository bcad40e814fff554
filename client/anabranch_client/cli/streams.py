"""``anabranch stream``: register, show, change, fill and delete streams."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch_client.cli.context import Json, Url, connect, show
from anabranch_client.cli.options import field_options, given, with_options
from anabranch_client.errors import UsageError
from anabranch_client.render.source_tests import source_test
from anabranch_client.render.statistics import sample_detail
from anabranch_client.render.streams import stream_detail, streams_table
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.rest.push import rows_of
from anabranch_contract.protocol.registered import StreamProperties
from anabranch_contract.rest.streams import ChangesIn, RetentionIn, StreamIn, StreamOut, StreamPatch

#: Seconds between two polls during a reread of a table; number of consecutive polls with a failed
#: source that end the wait.
REREAD_POLL, REREAD_FAILURES = 0.5, 10

streams = typer.Typer(no_args_is_help=True, help="Register, show, change and delete streams.")

Name = Annotated[str, typer.Argument(help="Name of the stream.")]
#: Field -> its option, if the option's name differs from the field's.
FLAGS = {"keep_late": "--keep-late/--drop-late"}
#: Fields of a stream's registration, and of a change, that become command-line options.
ADDED = (
    *("event_time", "lateness", "idle_timeout", *StreamProperties.model_fields),
    *("ahead_of_clock", "ahead_of_stream", "retain", "kind", "key"),
)
CHANGED = (
    *("idle_timeout", *StreamProperties.model_fields, "ahead_of_clock", "ahead_of_stream"),
    *("retain", "on_loss", "on_bad_file", "on_changed_file"),
)
#: Fields for policies on bad and changed files, which only sources of files have.
POLICIES = ("on_bad_file", "on_changed_file")


@streams.command("add")
@with_options(
    [
        *field_options(StreamIn, ADDED, FLAGS),
        *field_options(RetentionIn, RetentionIn.model_fields),
        *field_options(ChangesIn, ChangesIn.model_fields),
        *field_options(StreamPatch, POLICIES),
    ]
)
def stream_add(
    name: Name,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="name:type, in order (repeatable).")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option("--path", help="Parquet file to replay, or folder that receives such files."),
    ] = None,
    rows_per_batch: Annotated[int, typer.Option(min=1, help="Batch size for --path.")] = 10_000,
    format: Annotated[
        str | None,
        typer.Option(
            help="redis-stream, kafka, postgres, files, or a streaming format of Spark's."
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="name=value, for the source (repeatable).")
    ] = None,
    test: Annotated[
        bool,
        typer.Option(
            "--test", help="Read sample rows and check them against the columns; register nothing."
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    **properties: Any,
) -> None:
    """Register a stream; columns come from --column, the file in --path, or a postgres table.

    Exit code 1 also if the stream is registered but its source can't be read; with --test, if the
    source can't be read or rows do not fit.
    """
    source: dict[str, Any] | None = None
    columns = [_column(text) for text in column or ()]
    where = None if path is None else str(path.resolve())
    folder = format is None and path is not None and path.is_dir()
    chosen = given(**{name: properties.pop(name) for name in POLICIES})
    if chosen and format not in ("files", "csv", "json") and not folder:
        name = next(iter(chosen))
        raise UsageError(
            "only a source of files has such a policy",
            field=f"--{name.replace('_', '-')}",
            remedy="give --format files, or the --path of a folder",
        )
    if option and format is None:
        raise UsageError("--option needs a format", field="--option", remedy="give --format")
    if format is not None or folder:
        source = {"format": format or "files", "path": where}
        source["options"] = {**_options(option or []), **chosen}
    elif path is not None:
        source = {"format": "recorded", "path": where, "rows_per_batch": rows_per_batch}
    if format is None and path is not None and not columns:
        # Imported here: it imports pyarrow, which other commands do not need.
        from anabranch_client.replay.scenario import parquet_columns

        examples = sorted(path.glob("*.parquet"))[:1] if folder else [path]
        columns = [pair for file in examples for pair in parquet_columns(file, "--path")[0]]
    if not columns and format != "postgres":
        raise UsageError("no columns", field="--column", remedy="give --column or --path")
    changes = given(**{name: properties.pop(name) for name in ChangesIn.model_fields})
    options = {"source": source, **given(**properties, changes=changes or None)}
    if test:
        with connect(url) as client:
            found = client.test_stream(name, columns, **options)
        show(found, source_test, as_json)
        if found.outcome == "failed" or found.invalid:
            raise typer.Exit(1)
        return
    with connect(url) as client:
        stream = client.create_stream(name, columns, **options)
    show(stream, stream_detail, as_json)
    status = stream.source_status
    if status.state == "failed":
        typer.echo(
            f"{name} is registered, but its source can't be read: {status.error}. It is tried"
            " again; correct what the message names, or forget the stream with: anabranch stream"
            f" rm {name}",
            err=True,
        )
        raise typer.Exit(1)


def _options(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UsageError(
                f"{text!r} is not an option", field="--option", remedy="write name=value"
            )
    return dict(text.split("=", 1) for text in texts)


@streams.command("list")
def stream_list(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List all streams."""
    with connect(url) as client:
        show(client.streams(), streams_table, as_json)


@streams.command("show")
def stream_show(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show a stream and its columns."""
    with connect(url) as client:
        show(client.stream(name), stream_detail, as_json)


@streams.command("set")
@with_options(
    [
        *field_options(StreamPatch, CHANGED, FLAGS),
        *field_options(RetentionIn, RetentionIn.model_fields),
        *field_options(ChangesIn, ChangesIn.model_fields),
    ]
)
def stream_set(
    name: Name,
    accept_rejects: Annotated[
        bool,
        typer.Option(
            "--accept-rejects", help="Acknowledge rejected tuples: health warns of new ones only."
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    **properties: Any,
) -> None:
    """Change a stream's timeouts, bounds, handling of rejected tuples, and retention.

    --idle-timeout none, --ttl none and --latest none remove them.
    """
    words = ("none", ["none"])
    changes = given(**properties)
    limits = {name: changes.pop(name) for name in RetentionIn.model_fields if name in changes}
    if limits:
        changes["retention"] = {n: None if v in words else v for n, v in limits.items()}
    if changes.get("idle_timeout") == "none":
        changes["idle_timeout"] = None
    if not changes and not accept_rejects:
        raise UsageError("nothing to change", field="stream set", remedy="give an option")
    with connect(url) as client:
        if accept_rejects:
            known = client.stream(name)
            counts = (known.late_tuples, known.invalid_tuples, known.ahead_tuples)
            changes["accepted_rejects"] = sum(count or 0 for count in counts)
        show(client.update_stream(name, **changes), stream_detail, as_json)


@streams.command("reread")
def stream_reread(
    name: Name,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when queries look up the new rows.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Read a table again; queries look up the previous rows until all new ones are read.

    With --wait: exit code 1 if the source can't be read.
    """
    with connect(url) as client:
        stream, failures = client.reread_stream(name), 0
        while wait and failures < REREAD_FAILURES and not _is_reread(stream):
            time.sleep(REREAD_POLL)
            stream = client.stream(name)
            failures = failures + 1 if stream.source_status.state != "reading" else 0
    show(stream, stream_detail, as_json)
    if failures >= REREAD_FAILURES:
        status = stream.source_status
        why = f": {status.error}" if status.error else ""
        typer.echo(
            f"the source of {name} is {status.state}{why}. Queries look up the previous rows until"
            " it has been read completely, which is tried again",
            err=True,
        )
        raise typer.Exit(1)


@streams.command("sample")
def stream_sample(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show statistics of a stream's columns, from a uniform sample."""
    with connect(url) as client:
        show(client.stream_sample(name), sample_detail, as_json)


@streams.command("push")
def stream_push(
    name: Name,
    file: Annotated[
        str, typer.Argument(help="A Parquet or JSON lines file; -: JSON lines from standard input.")
    ] = "-",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Send rows to a stream of format redis-stream, 5,000 at a time."""
    sent = 0
    with connect(url) as client:
        for rows in rows_of(file, sys.stdin):
            sent += client.push(name, rows)
    show({"rows": sent}, lambda _: f"{sent:,} rows sent to {name}", as_json)


@streams.command("rm")
def stream_rm(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Delete a stream that no query reads."""
    with connect(url) as client:
        client.delete_stream(name)
    show({"deleted": name}, lambda _: f"stream {name} is gone", as_json)


def _is_reread(stream: StreamOut) -> bool:
    """Whether a table's newest version (from the last reread) is complete and looked up by queries;
    True for other streams.
    """
    return stream.table is None or stream.table.looked_up == stream.table.version


def _column(text: str) -> tuple[str, str]:
    # A colon may also be in a name, or in a struct's type.
    name, colon, kind = text.partition("<")[0].rpartition(":")
    if not (colon and name and kind):
        raise UsageError(f"{text!r} is not a column", field="--column", remedy="write name:type")
    return name, text[len(name) + 1 :]
