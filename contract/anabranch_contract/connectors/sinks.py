"""Specifications of sinks, and their checks at registration.

Nothing is opened here. Whether formats, options, paths, hosts and secrets are allowed is checked by
``connectors.check`` and ``connectors.secrets``. Every format that Spark writes also has anabranch's
own options, which begin with ``anabranch.``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.connectors.kafka_sinks import (
    SINK_NAMES,
    KafkaPayload,
    check_messages,
    is_own_sink,
    kafka_sink_options,
)
from anabranch_contract.connectors.lake.options import TABLE, TABLE_NAME
from anabranch_contract.connectors.options import FILE_SINK_OPTIONS, TABLE_SINK_OPTIONS
from anabranch_contract.connectors.webhook.options import WEBHOOK, WEBHOOK_NAMES, webhook_options
from anabranch_contract.errors import PlannerError, StreamError
from anabranch_contract.queries.types import INTERVALS, NESTED, DataType, TypeKind
from anabranch_contract.queries.views import CHANGE

#: Prefix of anabranch's own options for Spark's formats.
OWN = "anabranch."
#: Option: name for an added column with the query and batch of each row.
BATCH_COLUMN = "anabranch.batchColumn"
#: Option: comma-separated columns by which files and tables are partitioned.
PARTITION_BY = "anabranch.partitionBy"
#: Option: the column that is the key of Kafka messages written by Spark; or the key columns of a
#: view whose current rows are kept in a table.
KEY = "anabranch.key"
#: Option: the content of a Delta or Iceberg table.
CONTENT = "anabranch.table"
#: Column with the number of equal rows, in tables of the current rows of queries without a view;
#: the number is negative while deletes have come before their inserts.
COUNT = "anabranch_count"
#: Options: the codec and size in bytes of a table's files.
COMPRESSION, FILE_SIZE = "compression", "targetFileSize"
#: Greatest commit interval in microseconds: an hour.
LONGEST_INTERVAL = 3_600_000_000


class SinkDefinitionError(PlannerError):
    """A sink definition that can never work, such as an unknown option or a missing column."""


class SinkKind(StrEnum):
    """The writer of a sink: none (``COUNT``), Spark (``FILES``, ``TABLE``), else the runtime."""

    COUNT = "count"
    PARQUET = "parquet"
    REDIS = "redis-stream"
    KAFKA = "kafka"
    WEBHOOK = "webhook"
    LAKE = "lake"
    FILES = "files"
    TABLE = "table"


class LakeContent(StrEnum):
    """Content of a Delta or Iceberg table: all results ever, or the rows of the current answer."""

    CHANGES = "changes"
    CURRENT = "current"


class SinkPayload(StrEnum):
    """The content of an entry of a Redis Stream: one row as JSON, or many as an Arrow stream."""

    JSON = "json"
    ARROW = "arrow"


#: Default of the option ``rows``: rows per entry of a Redis Stream with Arrow payload.
ARROW_ROWS = 1000

#: Options of Kafka sinks written by the runtime that Spark's connector does not have.
_OWN_KAFKA = frozenset(SINK_NAMES) - {"topic"}
_REDIS_OPTIONS = ("stream", "maxlen", "payload", "rows", "url")
#: Formats of tables that the runtime writes.
LAKE_FORMATS = ("delta", "iceberg")
#: Codecs of the files of tables.
LAKE_CODECS = ("uncompressed", "snappy", "gzip", "zstd")
#: Format -> refused options, because the runtime sets them itself for idempotent writes, or because
#: they would lose results.
_RESERVED = {"jdbc": ("truncate", "query")}
#: Characters that names of columns in Delta tables can't have.
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
#: Types of columns that Delta and Iceberg tables can't have.
_NOT_IN_TABLES = (*INTERVALS, TypeKind.NULL)


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """The destination of one query's results: format, path and options.

    Attributes:
        format: ``parquet`` (the default: files in the results directory), ``count``,
            ``redis-stream``, ``kafka``, ``webhook``, ``delta``, ``iceberg``, or a format of Spark's
            ``DataFrameWriter.format``.
        options: (name, value), sorted by name.
        path: directory of the files, or of a table; None: below the results directory.
        mode: always ``append``: results of earlier batches are never overwritten.
        commit_interval: microseconds for which results of committed batches are gathered into one
            file or delivery; 0: each batch has its own.
    """

    format: str = "parquet"
    options: tuple[tuple[str, str], ...] = ()
    path: str | None = None
    mode: str = "append"
    commit_interval: int = 0

    @property
    def kind(self) -> SinkKind:
        """The writer of the sink, determined by its format and options."""
        if self.format == "count":
            return SinkKind.COUNT
        if self.format == "redis-stream":
            return SinkKind.REDIS
        if is_own_sink(self.format, [name for name, _ in self.options]):
            return SinkKind.KAFKA
        if self.format == WEBHOOK:
            return SinkKind.WEBHOOK
        if self.format in LAKE_FORMATS:
            return SinkKind.LAKE
        if self.format == "parquet" and not self.options and self.path is None:
            return SinkKind.PARQUET
        return SinkKind.FILES if self.format in FILE_SINK_OPTIONS else SinkKind.TABLE

    @property
    def gathers(self) -> bool:
        """Whether results of committed batches are gathered before they are delivered; a webhook
        without a commit interval gathers results until its last delivery is done."""
        return self.commit_interval > 0 or self.format == WEBHOOK

    def option(self, name: str) -> str | None:
        """Return the value of a sink's option; names are compared ignoring case, as in Spark."""
        return next((v for k, v in self.options if k.lower() == name.lower()), None)


