"""``anabranch stream``: register, show, change, fill and delete streams."""

from __future__ import annotations

import re
import sys
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch_client.cli.context import Json, Url, Yes, confirm, connect, show
from anabranch_client.cli.operations.completion import names_of, stream_names
from anabranch_client.cli.options import field_options, given, option_of, with_options
from anabranch_client.errors import UsageError
from anabranch_client.render.source_tests import source_test
from anabranch_client.render.statistics import sample_detail
from anabranch_client.render.streams import stream_detail, streams_table
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.rest.push import rows_of
from anabranch_contract.protocol.registered import StreamProperties
from anabranch_contract.rest.streams import ChangesIn, RetentionIn, StreamIn, StreamPatch

if TYPE_CHECKING:
    from anabranch_contract.rest.source_tests import SourceTestOut
    from anabranch_contract.rest.streams import StreamOut

#: Seconds between two polls during the reread of a table; number of consecutive polls with a failed
#: source after which waiting ends.
REREAD_POLL, REREAD_FAILURES = 0.5, 10

streams = typer.Typer(no_args_is_help=True)
sources = typer.Typer(no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="Name of the stream.", autocompletion=names_of(stream_names))
]
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
#: Fields for bad and changed files, which only file sources have.
POLICIES = ("on_bad_file", "on_changed_file")


Columns = Annotated[
    list[str] | None, typer.Option("--column", help="name:type, in order (repeatable).")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="redis-stream, kafka, postgres, delta, iceberg, files, or a streaming format of "
        "Spark.",
    ),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="name=value, for the source (repeatable); schema=@FILE: the content of a file.",
    ),
]
SourcePath = Annotated[
    Path | None,
    typer.Option(
        "--path", help="Folder of files or of a Delta table, or a Parquet file to replay."
    ),
]
RowsPerBatch = Annotated[int, typer.Option(min=1, help="Batch size for --path.")]
#: Control characters, which a text file does not contain.
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")
#: Options that name a source from which a registration is proposed.
ORIGINS = [
    option_of(f"from_{what}", str, typer.Option(metavar=what.upper(), help=text))
    for what, text in (
        ("topic", "Infer the registration from a Kafka topic (--option brokers=...)."),
        ("table", "Infer the registration from a PostgreSQL table (--option url=...)."),
        ("folder", "Infer the registration from a folder of files."),
    )
]


@streams.command("add")
@with_options(
    [
        *ORIGINS,
        *field_options(StreamIn, ADDED, FLAGS),
        *field_options(RetentionIn, RetentionIn.model_fields),
        *field_options(ChangesIn, ChangesIn.model_fields),
        *field_options(StreamPatch, POLICIES),
    ]
)
def stream_add(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of the stream; default: that of the topic, table or folder."),
    ] = None,
    column: Columns = None,
    path: SourcePath = None,
    rows_per_batch: RowsPerBatch = 10_000,
    format: Format = None,
    option: SourceOptions = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            help="name=value, for Kafka topics that continue files or a table from their option "
            "start (repeatable)."
        ),
    ] = None,
    test: Annotated[
        bool,
        typer.Option(
            "--test", help="Read sample rows and check them against the columns; register nothing."
        ),
    ] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    **properties: Any,
) -> None:
    """Register a stream; columns come from --column, the file in --path, or a postgres table.

    With --from-topic, --from-table or --from-folder, omitted options are inferred from the rows
    of the source; the proposal is shown and needs confirmation. Exit code 1 also if the stream is
    registered but its source can't be read; with --test, if the source can't be read or rows do not
    fit.
    """
    origin = _origin(properties)
    source, columns = _source(origin, column, path, rows_per_batch, format, option, properties)
    if then:
        source = {**(source or {}), "then": {"format": "kafka", "options": _source_options(then)}}
    name = _name(name, origin)
    if not columns and not origin and format != "postgres":
        raise UsageError("no columns", field="--column", remedy="give --column or --path")
    options = _options_of(source, properties)
    with connect(url) as client:
        if test or origin:
            found = client.test_stream(name, columns, propose=bool(origin), **options)
            if test or not as_json or found.registration is None:
                _show_test(found, as_json=as_json, strict=test)
            if test:
                return
            if found.registration is None:
                raise UsageError("no columns", field="--column", remedy="give --column")
            confirm(yes=yes or as_json)
            stream = client.create_stream(**_arguments(found.registration))
        else:
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


