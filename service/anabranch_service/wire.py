"""The bodies of the REST API. Requests refuse what they don't know; answers are explicit."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from anabranch_contract.connectors.sources import OnLoss
from anabranch_contract.plans.plan import Formulation, Objective, Optimizer
from anabranch_planner.plans.backfill import Backfilling
from anabranch_planner.solvers.interface import Solver
from anabranch_service.registry.records import (
    BoundInfo,
    DiffRecord,
    EpochRecord,
    NormalisedInfo,
    ReasonsRecord,
    SharesRecord,
    SinkRecord,
)

MAX_TEXT = 100_000


def printable(text: str) -> str:
    """Refuse control characters: names end up in file names, edges and terminals."""
    if not text.isprintable():
        raise PydanticCustomError("bad-name", "must not contain control characters")
    return text


StreamName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", examples=["orders"])]
QueryName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", examples=["late-orders"])
]
ColumnName = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(printable)]
Duration = Annotated[str, Field(min_length=1, max_length=64, examples=["10 minutes", "PT1H"])]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class Body(BaseModel):
    """Base of all request bodies."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ColumnIn(Body):
    """One column: a name and one of Spark's simple type strings."""

    name: ColumnName
    type: Annotated[str, Field(min_length=1, max_length=64, examples=["bigint"])]


class SourceIn(Body):
    """Where a stream's tuples come from."""

    format: Annotated[str, Field(min_length=1, max_length=64)] = "recorded"
    path: Annotated[str, Field(max_length=4096)] | None = None
    options: dict[str, str] = Field(default_factory=dict)
    rows_per_batch: Annotated[int, Field(ge=1, le=2**31)] | None = None


class RetentionIn(Body):
    """Which of a stream's tuples are of use, and for how long."""

    ttl: Duration | None = Field(
        default=None,
        description="A tuple joins with what is at most so much later in event time, in every "
        "query: a window on every alias over the stream.",
        examples=["7 days"],
    )
    latest: Annotated[list[ColumnName], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Key columns: of the tuples that agree in them only those with the greatest "
        "event time are of use, as of each batch.",
        examples=[["customer_id"]],
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("empty_retention", "give ttl, latest or both")
        return self


class RetentionOut(BaseModel):
    """Which of a stream's tuples are of use, and for how long; null: what is not limited."""

    ttl: str | None
    latest: list[str] | None


class StreamIn(Body):
    """A stream to register."""

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
    keep_late: bool = Field(
        default=False,
        description="Whether late, invalid and ahead tuples are kept aside, in files.",
    )
    ahead_of_clock: Duration | None = Field(
        default=None,
        description="Live, a tuple whose event time exceeds the clock by more is set aside. A "
        "duration, or `unbounded`; 1 day where the lateness is bounded.",
    )
    ahead_of_stream: Duration | None = Field(
        default=None,
        description="A tuple whose event time exceeds all earlier ones of the stream by more is "
        "set aside. A duration, or `unbounded`; 366 days where the lateness is bounded.",
    )
    retention: RetentionIn | None = None
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


class StreamPatch(Body):
    """What may change of a registered stream. ``idle_timeout: null``: however long it is silent;
    ``retention: null``: all tuples, as long as queries say themselves; what ``retention`` does not
    name stays as it is, and what it has as null goes.
    """

    idle_timeout: Duration | None = None
    keep_late: bool | None = None
    ahead_of_clock: Duration | None = None
    ahead_of_stream: Duration | None = None
    retention: RetentionIn | None = None
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


class RowsIn(Body):
    """Rows for a stream: an object per row, checked against the stream's columns."""

    rows: Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=10_000)]


class RowsOut(BaseModel):
    """How many rows were written; all of a request or none."""

    rows: int


#: What a statement is written in.
Dialect = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9_]{1,40}$",
        description="What the statement is written in, by sqlglot's name; it is put into Spark's.",
        examples=["postgres"],
    ),
]


