"""REST bodies of ``/v1/streams``."""

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
    """Encoding of inserts and deletes in the rows of a stream of changes or upserts."""

    operation: ColumnName | None = Field(
        default=None,
        description="Column with the operation, which queries can't read; added to the columns as "
        "a string if they lack it. Default: `op`; of upserts without an envelope: none.",
    )
    inserts: Annotated[list[str], Field(max_length=32)] = Field(
        default=[],
        description="Operations that insert, in any case; default: i, insert, +i, +u, +, c, "
        "create, r, read; of upserts also u, update, upsert.",
    )
    deletes: Annotated[list[str], Field(max_length=32)] = Field(
        default=[],
        description="Operations that delete, in any case; default: d, delete, -d, -, and, but for "
        "upserts, -u.",
    )
    null_deletes: bool = Field(
        default=False,
        description="For upserts: a row with null in all columns but the key deletes that key.",
    )
    envelope: Literal["debezium"] | None = Field(
        default=None,
        description="JSON rows have the values before and after a change: `op`, `before` and "
        "`after`, as Debezium writes them.",
    )


class RetentionIn(Closed):
    """Limits on which tuples of a stream take part in joins."""

    ttl: Duration | None = Field(
        default=None,
        description="Window on the stream in every query: its tuples join only tuples whose event "
        "time is at most this much later.",
        examples=["7 days"],
    )
    latest: Annotated[list[ColumnName], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Key columns: of tuples with equal keys only those with the greatest event "
        "time (as of each batch) take part in joins.",
        examples=[["customer_id"]],
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("empty_retention", "give ttl, latest or both")
        return self


class RetentionOut(Document):
    """Limits on which tuples of a stream take part in joins; null: no limit."""

    ttl: str | None
    latest: list[str] | None


#: Names of the properties common to requests, records, answers and scenarios.
PROPERTIES = set(StreamProperties.model_fields)


class StreamTerms(Document):
    """Fields common to the registration of a stream and to its changes."""

    idle_timeout: Duration | None = Field(
        default=None,
        description="Time without tuples after which the stream's watermark follows the others'.",
    )
    ahead_of_clock: Duration | None = Field(
        default=None,
        description="In live mode, tuples whose event time exceeds the clock by more are rejected. "
        "A duration, or `unbounded`; default with bounded lateness: 1 day.",
    )
    ahead_of_stream: Duration | None = Field(
        default=None,
        description="Tuples whose event time exceeds the greatest one of earlier batches by more "
        "are rejected. A duration, or `unbounded`; default with bounded lateness: 366 days.",
    )
    retention: RetentionIn | None = None
    retain: Duration | None = Field(
        default=None,
        description="Tuples to store even if no query needs them: `all` (default of a table and "
        "of changes), `none` (default of a stream), or those within a duration of event time "
        "behind the stream's watermark.",
        examples=["all", "7 days"],
    )


class StreamIn(Closed, StreamProperties, StreamTerms):
    """A stream to register."""

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
    columns: Annotated[list[ColumnRecord], Field(min_length=1)] | dict[ColumnName, str] = Field(
        description="Names and types; `{}`: the columns of the table of a `postgres` source."
    )
    event_time: ColumnName | None = Field(
        default=None, description="Column of the event time, a timestamp."
    )
    lateness: Duration | None = Field(
        default=None,
        description="Delay in event time above which a tuple is late and rejected: a duration, or "
        "`unbounded`; default with an event time: 10 minutes, of changes `unbounded`.",
    )
    kind: Kind = "stream"
    changes: ChangesIn | None = Field(
        default=None,
        description="Form of the rows of kind `changes` or `upsert`; default: a column `op`; for "
        "upserts: no deletes.",
    )
    key: Annotated[list[ColumnName], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Key of a table or of upserts: a row replaces the earlier row with equal key.",
        examples=[["id"]],
    )
    source: SourceRecord = SourceRecord()

    @property
    def declared(self) -> list[tuple[str, str]]:
        """Names and types of the columns."""
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
    """Keyword arguments for optional fields of :class:`StreamIn`; None stands for the default."""

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
    """Changes of a registered stream: its properties, and the fields below.

    ``idle_timeout: null`` removes the timeout, ``retention: null`` both limits of the retention.
    Within ``retention`` an absent limit keeps its value, and null removes it.
    """

    accepted_rejects: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Number of rejected tuples that are acknowledged: health warns only of more.",
    )
    on_loss: OnLoss | None = Field(
        default=None,
        description="For Redis Streams and Kafka topics: `stop` at entries that were removed "
        "before they were read, or `skip` them.",
    )
    on_bad_file: OnLoss | None = Field(
        default=None,
        description="For files: `stop` before a file that can't be read, or `skip` it and record "
        "it as unread.",
    )
    on_changed_file: OnChangedFile | None = Field(
        default=None,
        description="For files that change, or whose name is reused, after they were read: `warn` "
        "records them as unread, `read` reads them as new files, `stop` stops the stream.",
    )


