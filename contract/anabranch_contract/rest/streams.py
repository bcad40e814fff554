"""REST bodies of ``/v1/streams``: registration, changes and state of streams, and pushed rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from anabranch_contract.connectors.sources import OnChangedFile, OnLoss
from anabranch_contract.protocol.intake import SnapshotProgress, Unread
from anabranch_contract.protocol.registered import (
    ColumnRecord,
    PropertyOptions,
    SourceRecord,
    StreamProperties,
)
from anabranch_contract.rest.documents import (
    Closed,
    ColumnName,
    Document,
    Duration,
    Open,
    StreamName,
    Time,
    changes_of,
    examples,
)
from anabranch_contract.rest.planning.statistics import StreamStatisticsOut

Kind = Annotated[
    Literal["stream", "table", "changes", "upsert"],
    Field(
        description="`stream`: append-only events. `table`: reference rows to look up by key. "
        "`changes`: rows that insert or delete. `upsert`: rows that replace the row of their key."
    ),
]


class ChangesIn(Closed):
    """Form in which rows of a stream of changes or upserts state inserts and deletes.

    Attributes:
        operation: column with a row's operation, which queries can't read; added to the columns as
            a string if missing. Default: ``op``; for upserts without an envelope: none.
        inserts: operations that insert, in any case; default: i, insert, +i, +u, +, c, create, r,
            read; of upserts also u, update, upsert.
        deletes: operations that delete, in any case; default: d, delete, -d, -, and (except for
            upserts) -u.
        null_deletes: for upserts: a row with null in all columns but the key deletes that key.
        envelope: JSON rows have the values before and after a change: ``op``, ``before`` and
            ``after``, as Debezium writes them.
    """

    operation: ColumnName | None = None
    inserts: Annotated[list[str], Field(max_length=32)] = Field(default=[])
    deletes: Annotated[list[str], Field(max_length=32)] = Field(default=[])
    null_deletes: bool = False
    envelope: Literal["debezium"] | None = None


class RetentionIn(Closed):
    """Limits on which tuples of a stream take part in joins.

    Attributes:
        ttl: window on the stream in every query: its tuples join only tuples whose event time is at
            most this much later.
        latest: key columns: of tuples with equal keys only those with the greatest event time (as
            of each batch) take part in joins.
    """

    ttl: Duration | None = Field(default=None, examples=["7 days"])
    latest: Annotated[list[ColumnName], Field(min_length=1, max_length=16)] | None = Field(
        default=None, examples=[["customer_id"]]
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("empty_retention", "give ttl, latest or both")
        return self


class RetentionOut(Document):
    """Limits on the tuples of a stream that take part in joins.

    Attributes:
        ttl: window on the stream in every query, as a duration; null: no window.
        latest: key columns: only the latest tuple of each key takes part; null: all tuples do.
    """

    ttl: str | None
    latest: list[str] | None


#: Names of the properties that requests, records, answers and scenarios share.
PROPERTIES = set(StreamProperties.model_fields)


class StreamTerms(Document):
    """Fields that the registration of a stream and its changes share.

    Attributes:
        idle_timeout: time without tuples until the watermark follows other streams' watermarks.
        ahead_of_clock: in live mode, tuples whose event time exceeds the clock by more are
            rejected. A duration, or ``unbounded``; default with bounded lateness: 1 day.
        ahead_of_stream: tuples whose event time exceeds the greatest one of earlier batches by more
            are rejected. A duration, or ``unbounded``; default with bounded lateness: 366 days.
        retention: limits on the tuples that take part in joins; default: no limit.
        retain: tuples to store even if no query needs them: ``all`` (default of a table and of
            changes), ``none`` (default of a stream), or those within a duration of event time
            behind the stream's watermark.
    """

    idle_timeout: Duration | None = None
    ahead_of_clock: Duration | None = None
    ahead_of_stream: Duration | None = None
    retention: RetentionIn | None = None
    retain: Duration | None = Field(default=None, examples=["all", "7 days"])


class StreamIn(Closed, StreamProperties, StreamTerms):
    """A stream to register.

    Attributes:
        name: name of the stream.
        columns: names and types; ``{}``: the columns of the table of a ``postgres`` source.
        event_time: column of the event time, a timestamp.
        lateness: delay in event time above which a tuple is late and rejected: a duration, or
            ``unbounded``; default with an event time: 10 minutes, of changes ``unbounded``.
        changes: form of the rows of kind ``changes`` or ``upsert``; default: a column ``op``; for
            upserts: no deletes.
        key: key of a table or of upserts: a row replaces the earlier row with equal key.
        source: source of the stream's tuples; default: format ``recorded`` without a path.
    """

    model_config = examples(
        {
            "name": "flights",
            "columns": {"carrier": "string", "origin": "string", "ts": "timestamp"},
            "event_time": "ts",
            "lateness": "10 minutes",
            "source": {"format": "redis-stream"},
        },
        {
            "name": "weather",
            "columns": {"origin": "string", "wind": "double", "ts": "timestamp"},
            "event_time": "ts",
            "lateness": "10 minutes",
            "source": {"format": "redis-stream"},
        },
    )

    name: StreamName
    columns: Annotated[list[ColumnRecord], Field(min_length=1)] | dict[ColumnName, str]
    event_time: ColumnName | None = None
    lateness: Duration | None = None
    kind: Kind = "stream"
    changes: ChangesIn | None = None
    key: Annotated[list[ColumnName], Field(min_length=1, max_length=16)] | None = Field(
        default=None, examples=[["id"]]
    )
    source: SourceRecord = SourceRecord()

    @property
    def declared(self) -> list[tuple[str, str]]:
        """Names and types of the stream's columns."""
        given = self.columns
        return [*given.items()] if isinstance(given, dict) else [(c.name, c.type) for c in given]

    @model_validator(mode="after")
    def _recordings_are_complete(self) -> Self:
        source = self.source
        if "source" in self.model_fields_set and source.format == "recorded":
            for field in ("path", "rows_per_batch"):
                if getattr(source, field) is None:
                    raise PydanticCustomError(
                        "incomplete_source",
                        "a recorded source needs {field}; give it, or name another format",
                        {"field": field},
                    )
        return self


