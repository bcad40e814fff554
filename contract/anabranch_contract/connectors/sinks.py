"""Specifications of sinks, and their checks at registration.

Nothing is opened here. Whether formats, options, paths, hosts and secrets are allowed is checked by
``connectors.check`` and ``connectors.secrets``. Options that begin with ``anabranch.`` are this
system's own, for every format that Spark writes.
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
from anabranch_contract.connectors.options import FILE_SINK_OPTIONS
from anabranch_contract.errors import PlannerError, StreamError

#: Prefix of anabranch's own options for Spark's formats.
OWN = "anabranch."
#: Option: name of an added column with the query and batch of each row.
BATCH_COLUMN = "anabranch.batchColumn"
#: Option: comma-separated columns by which files and tables are partitioned.
PARTITION_BY = "anabranch.partitionBy"
#: Option: the column used as the key of Kafka messages that Spark writes.
KEY = "anabranch.key"
#: Greatest commit interval in microseconds: an hour.
LONGEST_INTERVAL = 3_600_000_000


class SinkDefinitionError(PlannerError):
    """A sink definition that can never work, such as an unknown option or a missing column."""


class SinkKind(StrEnum):
    """The writer of a sink: none (``COUNT``), the runtime, or Spark (``FILES``, ``TABLE``)."""

    COUNT = "count"
    PARQUET = "parquet"
    REDIS = "redis-stream"
    KAFKA = "kafka"
    FILES = "files"
    TABLE = "table"


class SinkPayload(StrEnum):
    """The content of an entry of a Redis Stream: one row as JSON, or many as an Arrow stream."""

    JSON = "json"
    ARROW = "arrow"


#: Default of the option ``rows``: rows per entry of a Redis Stream with Arrow payload.
ARROW_ROWS = 1000

#: Options of Kafka sinks that only the runtime's own writer has.
_OWN_KAFKA = frozenset(SINK_NAMES) - {"topic"}
_REDIS_OPTIONS = ("stream", "maxlen", "payload", "rows", "url")
#: Format -> refused options: the runtime sets them for idempotent writes, or they lose results.
_RESERVED = {
    "delta": ("txnAppId", "txnVersion", "replaceWhere", "overwriteSchema"),
    "jdbc": ("truncate", "query"),
}


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Destination of one query's results.

    Attributes:
        format: ``parquet`` (the default: files in the results directory), ``count``,
            ``redis-stream``, ``kafka``, or a format of Spark's ``DataFrameWriter.format``.
        options: (name, value), sorted by name.
        path: directory of the files, or of a table given by path; None: below the results
            directory.
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
        """The writer of the sink, determined by format and options."""
        if self.format == "count":
            return SinkKind.COUNT
        if self.format == "redis-stream":
            return SinkKind.REDIS
        if is_own_sink(self.format, [name for name, _ in self.options]):
            return SinkKind.KAFKA
        if self.format == "parquet" and not self.options and self.path is None:
            return SinkKind.PARQUET
        return SinkKind.FILES if self.format in FILE_SINK_OPTIONS else SinkKind.TABLE

    def option(self, name: str) -> str | None:
        """Return an option's value; names are compared ignoring case, as in Spark."""
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
            remedy="leave it out, or say append",
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
    elif sink.kind is SinkKind.KAFKA:
        _check_topic(sink, columns, identity)
    elif sink.kind in (SinkKind.FILES, SinkKind.TABLE):
        _check_columns(sink, columns)


def _own_options(sink: SinkSpec) -> tuple[str, ...]:
    """Return anabranch's own options for the sink's format."""
    if sink.kind in (SinkKind.COUNT, SinkKind.REDIS):
        return ()
    if sink.kind is SinkKind.KAFKA:
        return SINK_NAMES
    return (KEY, BATCH_COLUMN) if sink.format == "kafka" else (BATCH_COLUMN, PARTITION_BY)


def _check_options(sink: SinkSpec) -> None:
    takes_no_path = sink.kind in (SinkKind.COUNT, SinkKind.REDIS) or sink.format in (
        "kafka",
        "jdbc",
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
    }.get(sink.kind)
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
                remedy="leave it out, or all options that begin with kafka.",
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
    return {"kafka": ("kafka.bootstrap.servers",), "jdbc": ("url", "dbtable")}.get(sink.format, ())


def _check_redis(sink: SinkSpec) -> None:
    payload = sink.option("payload")
    if payload is not None and payload not in list(SinkPayload):
        raise SinkDefinitionError(
            "bad-sink",
            f"{payload!r} is not a payload",
            field="sink.options.payload",
            remedy=f"choose {' or '.join(SinkPayload)}",
        )
    for name in ("maxlen", "rows"):
        text = sink.option(name)
        if text is not None and (not text.isascii() or not text.isdigit() or int(text) < 1):
            raise SinkDefinitionError(
                "bad-sink",
                f"{text!r} is not a positive number",
                field=f"sink.options.{name}",
                remedy="give a whole number of at least 1",
            )
    if sink.option("rows") is not None and payload != SinkPayload.ARROW:
        raise SinkDefinitionError(
            "bad-sink",
            "rows per entry can be chosen for payload arrow only",
            field="sink.options.rows",
            remedy="leave it out: an entry with payload json is one row",
        )
    if sink.option("stream") == "":
        raise SinkDefinitionError(
            "bad-sink", "the stream has no name", field="sink.options.stream", remedy="name it"
        )


def _check_topic(
    sink: SinkSpec, columns: Sequence[tuple[str, str]], identity: Sequence[str] | None
) -> None:
    try:
        check_messages(kafka_sink_options(dict(sink.options)), columns, identity)
    except StreamError as error:
        option = error.field.removeprefix("source.options.")
        raise SinkDefinitionError(
            "bad-sink", error.message, field=f"sink.options.{option}", remedy=error.remedy
        ) from None


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
        for name in (sink.option(option) or "").split(",") if sink.option(option) else ():
            if name.strip().lower() not in names:
                raise SinkDefinitionError(
                    "unknown-column",
                    f"the query's results have no column {name.strip()!r}",
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
            remedy="select one string, or choose csv or json",
        )
    if sink.format == "kafka" and sink.option("topic") is None and "topic" not in names:
        raise SinkDefinitionError(
            "missing-sink-option",
            "the topic for the results is missing",
            field="sink.options.topic",
            remedy="give the option topic, or select a column of that name",
        )


def target(sink: SinkSpec) -> str | None:
    """Return the path, Redis Stream or topic of upserts that only this sink's query may write to;
    None if the sink may be shared.
    """
    if sink.kind is SinkKind.FILES and sink.path is not None:
        return sink.path.rstrip("/")
    stream = sink.option("stream")
    if sink.kind is SinkKind.REDIS and stream is not None:
        return f"stream {stream}"
    if sink.kind is SinkKind.KAFKA and sink.option("payload") == KafkaPayload.UPSERT:
        return f"topic {sink.option('topic')} of {sink.option('brokers')}"
    return None


def partition_columns(sink: SinkSpec) -> tuple[str, ...]:
    """Return the columns by which files or a table are partitioned."""
    text = sink.option(PARTITION_BY)
    return tuple(part.strip() for part in text.split(",")) if text else ()