def check_sink(
    sink: SinkSpec, columns: Sequence[tuple[str, str]], identity: Sequence[str] | None = None
) -> None:
    """Refuse a sink that can't work. Access rights are checked by ``connectors.check``.

    Args:
        sink: as registered.
        columns: (name, type) of the query's results.
        identity: columns that identify a row of the query's view; None: it has none.

    Raises:
        SinkDefinitionError: naming the field and the remedy.

    >>> check_sink(SinkSpec("count", (("colour", "red"),)), [("a", "int")])
    Traceback (most recent call last):
        ...
    anabranch_contract.connectors.sinks.SinkDefinitionError: sink.options.colour: the sink count \
has no option 'colour' (it has none)
    """
    if sink.mode != "append":
        raise SinkDefinitionError(
            "bad-sink",
            f"a sink can't be written in mode {sink.mode!r}: each batch would undo the one before",
            field="sink.mode",
            remedy="leave the mode out, or give append",
        )
    if not 0 <= sink.commit_interval <= LONGEST_INTERVAL:
        raise SinkDefinitionError(
            "bad-sink",
            "the commit interval is negative, or longer than an hour",
            field="sink.commit_interval",
            remedy="give a duration of up to '1 hour'",
        )
    if sink.commit_interval and sink.kind is SinkKind.COUNT:
        raise SinkDefinitionError(
            "bad-sink",
            "the sink count writes nothing that could be gathered",
            field="sink.commit_interval",
            remedy="leave it out",
        )
    _check_options(sink)
    if sink.kind is SinkKind.REDIS:
        _check_redis(sink)
    elif sink.kind in (SinkKind.KAFKA, SinkKind.WEBHOOK):
        _check_messages(sink, columns, identity)
    elif sink.kind in (SinkKind.FILES, SinkKind.TABLE, SinkKind.LAKE):
        _check_columns(sink, columns)
    if sink.kind is SinkKind.LAKE:
        _check_lake(sink, columns)
        _check_current(sink, dict(columns), identity)


def _own_options(sink: SinkSpec) -> tuple[str, ...]:
    """Return anabranch's own options that a sink of this format may have."""
    if sink.kind in (SinkKind.COUNT, SinkKind.REDIS):
        return ()
    if sink.kind is SinkKind.KAFKA:
        return SINK_NAMES
    if sink.kind is SinkKind.WEBHOOK:
        return WEBHOOK_NAMES
    if sink.kind is SinkKind.LAKE:
        return (BATCH_COLUMN, PARTITION_BY, KEY, CONTENT)
    return (KEY, BATCH_COLUMN) if sink.format == "kafka" else (BATCH_COLUMN, PARTITION_BY)


