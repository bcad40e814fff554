"""What the service answers, as far as the client reads it; fields it does not know are kept."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all answers. A newer service may say more: that is kept, not refused."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def document(self) -> dict[str, Any]:
        """The answer as JSON, everything included."""
        return self.model_dump(mode="json")


class Column(Answer):
    """A column; ``type`` is one of Spark's simple type strings."""

    name: str
    type: str


class Retention(Answer):
    """Which of a stream's tuples are of use: those that are at most ``ttl`` (a duration) old, the
    ``latest`` of a key's columns; None: all.
    """

    ttl: str | None = None
    latest: list[str] | None = None


class UnreadPiece(Answer):
    """A part of a stream's input that could not be read; see ``docs/rest.md``."""

    source: str
    unit: str
    first: int | str
    last: int | str | None = None
    rows: int | None = None
    entries: int | None = None
    code: str
    reason: str
    batch: int


class Unread(Answer):
    """How many parts of a stream's input could not be read, and the newest of them."""

    pieces: int = 0
    last: list[UnreadPiece] = Field(default_factory=list)


class SourceStatus(Answer):
    """How a stream's source stands: ``not tried``, ``reading``, ``failed`` or ``stopped``."""

    state: str = "not tried"
    error: str | None = None
    since: str | None = None


class StreamInfo(Answer):
    """A registered stream; ``lateness`` is a duration or ``unbounded``.

    ``idle_timeout`` is a duration, or None where the stream may be silent for ever; ``retention``
    is None where neither age nor later tuples make a tuple useless; ``latest_since`` is the first
    batch whose tuples supersede others.
    """

    name: str
    columns: list[Column]
    event_time: str | None = None
    lateness: str | None = None
    idle_timeout: str | None = None
    keep_late: bool = False
    ahead_of_clock: str | None = None
    ahead_of_stream: str | None = None
    retention: Retention | None = None
    latest_since: int | None = None
    source: dict[str, Any] = Field(default_factory=dict)
    waiting_tuples: int | None = None
    waiting_seconds: float | None = None
    lost_entries: int | None = None
    source_error: str | None = None
    unread: Unread | None = None
    source_status: SourceStatus = SourceStatus()
    input_tuples: int | None = None
    late_tuples: int | None = None
    invalid_tuples: int | None = None
    ahead_tuples: int | None = None


class StreamStatistics(Answer):
    """What a stream did in one epoch; rates per second of wall time and of event time."""

    tuples: int
    late: int = 0
    invalid: int = 0
    ahead: int = 0
    tuples_per_second: float | None = None
    tuples_per_event_second: float | None = None
    delay_us: dict[str, int] = Field(default_factory=dict)


class StoreStatistics(Answer):
    """A store at the end of an epoch; ``keys``: key -> distinct values, at most."""

    tuples: int
    bytes: int
    segments: int
    keys: dict[str, float] = Field(default_factory=dict)


class EdgeStatistics(Answer):
    """An edge during one epoch."""

    probes: int
    hits: int
    matches: int
    pairs: int = 0
    nanoseconds: int


class EpochStatistics(Answer):
    """What was measured in one epoch."""

    epoch: int
    batches: int
    streams: dict[str, StreamStatistics] = Field(default_factory=dict)
    stores: dict[str, StoreStatistics] = Field(default_factory=dict)
    edges: dict[str, EdgeStatistics] = Field(default_factory=dict)
    distinct: dict[str, dict[str, float]] = Field(default_factory=dict)


class Level(Answer):
    """The segments of a store that have been merged ``level`` times."""

    level: int
    segments: int
    rows: int
    bytes: int


class Reads(Answer):
    """What has been asked of a store, or of one of its indexes, over some time.

    Of ``probes`` tuples sent, ``found`` have found a partner. Segments are summed over the tuples:
    those passed over for their batches, partition or time, those that a filter has excluded, those
    that were looked into. Ratios are None where nothing was asked.
    """

    probes: int = 0
    found: int = 0
    matches: int = 0
    by_batch: int = 0
    by_partition: int = 0
    by_time: int = 0
    filtered: int = 0
    looked: int = 0
    hit_rate: float | None = None
    read_amplification: float | None = None
    filtered_share: float | None = None
    passed_share: float | None = None