class QueryIn(Body):
    """A query to register: exactly one of ``sql`` and ``query``."""

    id: QueryName | None = None
    sql: Text | None = None
    dialect: Dialect = "spark"
    query: dict[str, JsonValue] | None = Field(default=None, description="A structured query.")
    window: Duration | dict[str, Duration] | None = None
    ttl: Duration | None = None
    expires_at: AwareDatetime | None = None
    sink: SinkRecord = SinkRecord()
    priority: Annotated[int, Field(ge=0, le=1_000_000)] = 0

    @field_validator("query")
    @classmethod
    def _encodable(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        """Refuse lone surrogates, which JSON can spell but nobody can store, and what is longer
        than SQL may be.
        """
        try:
            text = json.dumps(value, ensure_ascii=False)
            text.encode()
        except (UnicodeEncodeError, RecursionError):
            raise PydanticCustomError("bad-text", "must be valid Unicode, not too deep") from None
        if len(text) > MAX_TEXT:
            raise PydanticCustomError("too-long", f"must have {MAX_TEXT} characters at most")
        return value


class QueryPatch(Body):
    """What may change of a registered query. ``expires_at: null`` lets it live for ever."""

    ttl: Duration | None = None
    expires_at: AwareDatetime | None = None
    priority: Annotated[int, Field(ge=0, le=1_000_000)] | None = None


Switching = Annotated[
    float,
    Field(
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="What a step or store copy that the running epoch does not have is charged, "
        "as a part of its cost; 0: nothing.",
    ),
]
Memory = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Copies = Annotated[int, Field(ge=1, le=1024)]
Horizon = Annotated[
    float,
    Field(
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="For how long a plan is expected to use a new intermediate result, as "
        "multiples of the history so far.",
    ),
]


class SettingsIn(Body):
    """Planning settings; what is left out keeps its value."""

    optimizer: Optimizer | None = None
    objective: Objective | None = None
    parallelism: Annotated[int, Field(ge=1, le=1024)] | None = None
    switching: Switching | None = None
    memory: Memory | None = Field(default=None, description="Null: any amount.")
    copies: Copies | None = Field(default=None, description="Null: any number.")
    solver: Solver | None = None
    backfill: Backfilling | None = None
    backfill_horizon: Horizon | None = None


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Detail = Literal["full", "summary"]


class ExplainIn(Body):
    """A statement to be explained: any query, whether it can run continuously or not."""

    sql: Text
    dialect: Dialect = "spark"
    window: Duration | dict[str, Duration] | None = None


class DryRunIn(Body):
    """A plan that is asked for, not published.

    Queries in ``add`` join, those in ``drop`` leave what is registered now. ``statistics`` maps
    relations (or streams, meaning all their relations) to cardinalities and overrides what was
    measured; so do ``distinct`` and ``selectivity``.
    """

    add: Annotated[list[QueryIn], Field(max_length=1000)] = []
    drop: list[QueryName] = []
    optimizer: Optimizer | None = None
    objective: Objective | None = None
    parallelism: Annotated[int, Field(ge=1, le=1024)] | None = None
    statistics: dict[str, Positive] = Field(default_factory=dict)
    distinct: dict[str, Positive] = Field(
        default_factory=dict,
        description="Distinct values of `relation.column`, or of `relation.column,column`.",
        examples=[{"orders.customer_id": 500}],
    )
    selectivity: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(
        default_factory=dict,
        description="Matches of an equality over the size of the cross product.",
        examples=[{"orders.customer_id = customers.customer_id": 0.001}],
    )
    widths: dict[str, Positive] = Field(
        default_factory=dict,
        description="Bytes per tuple of a relation or stream; otherwise by its columns' types.",
    )
    retention: dict[StreamName, RetentionIn | None] = Field(
        default_factory=dict,
        description="Streams whose retention is to be assumed; null: they have none.",
        examples=[{"orders": {"ttl": "7 days"}}],
    )
    switching: Switching | None = None
    memory: Memory | None = Field(default=None, description="Null: any amount.")
    copies: Copies | None = Field(default=None, description="Null: any number.")
    formulation: Formulation = Formulation.TIGHT
    solver: Solver | None = None
    deadline: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Seconds for a solve, at most the service's own limit; 0: no solving at all.",
    )
    detail: Detail = Field(
        default="full",
        description="`summary` leaves out the plan itself and cuts long lists.",
    )


class ColumnOut(BaseModel):
    """One column of a stream."""

    name: str
    type: str