def _check_options(sink: SinkSpec) -> None:
    takes_no_path = sink.kind in (SinkKind.COUNT, SinkKind.REDIS) or sink.format in (
        "kafka",
        "jdbc",
        "iceberg",
        WEBHOOK,
    )
    if sink.kind is SinkKind.FILES or sink.format == "delta":
        if sink.path is not None and not sink.path.startswith("/") and "://" not in sink.path:
            raise SinkDefinitionError(
                "bad-sink",
                f"{sink.path!r} is relative, and the runtime's directory is not yours",
                field="sink.path",
                remedy="give it in full",
            )
        if sink.path is None and sink.format == "delta":
            raise SinkDefinitionError(
                "bad-sink", "a Delta table needs a path", field="sink.path", remedy="give it"
            )
    if sink.path is not None and takes_no_path:
        raise SinkDefinitionError(
            "bad-sink",
            f"the sink {sink.format} has no path",
            field="sink.path",
            remedy="leave it out",
        )
    own = _own_options(sink)
    listed = {
        SinkKind.COUNT: (),
        SinkKind.REDIS: _REDIS_OPTIONS,
        SinkKind.KAFKA: SINK_NAMES,
        SinkKind.WEBHOOK: WEBHOOK_NAMES,
    }.get(sink.kind)
    if sink.kind is SinkKind.LAKE:
        listed = TABLE_SINK_OPTIONS[sink.format]
    for name, _ in sink.options:
        allowed = own if name.startswith(OWN) else listed
        if allowed is not None and name.lower() not in (a.lower() for a in allowed):
            raise SinkDefinitionError(
                "unknown-sink-option",
                f"the sink {sink.format} has no option {name!r}",
                field=f"sink.options.{name}",
                remedy=f"it has {', '.join(allowed)}" if allowed else "it has none",
            )
        if any(name.lower() == r.lower() for r in _RESERVED.get(sink.format, ())):
            raise SinkDefinitionError(
                "unknown-sink-option",
                f"option {name!r} of {sink.format} is set by the runtime: it identifies batches, "
                "or prevents the loss of results",
                field=f"sink.options.{name}",
                remedy="leave it out",
            )
        if sink.kind is SinkKind.TABLE and sink.format == "kafka" and name.lower() in _OWN_KAFKA:
            raise SinkDefinitionError(
                "unknown-sink-option",
                f"Spark, which writes sinks with options of kafka…, has no option {name!r}",
                field=f"sink.options.{name}",
                remedy="leave this option out, or all options that begin with kafka.",
            )
    for name in _required(sink):
        if sink.option(name) is None:
            raise SinkDefinitionError(
                "missing-sink-option",
                f"the sink {sink.format} needs the option {name!r}",
                field=f"sink.options.{name}",
                remedy="give it",
            )


def _required(sink: SinkSpec) -> tuple[str, ...]:
    if sink.kind is SinkKind.KAFKA:
        return ("brokers", "topic")
    required = {
        "kafka": ("kafka.bootstrap.servers",),
        "jdbc": ("url", "dbtable"),
        "iceberg": (TABLE,),
        WEBHOOK: ("url", "secret"),
    }
    return required.get(sink.format, ())


def _check_redis(sink: SinkSpec) -> None:
    payload = sink.option("payload")
    if payload is not None and payload not in list(SinkPayload):
        raise SinkDefinitionError(
            "bad-sink",
            f"{payload!r} is not a payload",
            field="sink.options.payload",
            remedy=f"choose {' or '.join(SinkPayload)}",
        )
    _check_positive(sink, "maxlen", "rows")
    if sink.option("rows") is not None and payload != SinkPayload.ARROW:
        raise SinkDefinitionError(
            "bad-sink",
            "rows per entry can be chosen for payload arrow only",
            field="sink.options.rows",
            remedy="leave the option out: an entry with payload json is one row",
        )
    if sink.option("stream") == "":
        raise SinkDefinitionError(
            "bad-sink", "the stream has no name", field="sink.options.stream", remedy="name it"
        )


def _check_messages(
    sink: SinkSpec, columns: Sequence[tuple[str, str]], identity: Sequence[str] | None
) -> None:
    given = dict(sink.options)
    try:
        is_topic = sink.kind is SinkKind.KAFKA
        messages = kafka_sink_options(given) if is_topic else webhook_options(given).messages
        check_messages(messages, columns, identity)
    except StreamError as error:
        option = error.field.removeprefix("source.options.")
        raise SinkDefinitionError(
            "bad-sink", error.message, field=f"sink.options.{option}", remedy=error.remedy
        ) from None