class Index(Answer):
    """An index of a store: rows that have its key, bytes, and what has been asked of it ever."""

    key: str
    entries: int
    bytes: int
    filter_bytes: int = 0
    life: Reads = Field(default_factory=Reads)


class Store(Answer):
    """What a store holds, and whom it serves; sizes are bytes on disk. ``reads`` (and ``probes``
    and ``matches``, which are among them) are of the last epoch that ended, None where they were
    not measured; ``life`` is of all epochs.
    """

    store: str
    kind: str
    mir: str
    members: list[str] = Field(default_factory=list)
    streams: list[str] = Field(default_factory=list)
    filter: list[str] = Field(default_factory=list)
    partition: str | None = None
    partitions: int = 1
    batches: list[tuple[int, int]] = Field(default_factory=list)
    growing: bool = False
    queries: list[str] = Field(default_factory=list)
    rows: int
    bytes: int
    index_bytes: int = 0
    segments: int
    levels: list[Level] = Field(default_factory=list)
    expired_below: list[int | None] = Field(default_factory=list)
    ttl: list[int | None] = Field(default_factory=list)
    backfill: bool = False
    probes: int | None = None
    matches: int | None = None
    disk_bytes: int = 0
    space_amplification: float | None = None
    write_amplification: float | None = None
    reads: Reads | None = None
    life: Reads = Field(default_factory=Reads)
    indexes: list[Index] = Field(default_factory=list)


class Segment(Answer):
    """A segment of a store: first and last batch, least and greatest event time (microseconds)."""

    partition: int
    level: int
    rows: int
    bytes: int
    batches: tuple[int, int]
    event_time: tuple[int, int] | None = None


class Reader(Answer):
    """An edge of the plan whose probes read a store."""

    edge: str
    start: str | None = None
    mir: str | None = None
    key: list[str] = Field(default_factory=list)
    queries: list[str] = Field(default_factory=list)
    fill: bool = False
    statistics: EdgeStatistics | None = None


class StoreEpoch(Answer):
    """A store at the end of an epoch, and what was asked of it meanwhile."""

    epoch: int
    rows: int
    bytes: int
    segments: int
    reads: Reads


class StoreDetail(Store):
    """A store with its largest segments, who reads it, and its last epochs, oldest first."""

    next_batch: int
    parts_batch: int | None = None
    parts: list[Segment] = Field(default_factory=list)
    parts_omitted: int = 0
    readers: list[Reader] = Field(default_factory=list)
    readers_omitted: int = 0
    history: list[StoreEpoch] = Field(default_factory=list)


class StoredState(Answer):
    """All stores, and what keeping them has cost in written bytes."""

    next_batch: int
    epoch: int
    ruleset_epoch: int
    bytes: int
    packs: int
    disk_bytes: int
    space_amplification: float | None = None
    inserted_bytes: int
    merged_bytes: int
    write_amplification: float | None = None
    stores: list[Store] = Field(default_factory=list)


class TopValue(Answer):
    """A value, and the share of a stream's tuples that have it."""

    value: Any = None
    share: float


class ColumnSample(Answer):
    """A column in a sample; ``quantiles`` are the least value, the quartiles, the greatest."""

    type: str
    nulls: float = 0.0
    distinct: int = 0
    top: list[TopValue] = Field(default_factory=list)
    quantiles: list[Any] = Field(default_factory=list)


class StreamSample(Answer):
    """``size`` tuples drawn from the ``seen`` that a stream has brought."""

    stream: str
    seen: int
    size: int
    columns: dict[str, ColumnSample] = Field(default_factory=dict)


class LogicalPlan(Answer):
    """A logical plan: for people, as data, and as a graph (Graphviz)."""

    text: str
    data: dict[str, Any] = Field(default_factory=dict)
    dot: str = ""


class MultiWayJoin(Answer):
    """What a multi-way join of a converted plan joins, and by which conditions."""

    inputs: list[str] = Field(default_factory=list)
    predicates: list[str] = Field(default_factory=list)
    residual: list[str] = Field(default_factory=list)


class ProblemInfo(Answer):
    """Why a query was rejected."""

    code: str = ""
    message: str = ""
    field: str = ""
    remedy: str = ""