class SourceOut(BaseModel):
    """Where a stream's tuples come from."""

    format: str
    path: str | None
    options: dict[str, str]
    rows_per_batch: int | None


class DelayOut(BaseModel):
    """Tuples by how far they were behind their stream: less than ``below_us`` microseconds (1: not
    at all), and not less than the class before.
    """

    below_us: int
    tuples: int


class StreamStatisticsOut(BaseModel):
    """One stream during one epoch. ``seconds`` is wall time, ``event_seconds`` event time that it
    advanced by; ``delay_us`` has upper bounds, each at most twice what it stands for.
    """

    tuples: int
    late: int
    invalid: int
    ahead: int
    seconds: float
    event_seconds: float | None
    tuples_per_second: float | None
    tuples_per_event_second: float | None
    delays: list[DelayOut]
    delay_us: dict[str, int]


class UnreadPieceOut(BaseModel):
    """A part of a stream's input that could not be read and was left out, from ``batch`` on.

    ``source`` is the path of a file or the key of a Redis Stream. Of ``rows`` or ``bytes`` it is
    from ``first`` on, and up to but without ``last`` (null: to the end); of ``entries``, those
    after the id ``first`` and up to ``last``. ``rows`` and ``entries`` (how many were gone) are
    null where nobody can tell.
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


class UnreadOut(BaseModel):
    """How many parts of a stream's input could not be read, and the newest of them."""

    pieces: int
    last: list[UnreadPieceOut]


class SourceStatusOut(BaseModel):
    """How a stream's source stands: nobody has opened it yet, it is read, it can't be read and is
    tried again, or no runtime runs. ``error`` says why it can't be read.
    """

    state: Literal["not tried", "reading", "failed", "stopped"]
    error: str | None
    since: AwareDatetime | None = Field(description="Since when; null: not tried.")


class StreamOut(BaseModel):
    """A registered stream. ``lateness``, ``ahead_of_clock`` and ``ahead_of_stream`` are durations
    or ``unbounded``.
    """

    name: str
    columns: list[ColumnOut]
    event_time: str | None
    lateness: str
    idle_timeout: str | None
    keep_late: bool
    ahead_of_clock: str
    ahead_of_stream: str
    retention: RetentionOut | None
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
        description="What of its input could not be read and was left out; null before the runtime "
        "has said anything of the stream."
    )
    source_status: SourceStatusOut
    input_tuples: int | None
    late_tuples: int | None
    invalid_tuples: int | None
    ahead_tuples: int | None
    statistics: StreamStatisticsOut | None = Field(
        default=None, description="What it did in the last epoch that ended."
    )


class StreamList(BaseModel):
    """All streams, by name."""

    items: list[StreamOut]


class VisibleFrom(BaseModel):
    """From when on stored tuples of an alias are visible; no event time: no bound."""

    batch: int
    event_time: str | None


class ActivationOut(BaseModel):
    """An activation that has ended because a stream's ttl changed the query's time bounds.

    It was active from ``activated_batch`` up to the batch before ``expired_batch``, by ``bounds``;
    ``results`` are those up to its end, of earlier ones too.
    """

    activated_batch: int
    expired_batch: int
    bounds: list[BoundInfo] | None = Field(
        description="Null of an activation by a release that did not keep them."
    )
    visible_from: dict[str, VisibleFrom]
    complete_from: str | None
    complete: str
    results: int


QueryStatus = Literal["pending", "active", "expiring", "expired", "rejected", "failed"]


class ProblemOut(BaseModel):
    """Why a query was rejected."""

    code: str
    message: str
    field: str
    remedy: str


class FailureOut(BaseModel):
    """Why a query has failed at run time: what could not be evaluated, and in which batch.

    Results of earlier batches stand; of this batch there are none.
    """

    code: str
    message: str
    expression: str
    batch: int
    remedy: str


class ViewRowsOut(BaseModel):
    """The rows of a view. A view without LIMIT is told as long as it is small."""

    version: int | None = Field(description="Null: nothing has been told of it yet.")
    total: int | None = Field(description="How many rows there are, told or not.")
    columns: list[str]
    rows: list[dict[str, JsonValue]]


