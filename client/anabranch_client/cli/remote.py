"""Commands that talk to a running service: ``stream``, ``query``, ``epochs``, ``plan``."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import typer

from anabranch_client.cli.context import Json, Url, connect
from anabranch_client.cli.results import sink_document
from anabranch_client.errors import UsageError
from anabranch_client.render import tables as render
from anabranch_client.render.dry_run import assumptions, dry_run_detail, named_number, retentions
from anabranch_client.render.explain import explain_detail
from anabranch_client.render.statistics import sample_detail, statistics_detail
from anabranch_client.replay.scenario import parquet_columns
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.rest.calls import query_body
from anabranch_client.rest.push import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

N = TypeVar("N", int, float)

streams = typer.Typer(no_args_is_help=True, help="Register, show and forget streams.")
queries = typer.Typer(no_args_is_help=True, help="Register, show, change and end queries.")
epochs = typer.Typer(no_args_is_help=True, help="Show what was planned.")
planning = typer.Typer(no_args_is_help=True, help="Show and change how epochs are planned.")
plans = typer.Typer(no_args_is_help=True, help="Ask for plans without running them.")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

Sql = Annotated[str | None, typer.Argument(help="The statement; - reads standard input.")]
File = Annotated[Path | None, typer.Option("--file", help="Read the statement from a file.")]
Structured = Annotated[
    Path | None, typer.Option("--structured", help="A structured query (JSON) instead of SQL.")
]
Windows = Annotated[
    list[str] | None,
    typer.Option("--window", help="A duration for all aliases, or alias=duration (repeat)."),
]
Dialect = Annotated[
    str | None, typer.Option(help="The statement's, by sqlglot's name; default: spark.")
]
Name = Annotated[str, typer.Argument(help="Its name.")]


def _show(as_json: bool, document: Any, table: Any) -> None:
    if as_json:
        render.print_json(document)
    else:
        render.print_table(table)


#: The exit code where a stream was registered and its source can't be read.
NOT_READ = 3
AheadOfClock = Annotated[
    str | None,
    typer.Option(help="How far event times may be after the clock: a duration, or 'unbounded'."),
]
AheadOfStream = Annotated[
    str | None,
    typer.Option(help="How far they may be after all earlier ones: a duration, or 'unbounded'."),
]


@streams.command("add")
def stream_add(
    name: Name,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="name:type, in order (repeat).")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option("--path", help="Parquet file to replay, or folder to watch for such files."),
    ] = None,
    rows_per_batch: Annotated[int, typer.Option(min=1, help="For a file in --path.")] = 10_000,
    format: Annotated[
        str | None,
        typer.Option(help="redis-stream, files, or a streaming format of Spark's."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="name=value, for --format (repeat).")
    ] = None,
    event_time: Annotated[str | None, typer.Option(help="The event-time column.")] = None,
    lateness: Annotated[str | None, typer.Option(help="A duration, or 'unbounded'.")] = None,
    idle_timeout: Annotated[
        str | None, typer.Option(help="Silence after which its watermark moves with the others'.")
    ] = None,
    keep_late: Annotated[
        bool, typer.Option("--keep-late", help="Keep late, invalid and ahead tuples, in files.")
    ] = False,
    ahead_of_clock: AheadOfClock = None,
    ahead_of_stream: AheadOfStream = None,
    ttl: Annotated[
        str | None, typer.Option(help="A window on every alias over it, in every query.")
    ] = None,
    latest: Annotated[
        list[str] | None,
        typer.Option(help="A key column: only the latest tuple of a key counts (repeat)."),
    ] = None,
    on_bad_file: Annotated[
        str | None,
        typer.Option(help="Of --format files: stop (default), or skip files that can't be read."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Register a stream; columns come from --column, or from the file in --path. Ends with 3 where
    the stream is registered but its source can't be read.
    """
    source: dict[str, Any] | None = None
    columns = [_column(text) for text in column or ()]
    folder = format is None and path is not None and path.is_dir()
    if on_bad_file is not None and format != "files" and not folder:
        raise UsageError(
            "only a source of files has bad files",
            field="--on-bad-file",
            remedy="give --format files, or the --path of a folder",
        )
    bad = [] if on_bad_file is None else [f"on_bad_file={on_bad_file}"]
    if format is not None:
        where = None if path is None else str(path.resolve())
        source = {"format": format, "path": where, "options": _options([*(option or ()), *bad])}
    elif option:
        raise UsageError("--option needs a format", field="--option", remedy="give --format")
    elif folder and path is not None:
        source = {"format": "files", "path": str(path.resolve()), "options": _options(bad)}
        examples = sorted(path.glob("*.parquet"))
        columns = columns or list(parquet_columns(examples[0], "--path")[0] if examples else ())
    elif path is not None:
        source = {
            "format": "recorded",
            "path": str(path.resolve()),
            "rows_per_batch": rows_per_batch,
        }
        columns = columns or list(parquet_columns(path, "--path")[0])
    if not columns:
        raise UsageError("no columns", field="--column", remedy="give --column or --path")
    with connect(url) as client:
        stream = client.create_stream(
            name,
            columns,
            event_time=event_time,
            lateness=lateness,
            source=source,
            idle_timeout=idle_timeout,
            keep_late=keep_late or None,
            ahead_of_clock=ahead_of_clock,
            ahead_of_stream=ahead_of_stream,
            ttl=ttl,
            latest=latest,
        )
    _show(as_json, stream.document(), render.stream_detail(stream))
    status = stream.source_status
    if status.state == "failed":
        typer.echo(
            f"{name} is registered, but its source can't be read: {status.error}. It is tried"
            " again; correct what the message names, or forget the stream with: anabranch stream"
            f" rm {name}",
            err=True,
        )
        raise typer.Exit(NOT_READ)