class FailureInfo(Answer):
    """Why a query has failed while it ran, and in which batch."""

    code: str = ""
    message: str = ""
    expression: str = ""
    batch: int
    remedy: str = ""


class ViewInfo(Answer):
    """What stands above a query's joins; a change is of the row that ``identity`` names."""

    identity: list[str] = Field(default_factory=list)
    keys: list[str] = Field(default_factory=list)
    aggregates: list[str] = Field(default_factory=list)
    having: str | None = None
    order: list[str] = Field(default_factory=list)
    limit: int | None = None
    changes: list[Column] = Field(default_factory=list)


class OuterInfo(Answer):
    """An outer, semi or anti join above a query's joins."""

    kind: str
    partner: str
    left: list[str] = Field(default_factory=list)
    deadline: str


class ViewRows(Answer):
    """The rows of a view as of a version; None: nothing is known yet."""

    version: int | None = None
    total: int | None = None
    columns: list[str] = Field(default_factory=list)
    rows: list[dict[str, Any]] = Field(default_factory=list)


class NormalisedInfo(Answer):
    """How the planner understood a query."""

    output: list[Column] = Field(default_factory=list)
    view: ViewInfo | None = None
    outer: OuterInfo | None = None
    notes: list[str] = Field(default_factory=list)


class Bound(Answer):
    """A tuple of ``later`` is at most ``duration`` after one of ``earlier``."""

    earlier: str
    later: str
    micros: int
    duration: str


class Visible(Answer):
    """From when on stored tuples of an alias are visible."""

    batch: int
    event_time: str | None = None


class EndedActivation(Answer):
    """An activation that has ended because a stream's ttl changed the query's time bounds."""

    activated_batch: int
    expired_batch: int
    bounds: list[Bound] | None = None
    visible_from: dict[str, Visible] = Field(default_factory=dict)
    complete_from: str | None = None
    complete: str
    results: int


class QueryInfo(Answer):
    """A query, how it was understood, and how far it has come."""

    id: str
    status: str
    sql: str | None = None
    window: str | dict[str, str] | None = None
    expires_at: str | None = None
    normalised: NormalisedInfo = NormalisedInfo()
    activated_batch: int | None = None
    expired_batch: int | None = None
    complete_from: str | None = None
    complete: str | None = None
    earlier: list[EndedActivation] = Field(default_factory=list)
    results: int = 0
    sink: dict[str, Any] = Field(default_factory=dict)
    sink_problem: str | None = None
    input_problems: dict[str, str] = Field(default_factory=dict)
    problem: ProblemInfo | None = None
    failure: FailureInfo | None = None


class EpochSummary(Answer):
    """A line of the epochs' list."""

    epoch: int
    first_batch: int | None = None
    optimizer: str
    objective: str = ""
    parallelism: int | None = None
    queries: list[str] = Field(default_factory=list)
    cost: float
    individual_cost: float | None = None
    gap: float | None = None
    solve_ms: float | None = None
    method: str = ""
    fallback: str = ""
    switching_cost: float = 0.0


class CostShare(Answer):
    """What one query costs in a plan, by each method."""

    query: str
    standalone: float | None = None
    marginal: float
    shapley: float
    proportional: float | None = None
    part: float


class CostShares(Answer):
    """The shares of a plan's queries, dearest first; ``note`` says what is missing, and why."""

    queries: list[CostShare] = Field(default_factory=list)
    omitted: int = 0
    note: str = ""


class Change(Answer):
    """A step, or (with ``bytes``) a store copy; figures are per unit of time, None: unknown."""

    label: str
    tuples: float | None = None
    bytes: float | None = None
    cost: float | None = None


class StepChanges(Answer):
    """Steps that only the new plan has, only the old one, and both."""

    added: list[Change] = Field(default_factory=list)
    removed: list[Change] = Field(default_factory=list)
    kept: list[Change] = Field(default_factory=list)


class StoreChanges(Answer):
    """Store copies that only the new plan has, only the old one, and both."""

    built: list[Change] = Field(default_factory=list)
    dropped: list[Change] = Field(default_factory=list)
    retained: list[Change] = Field(default_factory=list)