class QueryOut(BaseModel):
    """A query, what it was understood to be, and how far it has come."""

    id: str
    status: QueryStatus
    sql: str | None
    query: dict[str, JsonValue] | None
    window: str | dict[str, str] | None
    sink: SinkRecord
    sink_problem: str | None = Field(
        description="Why results wait for the sink; null while it takes them."
    )
    input_problems: dict[str, str] = Field(
        description="Of its streams those that can't be read at present, and why."
    )
    priority: int
    created_at: AwareDatetime
    expires_at: AwareDatetime | None
    normalised: NormalisedInfo
    first_epoch: int | None
    last_epoch: int | None
    activated_batch: int | None
    expired_batch: int | None
    visible_from: dict[str, VisibleFrom] | None
    complete_from: str | None
    complete: str | None
    earlier: list[ActivationOut] = Field(
        description="Its activations before this one, oldest first."
    )
    results: int
    problem: ProblemOut | None
    failure: FailureOut | None


class QueryList(BaseModel):
    """A page of queries in order of registration; pass ``next_cursor`` as ``cursor``."""

    items: list[QueryOut]
    next_cursor: str | None


class EpochOut(EpochRecord):
    """A published epoch; ``first_batch`` is null until the runtime has started it."""

    first_batch: int | None
    footprint: dict[str, Any] | None = Field(default=None, exclude=True)


class ReadsOut(BaseModel):
    """What has been asked of a store, or of one of its indexes, over some time.

    Of ``probes`` tuples sent ``found`` have found a partner, ``matches`` partners in all. Summed
    over the tuples, of the store's segments ``by_batch``, ``by_partition`` and ``by_time`` were
    passed over, of ``filtered`` a filter said that the key is not there, ``looked`` were looked
    into. ``hit_rate`` is ``found`` per probe, ``read_amplification`` ``looked`` per probe,
    ``filtered_share`` of the segments asked, ``passed_share`` of all; null where there are none.
    """

    probes: int
    found: int
    matches: int
    by_batch: int
    by_partition: int
    by_time: int
    filtered: int
    looked: int
    hit_rate: float | None
    read_amplification: float | None
    filtered_share: float | None
    passed_share: float | None


class StoreStatisticsOut(BaseModel):
    """One store at the end of an epoch. ``keys``: key -> distinct values, at most; ``reads``: index
    -> what was asked of it in the epoch.
    """

    tuples: int
    bytes: int
    segments: int
    keys: dict[str, float]
    reads: dict[str, ReadsOut]


class EdgeStatisticsOut(BaseModel):
    """One edge during one epoch. Of ``pairs`` (probing tuple, stored tuple of an earlier batch)
    ``hits`` agree in their keys; ``matches`` are all that were found.
    """

    probes: int
    hits: int
    matches: int
    pairs: int
    nanoseconds: int


class StatisticsOut(BaseModel):
    """What was measured in one epoch; ``distinct``: relation -> key -> distinct values so far."""

    epoch: int
    batches: int
    streams: dict[str, StreamStatisticsOut]
    stores: dict[str, StoreStatisticsOut]
    edges: dict[str, EdgeStatisticsOut]
    distinct: dict[str, dict[str, float]]


class LevelOut(BaseModel):
    """The segments of a store that have been merged ``level`` times; ``bytes`` on disk."""

    level: int
    segments: int
    rows: int
    bytes: int


class IndexOut(BaseModel):
    """One index of a store: its rows that have the key, its bytes, those of its filters, and what
    has been asked of it since the store began.
    """

    key: str
    entries: int
    bytes: int
    filter_bytes: int
    life: ReadsOut


