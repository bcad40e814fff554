"""Bodies of ``/v1/streams``."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypedDict

from pydantic import AfterValidator, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from anabranch_contract.connectors.sources import OnChangedFile, OnLoss
from anabranch_contract.rest.documents import (
    Closed,
    ColumnName,
    Document,
    Duration,
    Open,
    StreamName,
    Time,
    examples,
    printable,
)
from anabranch_contract.rest.planning.statistics import StreamStatisticsOut

#: For people; no program reads it.
Description = Annotated[str, Field(max_length=1000), AfterValidator(printable)]
#: The name of a site of executors, or of a machine; empty: none.
Site = Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9._-]*$", examples=["paris"])]


class ColumnIn(Closed):
    """One column: a name and one of Spark's simple type strings."""

    name: ColumnName
    type: Annotated[str, Field(min_length=1, max_length=64, examples=["bigint"])]


class SourceIn(Closed):
    """Where a stream's tuples come from."""

    format: Annotated[str, Field(min_length=1, max_length=64)] = "recorded"
    path: Annotated[str, Field(max_length=4096)] | None = None
    options: dict[str, str] = Field(default_factory=dict)
    rows_per_batch: Annotated[int, Field(ge=1, le=2**31)] | None = None


#: ``all``, ``none``, or a duration.
Retain = Annotated[
    Duration,
    Field(
        description="Stored tuples before any query reads the stream, and besides what queries "
        "need: `all`, `none`, or a duration of event time behind the stream's watermark.",
        examples=["all", "7 days"],
    ),
]


Kind = Annotated[
    Literal["stream", "table"],
    Field(description="Whether tuples happen, or are the rows of a table that queries look up."),
]
Key = Annotated[
    list[ColumnName],
    Field(
        min_length=1,
        max_length=16,
        description="Of a table: of the rows that agree in these columns only the one that "
        "arrived last is there.",
        examples=[["id"]],
    ),
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


class StreamProperties(Document):
    """The properties of a stream common to requests, records, answers and scenarios."""

    description: Description = ""

    keep_late: bool = Field(
        default=True,
        description="Whether rejected tuples (late, invalid, too far in the future) are kept, in "
        "files.",
    )
    site: Site = Field(
        default="",
        description="Where its tuples arrive: the site, or the machine, of the executors that read "
        "it. Empty, or where none is there: any read it.",
    )


#: Their names.
PROPERTIES = set(StreamProperties.model_fields)


class StreamIn(Closed, StreamProperties):
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
    columns: Annotated[list[ColumnIn], Field(min_length=1)] | dict[ColumnName, str]
    event_time: ColumnName | None = None
    lateness: Duration | None = Field(
        default=None,
        description="A duration, or `unbounded`; 10 minutes where an event time is declared.",
    )
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
    retain: Retain | None = Field(default=None, description="`none` of a stream, `all` of a table.")
    kind: Kind = "stream"
    key: Key | None = None
    source: SourceIn = SourceIn()

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


class StreamOptions(TypedDict, total=False):
    """Optional fields of :class:`StreamIn` as arguments; None: the service's default."""

    event_time: str | None
    lateness: str | None
    idle_timeout: str | None
    keep_late: bool | None
    description: str | None
    site: str | None
    ahead_of_clock: str | None
    ahead_of_stream: str | None
    retain: str | None
    kind: str | None
    key: list[str] | None


class StreamPatch(Closed):
    """Changes of a registered stream. ``idle_timeout: null``: however long it is silent;
    ``retention: null``: all tuples, as long as queries say themselves; what ``retention`` does not
    name stays as it is, and what it has as null goes.
    """

    idle_timeout: Duration | None = None
    keep_late: bool | None = None
    accepted_rejects: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Rejected tuples that an operator accepts: health warns of more only.",
    )
    description: Description | None = None
    site: Site | None = None
    ahead_of_clock: Duration | None = None
    ahead_of_stream: Duration | None = None
    retention: RetentionIn | None = None
    retain: Retain | None = None
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


class ColumnOut(Document):
    """One column of a stream."""

    name: str
    type: str


class SourceOut(Document):
    """Where a stream's tuples come from."""

    format: str
    path: str | None
    options: dict[str, str]
    rows_per_batch: int | None


class UnreadPieceOut(Document):
    """A part of a stream's input that could not be read and was left out, from ``batch`` on.

    ``source`` is the path of a file or the key of a Redis Stream. Of ``rows`` or ``bytes`` it is
    from ``first`` on, and up to but without ``last`` (null: to the end); of ``entries``, those
    after the id ``first`` and up to ``last``. ``rows`` and ``entries`` (how many were gone) are
    null where that is unknown.
    """

    source: str
    unit: str
    first: int | str
    last: int | str | None
    rows: int | None
    entries: int | None
    code: str
    reason: str
    batch: int


class UnreadOut(Document):
    """How many parts of a stream's input could not be read, and the newest of them."""

    pieces: int
    last: list[UnreadPieceOut]


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


class StreamOut(Document):
    """A registered stream. ``lateness``, ``ahead_of_clock`` and ``ahead_of_stream`` are durations
    or ``unbounded``.
    """

    name: str
    columns: list[ColumnOut]
    event_time: str | None
    lateness: str
    idle_timeout: str | None
    keep_late: bool
    accepted_rejects: int = 0
    description: str = ""
    site: str = ""
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
    source: SourceOut
    waiting_tuples: int | None
    waiting_seconds: float | None
    lost_entries: int | None
    source_error: str | None
    unread: UnreadOut | None = Field(
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