def _check_positive(sink: SinkSpec, *names: str) -> None:
    for name in names:
        text = sink.option(name)
        if text is not None and (not text.isascii() or not text.isdigit() or int(text) < 1):
            raise SinkDefinitionError(
                "bad-sink",
                f"{text!r} is not a positive number",
                field=f"sink.options.{name}",
                remedy="give a whole number of at least 1",
            )


def _check_columns(sink: SinkSpec, columns: Sequence[tuple[str, str]]) -> None:
    names = {name.lower(): kind for name, kind in columns}
    added = sink.option(BATCH_COLUMN)
    if added is not None and (not added or added.lower() in names):
        raise SinkDefinitionError(
            "bad-sink",
            f"{added!r} is not a name that a further column could have",
            field=f"sink.options.{BATCH_COLUMN}",
            remedy="choose a name that the query's results do not have",
        )
    for option in (PARTITION_BY, KEY):
        for name in _listed(sink.option(option)):
            if name.lower() not in names:
                raise SinkDefinitionError(
                    "unknown-column",
                    f"the query's results have no column {name!r}",
                    field=f"sink.options.{option}",
                    remedy=f"they have {', '.join(n for n, _ in columns)}",
                )
    parts = partition_columns(sink)
    if parts and len(set(map(str.lower, parts))) >= len(names):
        raise SinkDefinitionError(
            "bad-sink",
            "all columns are partition columns, so the files would have no column",
            field=f"sink.options.{PARTITION_BY}",
            remedy="leave at least one out of anabranch.partitionBy",
        )
    if sink.format == "text" and (len(columns) != 1 or columns[0][1] != "string"):
        raise SinkDefinitionError(
            "bad-sink",
            "text files hold one string column, the query's results have "
            + ", ".join(f"{n} {t}" for n, t in columns),
            field="sink.format",
            remedy="select a single string column, or choose the format csv or json",
        )
    if sink.format == "kafka" and sink.option("topic") is None and "topic" not in names:
        raise SinkDefinitionError(
            "missing-sink-option",
            "the topic for the results is missing",
            field="sink.options.topic",
            remedy="give the option topic, or select a column of that name",
        )


def _check_lake(sink: SinkSpec, columns: Sequence[tuple[str, str]]) -> None:
    """Refuse a Delta or Iceberg table as a sink if it can't hold the columns."""
    _check_positive(sink, FILE_SIZE)
    codec = sink.option(COMPRESSION)
    if codec is not None and codec.lower() not in LAKE_CODECS:
        raise SinkDefinitionError(
            "bad-sink",
            f"{codec[:60]!r} is not a codec of tables",
            field=f"sink.options.{COMPRESSION}",
            remedy=f"give one of {', '.join(LAKE_CODECS)}",
        )
    table = sink.option(TABLE)
    if table is not None and TABLE_NAME.fullmatch(table) is None:
        raise SinkDefinitionError(
            "bad-sink",
            f"{table[:100]!r} is not the name of a table of a catalog",
            field=f"sink.options.{TABLE}",
            remedy="give catalog.database.table, in letters, digits, _ and -",
        )
    added = sink.option(BATCH_COLUMN)
    names = [name for name, _ in columns] + ([] if added is None else [added])
    lowered = [name.lower() for name in names]
    for name in names:
        if _NOT_IN_NAMES & {*name}:
            raise SinkDefinitionError(
                "bad-sink",
                f"tables have no column of the name {name!r}: space, comma, ;, =, braces and "
                "parentheses are not allowed",
                field="sql",
                remedy="name the column by AS",
            )
        if lowered.count(name.lower()) > 1:
            raise SinkDefinitionError(
                "bad-sink",
                f"tables have no two columns of the name {name!r}, whose case does not matter",
                field="sql",
                remedy="name one of them by AS",
            )
    for name, kind in columns:
        if DataType.from_text(kind).has(*_NOT_IN_TABLES):
            raise SinkDefinitionError(
                "bad-sink",
                f"{sink.format} tables have no type for the column {name}, {kind}",
                field="sql",
                remedy="cast the column to another type in the SELECT list, such as string",
            )
    kinds = {name.lower(): kind for name, kind in columns}
    for name in partition_columns(sink):
        if DataType.from_text(kinds[name.lower()]).has(*NESTED):
            raise SinkDefinitionError(
                "bad-sink",
                f"tables can't be partitioned by the nested values of {name}",
                field=f"sink.options.{PARTITION_BY}",
                remedy="choose other columns",
            )