class StoreOut(BaseModel):
    """One store as of the newest batch that the runtime has told of; sizes are bytes on disk.

    ``batches`` are the runs of batches (first, last) of which it has all rows; ``growing``: the
    running epoch adds to it; ``expired_below``: per member, the event time in microseconds below
    which rows may be gone; ``ttl``: per member, its stream's in microseconds; ``backfill``: its
    past is being computed. ``disk_bytes`` is its share of the files that its segments lie in,
    ``space_amplification`` that over ``bytes``, ``write_amplification`` how often a byte that is
    stored has been written. ``reads`` is of the last epoch that ended (``probes`` and ``matches``
    are among it; null where that was not measured), ``life`` of all epochs since the store began,
    up to now.
    """

    store: str
    kind: str
    mir: str
    members: list[str]
    streams: list[str]
    filter: list[str]
    partition: str | None
    partitions: int
    batches: list[tuple[int, int]]
    growing: bool
    queries: list[str]
    rows: int
    bytes: int
    index_bytes: int
    segments: int
    levels: list[LevelOut]
    expired_below: list[int | None]
    ttl: list[int | None]
    backfill: bool
    probes: int | None
    matches: int | None
    disk_bytes: int
    space_amplification: float | None
    write_amplification: float | None
    reads: ReadsOut | None
    life: ReadsOut
    indexes: list[IndexOut]


class SegmentOut(BaseModel):
    """One segment: ``batches`` and ``event_time`` are first and last, least and greatest."""

    partition: int
    level: int
    rows: int
    bytes: int
    batches: tuple[int, int]
    event_time: tuple[int, int] | None


class ReaderOut(BaseModel):
    """An edge whose probes read a store: tuples of ``start`` that have come as far as ``edge`` says
    look ``mir`` up by ``key``. ``fill``: the store stands in for an intermediate result where that
    has gaps. ``statistics`` of the last epoch that ended, over all stores that the edge asks.
    """

    edge: str
    start: str | None
    mir: str | None
    key: list[str]
    queries: list[str]
    fill: bool
    statistics: EdgeStatisticsOut | None


class StoreEpochOut(BaseModel):
    """A store at the end of an epoch, and what was asked of it meanwhile."""

    epoch: int
    rows: int
    bytes: int
    segments: int
    reads: ReadsOut


class StoreDetailOut(StoreOut):
    """One store with its largest segments (``parts``, as of before ``parts_batch``; null where
    they have not been told of yet), who reads it, and its last epochs, oldest first.
    """

    next_batch: int
    parts_batch: int | None
    parts: list[SegmentOut]
    parts_omitted: int
    readers: list[ReaderOut]
    readers_omitted: int
    history: list[StoreEpochOut]


class StateOut(BaseModel):
    """What the stores hold. ``write_amplification`` is all that batches and merges have ever
    written over what batches have, ``space_amplification`` what files take over what lives in them.
    """

    next_batch: int
    epoch: int
    ruleset_epoch: int
    bytes: int
    packs: int
    disk_bytes: int
    space_amplification: float | None
    inserted_bytes: int
    merged_bytes: int
    write_amplification: float | None
    stores: list[StoreOut]


class TopValueOut(BaseModel):
    """A value that occurs more than once in a sample, and the share of tuples that have it."""

    value: JsonValue
    share: float


class ColumnSampleOut(BaseModel):
    """A column in a sample. ``quantiles``: the least value, the quartiles, the greatest. Dates are
    days, timestamps microseconds, decimals texts, binary is hexadecimal.
    """

    type: str
    nulls: float
    distinct: int
    top: list[TopValueOut]
    quantiles: list[JsonValue]


class SampleOut(BaseModel):
    """``size`` tuples drawn uniformly from the ``seen`` that a stream has brought."""

    stream: str
    seen: int
    size: int
    columns: dict[str, ColumnSampleOut]


class EpochSummary(BaseModel):
    """A line of the epochs' list."""

    epoch: int
    first_batch: int | None
    published_at: AwareDatetime
    optimizer: Optimizer
    objective: Objective
    parallelism: int
    queries: list[str]
    cost: float
    bound: float | None
    gap: float | None
    individual_cost: float | None
    shared_cost: float | None
    solve_ms: float
    method: str
    fallback: str
    switching_cost: float


class EpochList(BaseModel):
    """A page of epochs, newest first; pass ``next_cursor`` as ``cursor``."""

    items: list[EpochSummary]
    next_cursor: str | None