def _options(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UsageError(f"{text!r} is no option", field="--option", remedy="write name=value")
    return dict(text.split("=", 1) for text in texts)


@streams.command("list")
def stream_list(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List all streams."""
    with connect(url) as client:
        found = client.streams()
    _show(as_json, [s.document() for s in found], render.streams_table(found))


@streams.command("show")
def stream_show(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show a stream and its columns."""
    with connect(url) as client:
        stream = client.stream(name)
    _show(as_json, stream.document(), render.stream_detail(stream))


@streams.command("set")
def stream_set(
    name: Name,
    idle_timeout: Annotated[
        str | None, typer.Option(help="A duration, or 'none': it may be silent for ever.")
    ] = None,
    keep_late: Annotated[
        bool | None,
        typer.Option("--keep-late/--drop-late", help="Whether late tuples are kept, in files."),
    ] = None,
    ahead_of_clock: AheadOfClock = None,
    ahead_of_stream: AheadOfStream = None,
    ttl: Annotated[
        str | None, typer.Option(help="A duration, or 'none': queries' own windows count.")
    ] = None,
    latest: Annotated[
        list[str] | None,
        typer.Option(
            help="A key column: only the latest tuple of a key counts (repeat); or 'none'."
        ),
    ] = None,
    on_loss: Annotated[
        str | None,
        typer.Option(help="stop, or skip entries of Redis Streams that were removed unread."),
    ] = None,
    on_bad_file: Annotated[
        str | None,
        typer.Option(help="stop, or skip files that can't be read and record them as unread."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Change how a stream's silence and late tuples are dealt with, and how long it is of use."""
    changes: dict[str, Any] = {}
    if idle_timeout is not None:
        changes["idle_timeout"] = None if idle_timeout == "none" else idle_timeout
    if keep_late is not None:
        changes["keep_late"] = keep_late
    if ahead_of_clock is not None:
        changes["ahead_of_clock"] = ahead_of_clock
    if ahead_of_stream is not None:
        changes["ahead_of_stream"] = ahead_of_stream
    if ttl is not None:
        changes["retention"] = {"ttl": None if ttl == "none" else ttl}
    if latest:
        key = None if latest == ["none"] else latest
        changes["retention"] = {**changes.get("retention", {}), "latest": key}
    if on_loss is not None:
        changes["on_loss"] = on_loss
    if on_bad_file is not None:
        changes["on_bad_file"] = on_bad_file
    if not changes:
        raise UsageError(
            "nothing to change",
            field="stream set",
            remedy="give --idle-timeout, --keep-late, --ahead-of-clock, --ahead-of-stream, --ttl,"
            " --latest, --on-loss or --on-bad-file",
        )
    with connect(url) as client:
        stream = client.update_stream(name, **changes)
    _show(as_json, stream.document(), render.stream_detail(stream))


@streams.command("sample")
def stream_sample(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show what a uniform sample of a stream tells about its columns."""
    with connect(url) as client:
        found = client.stream_sample(name)
    _show(as_json, found.document(), sample_detail(found))


@streams.command("push")
def stream_push(
    name: Name,
    file: Annotated[
        str, typer.Argument(help="A Parquet file, or JSON lines; - reads them from standard input.")
    ] = "-",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Send rows to a stream of format redis-stream, 5,000 at a time."""
    sent = 0
    with connect(url) as client:
        for rows in rows_of(file, sys.stdin):
            sent += client.push(name, rows)
    _show(as_json, {"rows": sent}, f"{sent:,} rows sent to {name}")


@streams.command("rm")
def stream_rm(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Forget a stream that no query reads."""
    with connect(url) as client:
        client.delete_stream(name)
    _show(as_json, {"deleted": name}, f"stream {name} is gone")


@queries.command("add")
def query_add(
    sql: Sql = None,
    name: Annotated[str | None, typer.Option("--name", help="Default: chosen for you.")] = None,
    file: File = None,
    dialect: Dialect = None,
    structured: Structured = None,
    window: Windows = None,
    ttl: Annotated[str | None, typer.Option(help="How long it lives, a duration.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="When it ends, ISO 8601.")] = None,
    sink: Annotated[
        str | None,
        typer.Option(
            "--sink-format",
            "--sink",
            help="parquet (default), count, redis-stream, or what Spark can write.",
        ),
    ] = None,
    sink_option: Annotated[
        list[str] | None, typer.Option(help="name=value, for the sink (repeat).")
    ] = None,
    sink_path: Annotated[str | None, typer.Option(help="Where the sink's files are.")] = None,
    priority: Annotated[int | None, typer.Option(help="Greater is more important.")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Register a query."""
    document = _document(structured)
    with connect(url) as client:
        query = client.create_query(
            None if document else _statement(sql, file),
            query=document,
            name=name,
            window=_window(window),
            ttl=ttl,
            expires_at=expires_at,
            sink=sink_document(sink, sink_option, sink_path),
            priority=priority,
            dialect=dialect,
        )
    _show(as_json, query.document(), render.query_detail(query))


@queries.command("explain")
def query_explain(
    sql: Sql = None,
    file: File = None,
    dialect: Dialect = None,
    window: Windows = None,
    dot: Annotated[bool, typer.Option("--dot", help="Write the plan as a graph.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show what a statement's joins become and what it would cost; register nothing."""
    with connect(url) as client:
        found = client.explain(_statement(sql, file), dialect=dialect, window=_window(window))
    if dot:
        if found.after is None:
            raise UsageError("there is no plan to draw", field="--dot", remedy="leave it out")
        typer.echo(found.after.dot)
        return
    _show(as_json, found.document(), explain_detail(found))


@queries.command("list")
def query_list(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List all queries."""
    with connect(url) as client:
        found = list(client.queries())
    _show(as_json, [q.document() for q in found], render.queries_table(found))


@queries.command("show")
def query_show(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show a query, how it was understood, and how far it has come."""
    with connect(url) as client:
        query = client.query(name)
    _show(as_json, query.document(), render.query_detail(query))


@queries.command("rm")
def query_rm(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Let a query end at the next change of plan."""
    with connect(url) as client:
        client.delete_query(name)
    _show(as_json, {"deleted": name}, f"query {name} ends at the next change of plan")


@queries.command("set")
def query_set(
    name: Name,
    ttl: Annotated[str | None, typer.Option(help="How long it still lives.")] = None,
    expires_at: Annotated[
        str | None, typer.Option(help="When it ends, ISO 8601, or 'never'.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Greater is more important.")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Change a query's expiry or priority."""
    changes: dict[str, Any] = {}
    if ttl is not None:
        changes["ttl"] = ttl
    if expires_at is not None:
        changes["expires_at"] = None if expires_at == "never" else expires_at
    if priority is not None:
        changes["priority"] = priority
    if not changes:
        raise UsageError("nothing to change", remedy="give --ttl, --expires-at or --priority")
    with connect(url) as client:
        query = client.update_query(name, **changes)
    _show(as_json, query.document(), render.query_detail(query))


@epochs.command("list")
def epoch_list(
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List published epochs, newest first."""
    with connect(url) as client:
        found = list(itertools.islice(client.epochs(), limit))
    _show(as_json, [e.document() for e in found], render.epochs_table(found))


@epochs.command("show")
def epoch_show(
    number: Annotated[int, typer.Argument(min=0, help="The epoch.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show an epoch and its plan."""
    with connect(url) as client:
        epoch = client.epoch(number)
    _show(as_json, epoch.document(), render.epoch_detail(epoch))


@epochs.command("statistics")
def epoch_statistics(
    number: Annotated[int, typer.Argument(min=0, help="An epoch that has ended.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show what was measured in an epoch: streams, stores, edges."""
    with connect(url) as client:
        found = client.epoch_statistics(number)
    _show(as_json, found.document(), statistics_detail(found))


@epochs.command("current")
def epoch_current(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show the epoch that runs now."""
    with connect(url) as client:
        current = client.current_epoch()
    _show(as_json, current.document(), render.current_detail(current))


@planning.command("show")
def settings_show(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show what the next epoch is planned by."""
    with connect(url) as client:
        found = client.settings()
    _show(as_json, found.document(), render.settings_table(found))


@planning.command("set")
def settings_set(
    optimizer: Annotated[str | None, typer.Option(help="clash, shared or individual.")] = None,
    objective: Annotated[str | None, typer.Option(help="default or paper.")] = None,
    parallelism: Annotated[int | None, typer.Option(help="Partitions per store.")] = None,
    switching: Annotated[
        float | None,
        typer.Option(help="Charge for what the running epoch lacks, part of its cost; 0: none."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Bytes of all store copies, or 'none' for any amount.")
    ] = None,
    copies: Annotated[
        str | None, typer.Option(help="Copies of any store, or 'none' for any number.")
    ] = None,
    solver: Annotated[
        str | None, typer.Option(help="branch, highs, cp-sat, mathopt or cbc.")
    ] = None,
    backfill: Annotated[
        str | None,
        typer.Option(help="Compute the past of new intermediate results: auto, always or never."),
    ] = None,
    backfill_horizon: Annotated[
        float | None,
        typer.Option(help="How long a plan uses them, as multiples of the history so far."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Change some settings from the next planned epoch on; the others stay."""
    given = (optimizer, objective, parallelism, switching, memory, copies, solver)
    if all(value is None for value in (*given, backfill, backfill_horizon)):
        raise UsageError("nothing to change", field="OPTIONS", remedy="give at least one option")
    bytes_kept, most = _limit(memory, "--memory", float), _limit(copies, "--copies", int)
    with connect(url) as client:
        found = client.update_settings(
            optimizer=optimizer,
            objective=objective,
            parallelism=parallelism,
            switching=switching,
            memory=bytes_kept,
            copies=most,
            solver=solver,
            backfill=backfill,
            backfill_horizon=backfill_horizon,
        )
    _show(as_json, found.document(), render.settings_table(found))


@plans.command("dry-run")
def plan_dry_run(
    sql: Sql = None,
    file: File = None,
    structured: Structured = None,
    window: Windows = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the new query.")] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", help="A further query: SQL, name=SQL or name=@file (repeat)."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Plan without this query (repeat).")
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            "--statistic",
            help="R=tuples, R.a=distinct values, or 'R.a = S.b: selectivity' (repeat).",
        ),
    ] = None,
    width: Annotated[
        list[str] | None, typer.Option("--width", help="R=bytes per tuple (repeat).")
    ] = None,
    ttl: Annotated[
        list[str] | None, typer.Option(help="stream=a duration, or stream=none (repeat).")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="clash, shared or individual.")] = None,
    objective: Annotated[str | None, typer.Option(help="default or paper.")] = None,
    parallelism: Annotated[int | None, typer.Option(help="Partitions per store.")] = None,
    formulation: Annotated[str | None, typer.Option(help="tight or paper.")] = None,
    solver: Annotated[str | None, typer.Option(help="highs, cp-sat, mathopt or cbc.")] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0, help="Seconds to solve in; 0: without a solver.")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Leave out the plan, and cut long lists.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the plan that would be made with more queries, or without some; change nothing."""
    document = _document(structured)
    queries = []
    if document or sql or file:
        statement = None if document else _statement(sql, file)
        queries.append(
            query_body(statement, document, name, _window(window), None, None, None, None)
        )
    queries += [_query(text) for text in add or ()]
    assumed = assumptions(assume or ())
    with connect(url) as client:
        plan = client.dry_run(
            queries,
            drop=drop or (),
            optimizer=optimizer,
            objective=objective,
            parallelism=parallelism,
            statistics=assumed.cardinalities or None,
            distinct=assumed.distincts or None,
            selectivity=assumed.selectivities or None,
            widths=dict(named_number(text, "--width") for text in width or ()) or None,
            retention=retentions(ttl or ()) or None,
            formulation=formulation,
            solver=solver,
            deadline=deadline,
            detail="summary" if summary else None,
        )
    _show(as_json, plan.document(), dry_run_detail(plan))


def _query(text: str) -> dict[str, Any]:
    """What ``--add`` means: SQL, or a name and SQL or a file with SQL."""
    name, equals, rest = text.partition("=")
    if not (equals and _NAME.fullmatch(name)):
        name, rest = "", text
    if rest.startswith("@"):
        rest = _read(Path(rest[1:]), "--add")
    if not rest.strip():
        raise UsageError(
            f"{text!r} is no query", field="--add", remedy="write SQL, name=SQL or name=@file"
        )
    return query_body(rest, None, name or None, None, None, None, None, None)


def _limit(text: str | None, field: str, read: Callable[[str], N]) -> N | Literal["none"] | None:
    if text is None or text == "none":
        return cast("Literal['none'] | None", text)
    try:
        return read(text)
    except ValueError as cause:
        raise UsageError(
            f"{text!r} is no limit", field=field, remedy="give a number, or none"
        ) from cause


def _column(text: str) -> tuple[str, str]:
    name, colon, kind = text.rpartition(":")
    if not (colon and name and kind):
        raise UsageError(f"{text!r} is no column", field="--column", remedy="write name:type")
    return name, kind


def _window(texts: list[str] | None) -> str | dict[str, str] | None:
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    pairs = [text.partition("=") for text in texts]
    if not all(equals for _, equals, _ in pairs):
        raise UsageError(
            "a duration for all aliases excludes others",
            field="--window",
            remedy="give one duration, or alias=duration for each",
        )
    return {alias: duration for alias, _, duration in pairs}


def _statement(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise UsageError("give the statement or --file", field="SQL", remedy="exactly one of them")
    if file is not None:
        return _read(file, "--file")
    return sys.stdin.read() if sql == "-" else str(sql)


def _document(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        document = json.loads(_read(path, "--structured"))
    except ValueError as cause:
        raise UsageError(
            f"{path} is no JSON: {cause}", field="--structured", remedy="correct it there"
        ) from cause
    if not isinstance(document, dict):
        raise UsageError(f"{path} is no JSON object", field="--structured", remedy="correct it")
    return document


def _read(path: Path, field: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise UsageError(
            f"cannot read {path}: {cause}", field=field, remedy="name a text file"
        ) from cause