class ChangeTotals(Answer):
    """How many changes of a kind there are, and what they add up to."""

    count: int
    tuples: float = 0.0
    bytes: float | None = None
    cost: float = 0.0


class PlanDiff(Answer):
    """How a plan differs from that of a published epoch."""

    epoch: int
    unchanged: bool
    cost_before: float | None = None
    cost_after: float
    totals: dict[str, ChangeTotals] = Field(default_factory=dict)
    steps: StepChanges = StepChanges()
    stores: StoreChanges = StoreChanges()
    omitted: int = 0
    notes: list[str] = Field(default_factory=list)


class SharedReason(Answer):
    """A step or store that is paid once for several queries."""

    kind: str
    label: str
    users: list[str] = Field(default_factory=list)
    cost: float
    saved: float


class KeptReason(Answer):
    """An intermediate result that is kept, and what the plan would cost more without it."""

    label: str
    users: list[str] = Field(default_factory=list)
    detours: float
    upkeep: float
    saved: float


class PlanReasons(Answer):
    """Why what a plan shares and keeps was worth it, greatest savings first."""

    shared: list[SharedReason] = Field(default_factory=list)
    kept: list[KeptReason] = Field(default_factory=list)
    omitted: int = 0


class Insight(Answer):
    """What is said about a plan besides the plan. ``diff_reason`` says why ``diff`` is None."""

    shares: CostShares | None = None
    diff: PlanDiff | None = None
    diff_reason: str = ""
    reasons: PlanReasons | None = None


class EpochInfo(EpochSummary, Insight):
    """A published epoch with its plan; ``explain`` is the plan's explanation as data."""

    explain: dict[str, Any] = Field(default_factory=dict)
    rejected: dict[str, ProblemInfo] = Field(default_factory=dict)


class CurrentEpoch(Answer):
    """The epoch that the runtime is in, and the published one whose rules it goes by."""

    running: int
    epoch: EpochInfo
    runtime: dict[str, Any] | None = None


class PlanningSettings(Answer):
    """What can be switched at run time; takes effect at the next planned epoch."""

    optimizer: str
    objective: str
    parallelism: int
    switching: float = 0.0
    memory: float | None = None
    copies: int | None = None
    solver: str = ""
    backfill: str = ""
    backfill_horizon: float | None = None
    mode: str = ""
    epoch_batches: int | None = None


class Explained(Answer):
    """What a statement's joins become, and what the query would cost beside those that run.

    ``refused`` says why it can't run; ``added_cost`` is what it adds to what is registered.
    """

    sql: str
    before: LogicalPlan | None = None
    after: LogicalPlan | None = None
    multijoins: list[MultiWayJoin] = Field(default_factory=list)
    refused: ProblemInfo | None = None
    normalised: NormalisedInfo | None = None
    orders: list[dict[str, Any]] = Field(default_factory=list)
    stores: list[dict[str, Any]] = Field(default_factory=list)
    shared_with: list[str] = Field(default_factory=list)
    added_cost: float | None = None
    plan: DryRun | None = None


class DryRun(Insight):
    """The plan that would be made, and how it differs from the latest published epoch's."""

    optimizer: str
    queries: list[str] = Field(default_factory=list)
    cost: float
    individual_cost: float | None = None
    shared_cost: float | None = None
    bound: float | None = None
    gap: float | None = None
    solve_ms: float | None = None
    method: str = ""
    fallback: str = ""
    switching_cost: float = 0.0
    rejected: dict[str, ProblemInfo] = Field(default_factory=dict)
    explain: dict[str, Any] = Field(default_factory=dict)
    text: str = ""


class Who(Answer):
    """Who the caller is; ``token`` is the token's id, None without one."""

    token: str | None
    name: str
    role: str
    required: bool


class TokenInfo(Answer):
    """A token without its secret; times are ISO 8601."""

    id: str
    name: str
    role: str
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None
    last_used_at: str | None = None
    usable: bool


class NewToken(TokenInfo):
    """A token that was just created, with its secret."""

    token: str


class AuditEntry(Answer):
    """One request that changed something, or was refused."""

    at: str
    kind: str
    token: str
    name: str
    role: str
    client: str
    method: str
    route: str
    target: str
    status: int
    request: str
