"""Bodies of ``/v1/streams``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from anabranch_contract.connectors.sources import OnChangedFile, OnLoss
from anabranch_contract.protocol.intake import Unread
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
    Literal["stream", "table"],
    Field(description="Whether tuples happen, or are the rows of a table that queries look up."),
]


class RetentionIn(Closed):
    """Limits on the tuples of a stream that join."""

    ttl: Duration | None = Field(
        default=None,
        description="A tuple joins only tuples at most this much later in event time, in every "
        "query: a window on every alias over the stream.",
        examples=["7 days"],
    )
    latest: Annotated[list[ColumnName], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Key columns: of the tuples that agree in them only those with the greatest "
        "event time join, as of each batch.",
        examples=[["customer_id"]],
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("empty_retention", "give ttl, latest or both")
        return self


class RetentionOut(Document):
    """Limits on the tuples of a stream that join; null: no limit."""

    ttl: str | None
    latest: list[str] | None


#: Names of the properties common to requests, records, answers and scenarios.
PROPERTIES = set(StreamProperties.model_fields)


class StreamTerms(Document):
    """The terms of a stream common to its registration and its changes."""

    idle_timeout: Duration | None = Field(
        default=None,
        description="After so long a silence the watermark moves with the other streams'.",
    )
    ahead_of_clock: Duration | None = Field(
        default=None,
        description="Live, a tuple whose event time exceeds the clock by more is rejected. A "
        "duration, or `unbounded`; 1 day where the lateness is bounded.",
    )
    ahead_of_stream: Duration | None = Field(
        default=None,
        description="A tuple whose event time exceeds all earlier ones of the stream by more is "
        "rejected. A duration, or `unbounded`; 366 days where the lateness is bounded.",
    )
    retention: RetentionIn | None = None
    retain: Duration | None = Field(
        default=None,
        description="Stored tuples before any query reads the stream, and besides what queries "
        "need: `all` (default of a table), `none` (of a stream), or a duration of event time "
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
    columns: Annotated[list[ColumnRecord], Field(min_length=1)] | dict[ColumnName, str]
    event_time: ColumnName | None = Field(
        default=None, description="Column of the event time, a timestamp."
    )
    lateness: Duration | None = Field(
        default=None,
        description="A duration, or `unbounded`; 10 minutes where an event time is declared.",
    )
    kind: Kind = "stream"
    key: Annotated[list[ColumnName], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Of a table: of the rows that agree in these columns only the one that "
        "arrived last is there.",
        examples=[["id"]],
    )
    source: SourceRecord = SourceRecord()

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
    """Optional fields of :class:`StreamIn` as arguments; None: the service's default."""

    event_time: str | None
    lateness: str | None
    idle_timeout: str | None
    ahead_of_clock: str | None
    ahead_of_stream: str | None
    retain: str | None
    kind: str | None
    key: list[str] | None


@changes_of(StreamProperties)
class StreamPatch(Closed, StreamTerms):
    """Changes of a registered stream: its properties, and the fields below.

    ``idle_timeout: null``: however long it is silent; ``retention: null``: all tuples, as long as
    queries say themselves; what ``retention`` does not name stays as it is, and what it has as null
    goes.
    """

    accepted_rejects: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Rejected tuples that an operator accepts: health warns of more only.",
    )
    on_loss: OnLoss | None = Field(
        default=None,
        description="Of a stream of Redis Streams: whether it stops where entries were removed "
        "before they were read, or goes on after them.",
    )
    on_bad_file: OnLoss | None = Field(
        default=None,
        description="Of a stream of files: whether it stops before a file that can't be read, or "
        "goes on after it and records it as unread.",
    )
    on_changed_file: OnChangedFile | None = Field(
        default=None,
        description="Of a stream of files: whether a file that changes after it was read, or whose "
        "name is used again, is recorded as unread, read as a new file, or stops the stream.",
    )


class RowsIn(Closed):
    """Rows for a stream: an object per row, checked against the stream's columns."""

    model_config = examples(
        {"rows": [{"carrier": "LH", "origin": "HAM", "ts": "2026-01-01T12:00:00Z"}]}
    )

    rows: Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=10_000)]


class RowsOut(Document):
    """How many rows were written; all of a request or none."""

    rows: int


class SourceStatusOut(Document):
    """State of a stream's source: not tried yet, being read, failed and retried, or stopped without
    a runtime. ``error`` says why it can't be read.
    """

    state: Open[Literal["not tried", "reading", "failed", "stopped"]]
    error: str | None
    since: Time | None = Field(description="Since when; null: not tried.")


class TableOut(Document):
    """The rows of a table. While it is read again, queries look up the version before."""

    version: int = Field(
        description="1 at first, and one more each time that the table is to be read again."
    )
    looked_up: int | None = Field(
        description="Version that queries look up; null: the first has not been read whole."
    )
    read_at: Time | None = Field(description="When that was read whole.")
    rows: int | None = Field(
        description="Rows that it keeps: stored rows of that version, superseded ones that wait "
        "for a merge included; null: not reported, or its copies overlap."
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
        description="Whether executors at its site read it; null: it has none, or there has been "
        "no batch on several hosts.",
    )
    ahead_of_clock: str
    ahead_of_stream: str
    retention: RetentionOut | None
    retain: str = Field(
        default="none", description="`all`, `none`, or a duration: what stays without any query."
    )
    kind: Open[Literal["stream", "table"]] = "stream"
    key: list[str] | None = Field(
        default=None, description="Of a table with a key, the key's columns."
    )
    table: TableOut | None = Field(default=None, description="Of a table, its rows.")
    latest_since: int | None = Field(
        description="Of a stream that keeps the latest, the first batch whose tuples supersede "
        "others; null: it doesn't, or no query reads it."
    )
    source: SourceRecord
    waiting_tuples: int | None
    waiting_seconds: float | None
    lost_entries: int | None
    source_error: str | None
    unread: Unread | None = Field(
        description="Parts of its input that could not be read and were left out; null before "
        "the runtime has reported the stream."
    )
    source_status: SourceStatusOut
    input_tuples: int | None
    late_tuples: int | None
    invalid_tuples: int | None
    ahead_tuples: int | None
    watermark: Time | None = Field(
        default=None,
        description="As of the last batch; null: no event time, no bounded lateness, or no tuple.",
    )
    statistics: StreamStatisticsOut | None = Field(
        default=None, description="Statistics of the last ended epoch."
    )


class StreamList(Document):
    """Streams by name; pass ``next_cursor`` as ``cursor`` for the page that follows."""

    items: list[StreamOut]
    next_cursor: str | None = Field(default=None, description="Null: none follows.")