@sources.command("try")
@with_options(
    [
        *ORIGINS,
        *field_options(StreamIn, ("event_time", "lateness", "kind", "key")),
        *field_options(ChangesIn, ("operation",)),
    ]
)
def source_try(
    name: Annotated[
        str | None, typer.Argument(help="Name of the proposed stream; default: from the source.")
    ] = None,
    column: Columns = None,
    path: SourcePath = None,
    rows_per_batch: RowsPerBatch = 10_000,
    format: Format = None,
    option: SourceOptions = None,
    rows: Annotated[int, typer.Option(min=1, max=200, help="Rows to show.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    **properties: Any,
) -> None:
    """Read rows of a source, and propose the registration of a stream; registers nothing.

    Given options are kept. Exit code 1 if the source can't be read or rows do not fit.
    """
    origin = _origin(properties)
    if origin is None:
        if path is None and format is None:
            raise UsageError(
                "no source", field="--path", remedy="give --path, --format, --from-..."
            )
        origin = SourceOrigin(format or "files", str(path or format), path, {})
    source, columns = _source(origin, column, path, rows_per_batch, format, option, properties)
    options = _options_of(source, properties)
    with connect(url) as client:
        found = client.test_stream(_name(name, origin), columns, rows=rows, propose=True, **options)
    _show_test(found, as_json=as_json, strict=True)


def _show_test(found: SourceTestOut, *, as_json: bool, strict: bool) -> None:
    """Write the result of a source test.

    Raises:
        typer.Exit: the source can't be read, or (``strict``) rows do not fit.
    """
    show(found, source_test, as_json)
    if found.outcome == "failed" or (strict and found.invalid):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """A source for which a registration is proposed: its format, place, path and options."""

    format: str
    place: str
    path: Path | None
    options: dict[str, str]


def _origin(properties: dict[str, Any]) -> SourceOrigin | None:
    """The source that one of :data:`ORIGINS` names; these are removed from ``properties``."""
    named = given(**{one.name: properties.pop(one.name) for one in ORIGINS})
    if len(named) > 1:
        raise UsageError(
            "several sources", field=" ".join(map(_flag, named)), remedy="give one of these options"
        )
    for option, place in named.items():
        if option == "from_topic":
            return SourceOrigin("kafka", place, None, {"topics": place})
        if option == "from_table":
            return SourceOrigin("postgres", place, None, {"table": place})
        return SourceOrigin("files", place, Path(place), {})
    return None


def _name(name: str | None, origin: SourceOrigin | None) -> str:
    """The given name of a stream, or else a name made from its source."""
    if name is not None:
        return name
    last = "" if origin is None else re.split(r"[/.]", origin.place.rstrip("/"))[-1]
    made = re.sub(r"\W+", "_", last, flags=re.ASCII).strip("_")
    if not made:
        raise UsageError("no name", field="NAME", remedy="give the stream's name")
    return f"s_{made}"[:128] if made[0].isdigit() else made[:128]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _source(
    origin: SourceOrigin | None,
    column: list[str] | None,
    path: Path | None,
    rows_per_batch: int,
    format: str | None,
    option: list[str] | None,
    properties: dict[str, Any],
) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
    """The source that options name, and its columns (of Parquet files, from their schema); options
    of the source are removed from ``properties``."""
    columns = [_column(text) for text in column or ()]
    options = _source_options(option or [])
    if origin is not None and format is None and path is None:
        format, path, options = origin.format, origin.path, {**origin.options, **options}
    where = None if path is None else str(path.resolve())
    folder = format is None and path is not None and path.is_dir()
    chosen = given(**{name: properties.pop(name, None) for name in POLICIES})
    if chosen and format not in ("files", "csv", "json") and not folder:
        raise UsageError(
            "only a source of files has such a policy",
            field=_flag(next(iter(chosen))),
            remedy="give --format files, or the --path of a folder",
        )
    if option and format is None:
        raise UsageError("--option needs a format", field="--option", remedy="give --format")
    if folder and not columns and origin is None:
        columns = _columns_of(path) if path is not None else []
    if format is not None or folder:
        return {
            "format": format or "files",
            "path": where,
            "options": {**options, **chosen},
        }, columns
    if path is None:
        return None, columns
    if not columns and origin is None:
        columns = _columns_of(path)
    return {"format": "recorded", "path": where, "rows_per_batch": rows_per_batch}, columns


def _columns_of(path: Path) -> list[tuple[str, str]]:
    # Imported here, because it imports pyarrow, which other commands do not need.
    from anabranch_client.replay.scenario import parquet_columns

    examples = sorted(path.glob("*.parquet"))[:1] if path.is_dir() else [path]
    return [pair for file in examples for pair in parquet_columns(file, "--path")[0]]


def _options_of(source: dict[str, Any] | None, properties: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the client's methods for a source and properties of a stream."""
    changes = given(**{name: properties.pop(name, None) for name in ChangesIn.model_fields})
    return {"source": source, **given(**properties, changes=changes or None)}


def _arguments(registration: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the client's methods for a proposed registration."""
    columns = [(one["name"], one["type"]) for one in registration["columns"]]
    rest = {name: value for name, value in registration.items() if name != "retention"}
    return {**rest, "columns": columns, **registration.get("retention", {})}


def _source_options(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UsageError(
                f"{text!r} is not an option", field="--option", remedy="write name=value"
            )
    options = dict(text.split("=", 1) for text in texts)
    if options.get("schema", "").startswith("@"):
        options["schema"] = _schema_of(Path(options["schema"][1:]))
    return options


def _schema_of(path: Path) -> str:
    """The content of a schema file as text; a binary file (Protobuf's descriptor set) in base64."""
    try:
        content = path.read_bytes()
    except OSError as cause:
        raise UsageError(
            f"{path}: {cause.strerror}", field="--option schema", remedy="name a schema's file"
        ) from None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return b64encode(content).decode()
    return b64encode(content).decode() if _CONTROL.search(text) else text


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


@streams.command("add-column")
def stream_add_column(
    name: Name,
    column: Annotated[str, typer.Argument(help="Name of the column.")],
    type: Annotated[str, typer.Argument(help="Column type, such as bigint or 'decimal(10,2)'.")],
    default: Annotated[
        str | None, typer.Option(help="Value of the column in rows read earlier; default: NULL.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Add a column to a stream in use. Registered queries go on with the columns that they have."""
    with connect(url) as client:
        found = client.add_column(name, name=column, type=type, default=default)
        show(found, stream_detail, as_json)


@streams.command("widen-column")
def stream_widen_column(
    name: Name,
    column: Annotated[str, typer.Argument(help="Name of the column.")],
    type: Annotated[str, typer.Argument(help="Wider column type, such as bigint for an int.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Widen the type of a column of a stream in use. Stored rows and registered queries stay."""
    with connect(url) as client:
        show(client.widen_column(name, column, type), stream_detail, as_json)


@streams.command("drop-column")
def stream_drop_column(
    name: Name,
    column: Annotated[str, typer.Argument(help="Name of the column.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Drop a column that no query reads. Stored rows and registered queries stay."""
    with connect(url) as client:
        show(client.drop_column(name, column), stream_detail, as_json)


@streams.command("reread")
def stream_reread(
    name: Name,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until queries look up the new rows.")
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
def stream_rm(name: Name, yes: Yes = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Delete a stream that no query reads, after asking for confirmation."""
    with connect(url) as client:
        if not (yes or as_json):
            found = client.stream(name)
            tuples = f"{found.input_tuples or 0:,} tuples"
            typer.echo(f"{name} is {found.source_status.state}, with {tuples}")
            typer.echo(f"delete {name}")
            confirm(yes=False)
        client.delete_stream(name)
    show({"deleted": name}, lambda _: f"stream {name} is gone", as_json)


def _is_reread(stream: StreamOut) -> bool:
    """Whether the newest version of a table (from the last reread) is complete and looked up by
    queries; True for streams that are not tables."""
    return stream.table is None or stream.table.looked_up == stream.table.version


def _column(text: str) -> tuple[str, str]:
    # A name may contain a colon, too, and so may the type of a struct.
    name, colon, kind = text.partition("<")[0].rpartition(":")
    if not (colon and name and kind):
        raise UsageError(f"{text!r} is not a column", field="--column", remedy="write name:type")
    return name, text[len(name) + 1 :]