class RuntimeOut(BaseModel):
    """How far the runtime is, as far as the service relays it.

    ``state`` is the last that was heard of it; where there is no heartbeat that is ``stale``.
    ``backfill`` maps stores whose past is being computed to the part that is done.
    ``waiting_tuples`` (about) have arrived and were not read yet, of streams that the runtime reads
    itself; of these the next batch brings ``row_limit`` (null: any number). ``private_bytes`` is
    what the last batch's tasks took of memory for themselves, ``memory_limit`` what that should
    stay below (null: any number). ``unread_pieces`` maps streams to how many parts of their input
    could not be read, ``source_errors`` maps streams that can't be read at present to
    the reason.
    """

    state: str
    stale: bool
    committed: int
    epoch: int
    batch_seconds: float
    processing_seconds: float
    state_bytes: int
    input_tuples: int
    late_tuples: int
    ahead_tuples: int
    exhausted: bool
    error: str | None
    backfill: dict[str, float]
    waiting_tuples: int
    row_limit: int | None
    private_bytes: int
    memory_limit: int | None
    source_errors: dict[str, str]
    unread_pieces: dict[str, int]


class CurrentEpoch(BaseModel):
    """The epoch that the runtime is in, and the published one whose rules it goes by."""

    running: int
    epoch: EpochOut
    runtime: RuntimeOut | None


class SettingsOut(BaseModel):
    """Planning settings; ``mode`` and ``epoch_batches`` are fixed when the process starts."""

    optimizer: Optimizer
    objective: Objective
    parallelism: int
    switching: float
    memory: float | None
    copies: int | None
    solver: Solver
    backfill: Backfilling
    backfill_horizon: float
    mode: Literal["live", "step"]
    epoch_batches: int


class CostRangeOut(BaseModel):
    """A plan's cost if every assumed figure were a tenth or ten times the default."""

    low: float
    high: float


class DryRunOut(BaseModel):
    """The plan that would be made, how it differs from the latest published epoch's, and why.

    ``diff`` is null where there is nothing to compare with; ``diff_reason`` then says why.
    With ``detail`` ``summary``, ``explain`` and ``text`` hold totals only. ``estimated``: relations
    that nothing has been counted of yet -> their share of a sample of their stream.
    """

    optimizer: Optimizer
    objective: Objective
    parallelism: int
    queries: list[str]
    cost: float
    bound: float | None
    gap: float | None
    individual_cost: float | None
    shared_cost: float | None
    solve_ms: float
    method: str
    candidates: int
    variables: int
    constraints: int
    statistics_epoch: int | None
    cost_range: CostRangeOut
    assumed: list[str]
    estimated: dict[str, float]
    rejected: dict[str, ProblemOut]
    explain: dict[str, JsonValue]
    text: str
    fallback: str
    switching_cost: float
    switching: float
    memory: float | None
    copies: int | None
    formulation: Formulation
    solver: Solver
    deadline: float
    detail: Detail
    diff: DiffRecord | None
    diff_reason: str
    shares: SharesRecord | None
    reasons: ReasonsRecord | None


class LogicalPlanOut(BaseModel):
    """A logical plan: for people, as data, and as a graph (Graphviz)."""

    text: str
    data: dict[str, Any]
    dot: str


class MultiJoinOut(BaseModel):
    """A multi-way join of a converted plan: what it joins, and by which conditions."""

    inputs: list[str]
    predicates: list[str]
    residual: list[str]


class ExplainOut(BaseModel):
    """What a statement's joins become, and what the query would cost beside those that run.

    ``refused`` says why it can't run continuously; then there is no ``plan``. ``added_cost`` is the
    difference that it makes to what is registered.
    """

    sql: str
    before: LogicalPlanOut | None
    after: LogicalPlanOut | None
    multijoins: list[MultiJoinOut]
    refused: ProblemOut | None
    normalised: NormalisedInfo | None
    orders: list[dict[str, Any]]
    stores: list[dict[str, Any]]
    shared_with: list[str]
    added_cost: float | None
    plan: DryRunOut | None


class Health(BaseModel):
    """The process is up."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Whether requests are served and epochs planned; ``checks`` says what is missing."""

    status: Literal["ready"]
    checks: dict[str, str]


class FieldError(BaseModel):
    """One complaint about one input field; in a statement, where in it (both from 1)."""

    field: str
    code: str
    message: str
    line: int | None = None
    column: int | None = None


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[FieldError] | None = None
    remedy: str | None = None