class AddedColumnIn(ColumnRecord):
    """A column to add to a stream in use."""

    model_config = examples({"name": "price", "type": "decimal(10,2)", "default": "0"})

    default: Annotated[str, Field(max_length=4096)] | None = Field(
        default=None,
        description="Its value in the rows read before, as text (as in CSV); null: NULL.",
    )


class WidenedColumnIn(Closed):
    """Another type for a column of a stream in use."""

    model_config = examples({"type": "decimal(12,2)"})

    type: Annotated[str, Field(max_length=1000)] = Field(
        description="A type that has all values of the present one: a longer integer, double after "
        "float, a decimal with more digits and the same scale, timestamp_ntz after date."
    )


class RowsIn(Closed):
    """Rows for a stream: an object per row, checked against the stream's columns."""

    model_config = examples(
        {"rows": [{"carrier": "LH", "origin": "HAM", "ts": "2026-01-01T12:00:00Z"}]}
    )

    rows: Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=10_000)]


class RowsOut(Document):
    """Number of rows written. A request writes all of its rows or none."""

    rows: int


class SourceStatusOut(Document):
    """State of a stream's source: not tried yet, being read, failed and retried, or stopped without
    a runtime. ``error`` says why it can't be read.
    """

    state: Open[Literal["not tried", "reading", "failed", "stopped"]]
    error: str | None
    since: Time | None = Field(description="Start of this state; null: not tried.")
    behind_bytes: int | None = Field(
        default=None,
        description="Bytes of a database's log that have not been read yet; null: not known, or "
        "the source is no database.",
    )
    new_columns: list[str] = Field(
        default=[],
        description="Columns that the database's table has got since, and that the stream does not "
        "read.",
    )


class TableOut(Document):
    """Versions of a table's rows. During a re-read, queries look up the previous version."""

    version: int = Field(
        description="Newest requested version: 1, plus 1 for each requested re-read."
    )
    looked_up: int | None = Field(
        description="Version that queries look up; null: version 1 is not read completely yet."
    )
    read_at: Time | None = Field(description="Time at which it had been read completely.")
    rows: int | None = Field(
        description="Number of stored rows of that version, including replaced rows that no merge "
        "has removed yet; null: unknown."
    )


class StreamOut(StreamProperties):
    """A registered stream. ``lateness``, ``ahead_of_clock`` and ``ahead_of_stream`` are durations
    or ``unbounded``.
    """

    name: str
    columns: list[ColumnRecord]
    event_time: str | None
    lateness: str
    idle_timeout: str | None
    accepted_rejects: int = 0
    at_site: bool | None = Field(
        default=None,
        description="Whether executors at its `site` read it; null: no site is set, or no batch "
        "has run on several hosts.",
    )
    ahead_of_clock: str
    ahead_of_stream: str
    retention: RetentionOut | None
    retain: str = Field(
        default="none", description="Tuples stored without any query: `all`, `none`, or a duration."
    )
    kind: Open[Literal["stream", "table", "changes", "upsert"]] = "stream"
    changes: ChangesIn | None = Field(
        default=None, description="Form of the rows of kind `changes` or `upsert`; null: neither."
    )
    key: list[str] | None = Field(
        default=None, description="Key columns of a table or of upserts; null: no key."
    )
    table: TableOut | None = Field(default=None, description="Versions and rows of a table.")
    latest_since: int | None = Field(
        description="First batch whose tuples replace earlier ones of their `latest` key; null: "
        "no such key, or no query reads the stream."
    )
    source: SourceRecord
    query: str | None = Field(
        default=None, description="The query whose rows it is; null: it is no query."
    )
    waiting_tuples: int | None
    waiting_seconds: float | None
    snapshot: SnapshotProgress | None = Field(
        default=None,
        description="Progress of the first reading of a table of a lake, before its later "
        "commits; null: it is complete, or the source has none.",
    )
    lost_entries: int | None
    source_error: str | None
    unread: Unread | None = Field(
        description="Parts of the input that could not be read and were skipped; null: the "
        "runtime has not reported the stream yet."
    )
    source_status: SourceStatusOut
    input_tuples: int | None
    late_tuples: int | None
    invalid_tuples: int | None
    ahead_tuples: int | None
    watermark: Time | None = Field(
        default=None,
        description="As of the last batch; null: no event time, unbounded lateness, or no tuple.",
    )
    statistics: StreamStatisticsOut | None = Field(
        default=None, description="Statistics of the last ended epoch."
    )


class StreamList(Document):
    """A page of streams, sorted by name; pass ``next_cursor`` as ``cursor`` for the next page."""

    items: list[StreamOut]
    next_cursor: str | None = Field(default=None, description="Null: this is the last page.")