class StreamOptions(PropertyOptions, total=False):
    """Keyword arguments for optional fields of :class:`StreamIn`; None means the default."""

    event_time: str | None
    lateness: str | None
    idle_timeout: str | None
    ahead_of_clock: str | None
    ahead_of_stream: str | None
    retain: str | None
    kind: str | None
    changes: Mapping[str, Any] | None
    key: list[str] | None


@changes_of(StreamProperties)
class StreamPatch(Closed, StreamTerms):
    """Changes of a registered stream: its properties, and the following fields.

    ``idle_timeout: null`` removes the timeout, ``retention: null`` removes both limits of the
    retention. Within ``retention`` an absent limit keeps its value, and null removes it.

    Attributes:
        accepted_rejects: number of rejected tuples that are acknowledged; health warns only of a
            greater number.
        on_loss: for Redis Streams and Kafka topics: ``stop`` at entries that were removed before
            they were read, or ``skip`` them.
        on_bad_file: for files: ``stop`` before a file that can't be read, or ``skip`` it and record
            it as unread.
        on_changed_file: for files that change, or whose name is reused, after they were read:
            ``warn`` records them as unread, ``read`` reads them as new files, ``stop`` stops the
            stream.
    """

    accepted_rejects: Annotated[int, Field(ge=0)] | None = None
    on_loss: OnLoss | None = None
    on_bad_file: OnLoss | None = None
    on_changed_file: OnChangedFile | None = None


class AddedColumnIn(ColumnRecord):
    """A column to add to a stream in use.

    Attributes:
        default: its value in the rows read before, as text (as in CSV); null: NULL.
    """

    model_config = examples({"name": "price", "type": "decimal(10,2)", "default": "0"})

    default: Annotated[str, Field(max_length=4096)] | None = None


class WidenedColumnIn(Closed):
    """A new type for a column of a stream in use.

    Attributes:
        type: a type that has all values of the present type: a longer integer, double in place of
            float, a decimal with more digits and the same scale, timestamp_ntz in place of date.
    """

    model_config = examples({"type": "decimal(12,2)"})

    type: Annotated[str, Field(max_length=1000)]


class RowsIn(Closed):
    """Rows for a stream: an object per row, checked against the stream's columns.

    Attributes:
        rows: the rows, each as column -> value.
    """

    model_config = examples(
        {"rows": [{"carrier": "LH", "origin": "HAM", "ts": "2026-01-01T12:00:00Z"}]}
    )

    rows: Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=10_000)]


class RowsOut(Document):
    """Outcome of a push of rows to a stream. A request writes either all of its rows or none.

    Attributes:
        rows: number of rows written.
    """

    rows: int


class SourceStatusOut(Document):
    """State of a stream's source.

    Attributes:
        state: state of the source: not tried yet, being read, failed and tried again later, or not
            read because no runtime is running.
        error: reason why the source can't be read; null: it can.
        since: time at which the source entered this state; null: not tried yet.
        behind_bytes: bytes of a database's log that have not been read yet; null: unknown, or the
            source is no database.
        new_columns: columns that were added to the database's table and that the stream lacks.
    """

    state: Open[Literal["not tried", "reading", "failed", "stopped"]]
    error: str | None
    since: Time | None
    behind_bytes: int | None = None
    new_columns: list[str] = Field(default=[])