def _check_current(sink: SinkSpec, columns: dict[str, str], identity: Sequence[str] | None) -> None:
    """Refuse a sink's key for a table of all changes, and an impossible table of current rows."""
    content, key = sink.option(CONTENT), current_key(sink)
    if content is not None and content not in list(LakeContent):
        raise SinkDefinitionError(
            "bad-sink",
            f"{content[:60]!r} is not a content of tables",
            field=f"sink.options.{CONTENT}",
            remedy=f"choose {' or '.join(LakeContent)}",
        )
    if content != LakeContent.CURRENT:
        if key:
            raise SinkDefinitionError(
                "bad-sink",
                "a table of all changes has no key",
                field=f"sink.options.{KEY}",
                remedy=f"leave it out, or give {CONTENT}={LakeContent.CURRENT}",
            )
        return
    if sink.format != "delta":
        raise SinkDefinitionError(
            "bad-sink",
            f"{sink.format} tables have no current content: each batch would copy whole files, "
            "in several snapshots",
            field=f"sink.options.{CONTENT}",
            remedy="choose a Delta table, or write the changes and merge them by another engine",
        )
    if CHANGE not in columns or COUNT in columns:
        raise SinkDefinitionError(
            "bad-sink",
            "the query's results are not changes, so all of them are current"
            if CHANGE not in columns
            else f"the current table has a column {COUNT} of its own",
            field=f"sink.options.{CONTENT}",
            remedy="leave it out" if CHANGE not in columns else "rename the query's column",
        )
    if {*map(str.lower, key)} != {*map(str.lower, identity or ())}:
        raise SinkDefinitionError(
            "bad-sink",
            "the key is not that of the view's rows"
            if identity
            else "rows of this query are identified by all columns, not by a key",
            field=f"sink.options.{KEY}",
            remedy=f"give {','.join(identity)}" if identity else "leave it out",
        )
    # Each commit merges rows into the table by comparison of these columns.
    compared = key if identity is not None else tuple(columns)
    kinds = {name.lower(): kind for name, kind in columns.items()}
    for name in compared:
        if DataType.from_text(kinds[name.lower()]).has(*NESTED):
            raise SinkDefinitionError(
                "bad-sink",
                f"rows of a current table are compared, which the nested values of {name} can't be",
                field="sql",
                remedy="leave these columns out, or select to_json() of them",
            )
    for name in partition_columns(sink):
        if name == CHANGE:
            raise SinkDefinitionError(
                "bad-sink",
                f"a current table has no column {CHANGE}",
                field=f"sink.options.{PARTITION_BY}",
                remedy="choose other columns",
            )


def current_key(sink: SinkSpec) -> tuple[str, ...]:
    """Return a sink's key columns of a table with a view's current rows; else empty."""
    return _listed(sink.option(KEY))


def target(sink: SinkSpec) -> str | None:
    """Return the path, Redis Stream or topic of upserts to which only this sink's query may write;
    None if other queries may write there, too."""
    if sink.path is not None and (
        sink.kind is SinkKind.FILES or sink.option(CONTENT) == LakeContent.CURRENT
    ):
        return sink.path.rstrip("/")
    stream = sink.option("stream")
    if sink.kind is SinkKind.REDIS and stream is not None:
        return f"stream {stream}"
    if sink.kind is SinkKind.KAFKA and sink.option("payload") == KafkaPayload.UPSERT:
        return f"topic {sink.option('topic')} of {sink.option('brokers')}"
    return None


def partition_columns(sink: SinkSpec) -> tuple[str, ...]:
    """Return the columns by which a sink's files or table are partitioned."""
    return _listed(sink.option(PARTITION_BY))


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()