class TableOut(Document):
    """Versions of a table's rows. During a re-read, queries look up the previous version.

    Attributes:
        version: newest requested version: 1, plus 1 for each requested re-read.
        looked_up: version that queries look up; null: version 1 is not read completely yet.
        read_at: time at which version ``looked_up`` had been read completely.
        rows: number of stored rows of version ``looked_up``, including replaced rows that no merge
            has removed yet; null: unknown.
    """

    version: int
    looked_up: int | None
    read_at: Time | None
    rows: int | None


class StreamOut(StreamProperties):
    """A registered stream.

    Attributes:
        name: name of the stream.
        columns: its columns, in order.
        event_time: column of the event time; null: none.
        lateness: delay in event time above which a tuple is late and rejected: a duration, or
            ``unbounded``.
        idle_timeout: time without tuples after which the watermark follows the other streams', as a
            duration; null: never.
        accepted_rejects: number of rejected tuples that an operator has acknowledged.
        at_site: whether executors at its ``site`` read it; null: no site is set, or no batch has
            run on several hosts.
        ahead_of_clock: in live mode, difference by which an event time may exceed the clock: a
            duration, or ``unbounded``.
        ahead_of_stream: difference by which an event time may exceed the greatest one of earlier
            batches: a duration, or ``unbounded``.
        retention: limits on the tuples that take part in joins; null: no limit.
        retain: tuples stored without any query: ``all``, ``none``, or a duration.
        kind: kind of its rows: events, rows of a table, changes or upserts.
        changes: form of the rows of kind ``changes`` or ``upsert``; null: neither.
        key: key columns of a table or of upserts; null: no key.
        table: versions and rows of a table.
        latest_since: first batch whose tuples replace earlier tuples of their ``latest`` key; null:
            there is no such key, or no query reads the stream.
        source: source of its tuples.
        query: the query whose rows the stream has; null: it is not the stream of a query.
        waiting_tuples: approximate number of rows that have arrived and are unread; null: unknown,
            or no runtime runs.
        waiting_seconds: waiting time of the oldest of these rows, in seconds; null: unknown.
        snapshot: progress of the first reading of a table of a lake, before its later commits;
            null: it is complete, or the source has none.
        lost_entries: number of lost entries or messages as far as known, or of lost parts of files;
            null: the runtime has not reported the stream's input.
        source_error: reason why the source can't be read at present; null: it can.
        unread: parts of the input that could not be read and were skipped; null: the runtime has
            not reported the stream yet.
        source_status: state of the source.
        input_tuples: number of rows read so far, rejected ones included; null: not reported yet.
        late_tuples: number of tuples rejected as late so far; null: not reported yet.
        invalid_tuples: number of rows rejected because they do not fit the columns; null: not
            reported yet.
        ahead_tuples: number of tuples rejected because their event time was too far in the future;
            null: not reported yet.
        watermark: event time below which tuples are late, as of the last batch; null: no event
            time, unbounded lateness, or no tuple.
        statistics: statistics of the last ended epoch.
    """

    name: str
    columns: list[ColumnRecord]
    event_time: str | None
    lateness: str
    idle_timeout: str | None
    accepted_rejects: int = 0
    at_site: bool | None = None
    ahead_of_clock: str
    ahead_of_stream: str
    retention: RetentionOut | None
    retain: str = "none"
    kind: Open[Literal["stream", "table", "changes", "upsert"]] = "stream"
    changes: ChangesIn | None = None
    key: list[str] | None = None
    table: TableOut | None = None
    latest_since: int | None
    source: SourceRecord
    query: str | None = None
    waiting_tuples: int | None
    waiting_seconds: float | None
    snapshot: SnapshotProgress | None = None
    lost_entries: int | None
    source_error: str | None
    unread: Unread | None
    source_status: SourceStatusOut
    input_tuples: int | None
    late_tuples: int | None
    invalid_tuples: int | None
    ahead_tuples: int | None
    watermark: Time | None = None
    statistics: StreamStatisticsOut | None = None


class StreamList(Document):
    """A page of streams, sorted by name; pass ``next_cursor`` as ``cursor`` for the next page.

    Attributes:
        items: the streams of the page.
        next_cursor: ``cursor`` of the next page; null: this is the last page.
    """

    items: list[StreamOut]
    next_cursor: str | None = None
