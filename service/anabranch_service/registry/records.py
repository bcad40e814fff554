"""What the service keeps in Redis. Every record is validated whenever it is read back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.plans.backfill import DEFAULT_HORIZON, Backfilling
from anabranch_planner.solvers.interface import Solver

SinkOption = Annotated[str, Field(max_length=10_000)]


class Record(BaseModel):
    """Base of all stored records: immutable, strict about unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ColumnRecord(Record):
    """One column of a stream; ``type`` is one of Spark's simple type strings, normalised."""

    name: str
    type: str


class SourceRecord(Record):
    """Where a stream's tuples come from. The service hands it to the runtime as it is."""

    format: str = "recorded"
    path: str | None = None
    options: dict[str, str] = Field(default_factory=dict)
    rows_per_batch: int | None = None


class StreamRecord(Record):
    """A registered stream; ``lateness`` in microseconds, None: unbounded.

    Attributes:
        idle_timeout: microseconds of silence after which the watermark moves with the others';
            None: never.
        keep_late: whether late, invalid and ahead tuples are kept aside.
        ttl: microseconds that bound what its tuples join with, in every query; None: nothing.
        latest: key columns: only the latest of the tuples that agree in them are of use; none: all
            are. Absent from records of earlier releases.
        ahead_of_clock, ahead_of_stream: microseconds by which an event time may exceed the clock
            (live) and the stream's event times; None: any number. Absent from records of earlier
            releases, whose streams go on without.
        registration: tells a stream from one of the same name and definition that was deleted
            before; empty in records of earlier releases.
        reading: how Spark reads the source (``contract.connectors.spark_source``); None where the
            runtime reads it itself, and in records of earlier releases until they are renewed.
    """

    name: str
    columns: tuple[ColumnRecord, ...]
    event_time: str | None = None
    lateness: int | None = None
    idle_timeout: int | None = None
    keep_late: bool = False
    ttl: int | None = None
    latest: tuple[str, ...] = ()
    ahead_of_clock: int | None = None
    ahead_of_stream: int | None = None
    source: SourceRecord = SourceRecord()
    registration: str = ""
    reading: dict[str, Any] | None = None

    def same_definition(self, other: StreamRecord) -> bool:
        """Whether both say the same of the stream, whenever they were registered.

        What a record of an earlier release does not know is no difference.
        """
        unknown = {"ahead_of_clock", "ahead_of_stream"} - other.model_fields_set
        same = {name: getattr(other, name) for name in ("registration", "reading", *unknown)}
        return self.model_copy(update=same) == other

    def to_stream(self) -> Stream:
        """The planner's view of the stream.

        Raises:
            PlannerError: the definition can't be used.
        """
        return Stream(
            StreamName(self.name),
            tuple((c.name, parse_type(c.type)) for c in self.columns),
            self.event_time,
            self.lateness,
            self.idle_timeout,
            self.keep_late,
            self.ttl,
            self.latest,
            self.ahead_of_clock,
            self.ahead_of_stream,
        )


class SinkRecord(Record):
    """Where results go (``docs/sinks.md``).

    Records and requests of earlier releases call the format ``type``.
    """

    format: str = Field(
        default="parquet",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.$-]{0,127}$",
        description="`parquet`, `count`, `redis-stream`, or a format that Spark can write.",
        examples=["json"],
    )
    options: dict[str, SinkOption] = Field(default_factory=dict, max_length=100)
    path: str | None = Field(default=None, min_length=1, max_length=4096)
    mode: Literal["append"] = "append"

    @model_validator(mode="before")
    @classmethod
    def _type_is_format(cls, value: Any) -> Any:
        if isinstance(value, dict) and "type" in value and "format" not in value:
            return {"format" if k == "type" else k: v for k, v in value.items()}
        return value

    def to_sink(self) -> SinkSpec:
        """The planner's view of it."""
        options = tuple(sorted(self.options.items()))
        return SinkSpec(self.format, options, self.path, self.mode)


class ProblemRecord(Record):
    """Why a query was rejected."""

    code: str
    message: str
    field: str = ""
    remedy: str = ""


class AliasInfo(Record):
    """One alias of a normalised query."""

    alias: str
    stream: str
    relation: str
    label: str
    filter: tuple[str, ...] = ()


class ClassInfo(Record):
    """Attributes (``alias.attribute``) that the query's equi-joins make equal."""

    type: str
    members: tuple[str, ...]


class BoundInfo(Record):
    """``tau(later) - tau(earlier)`` is at most ``micros``; ``duration`` says the same in words."""

    earlier: str
    later: str
    micros: int
    duration: str


class OutputInfo(Record):
    """One column of a query's results."""

    name: str
    type: str


class ViewInfo(Record):
    """What stands above a query's joins.

    Attributes:
        identity: the columns of a change that tell which row of the view it is of; empty: there is
            one row.
        joined: the columns of the joined rows, and what they are.
        keys, aggregates: what is grouped by, what is aggregated; empty where joined rows are
            ranked.
        changes: all columns of a change.
    """

    identity: tuple[str, ...]
    joined: tuple[str, ...]
    keys: tuple[str, ...]
    aggregates: tuple[str, ...]
    having: str | None = None
    order: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0
    changes: tuple[OutputInfo, ...]


class OuterInfo(Record):
    """An outer, semi or anti join above a query's joins.

    Attributes:
        kind: ``left``, ``semi`` or ``anti``.
        partner: the alias of the right side.
        left: what tells left rows apart.
        deadline: until when a partner may come, in terms of event times.
    """

    kind: str
    partner: str
    left: tuple[str, ...]
    deadline: str


class NormalisedInfo(Record):
    """How the planner understood a query.

    Attributes:
        view: what stands above the joins; ``output`` are its columns then. Absent in records of
            earlier releases.
        outer: the outer, semi or anti join above them; likewise.
        bounds: the finite entries of the closed difference matrix.
        unbounded: aliases whose tuples have to be kept for ever.
        notes: what the user may not have expected, in sentences.
    """

    aliases: tuple[AliasInfo, ...]
    classes: tuple[ClassInfo, ...]
    bounds: tuple[BoundInfo, ...]
    unbounded: tuple[str, ...]
    residuals: tuple[str, ...]
    output: tuple[OutputInfo, ...]
    view: ViewInfo | None = None
    outer: OuterInfo | None = None
    notes: tuple[str, ...] = ()


class QueryRecord(Record):
    """A registered query.

    Attributes:
        sequence: order of registration; unique.
        sql, query: exactly one is given: the statement, or the structured document.
        window: a duration for all aliases, or alias -> duration.
        priority: of use where input has to be rationed; greater is more important.
        removed_at: when its removal was asked for.
        rejected: set when it could not be planned.
        first_epoch, last_epoch: the published epochs it is part of (inclusive).
        relaxed: alias -> the filter (expressions) of the store that it shares with queries that
            want more; decided when it was registered. Absent in records of earlier releases.
    """

    id: str
    sequence: int
    created_at: AwareDatetime
    sql: str | None = None
    query: dict[str, Any] | None = None
    window: str | dict[str, str] | None = None
    expires_at: AwareDatetime | None = None
    sink: SinkRecord = SinkRecord()
    priority: int = 0
    normalised: NormalisedInfo
    relaxed: dict[str, list[dict[str, Any]]] = {}
    removed_at: AwareDatetime | None = None
    rejected: ProblemRecord | None = None
    first_epoch: int | None = None
    last_epoch: int | None = None

    def wanted(self, now: datetime) -> bool:
        """Whether the query should be part of an epoch that is planned now."""
        return (
            self.removed_at is None
            and self.rejected is None
            and self.last_epoch is None
            and (self.expires_at is None or now < self.expires_at)
        )


class PlanningRecord(Record):
    """What can be switched at run time; takes effect at the next planned epoch.

    Attributes:
        switching: what a step or store copy that the running epoch does not have is charged,
            as a part of its cost per unit of time; 0 ignores the running epoch. The default, a
            tenth, is about how well figures of the last epoch predict those of the next, so
            smaller gains are not worth a rewired epoch.
        memory: bytes that all store copies together may take in per unit of time; None: any.
        copies: of any one store; None: any number.
        solver: of the joint plan.
        backfill: who decides whether the past of a new intermediate result is computed.
        backfill_horizon: for how long a plan is expected to use it, as multiples of the history
            so far (``plans.backfill``).
    """

    optimizer: Optimizer
    objective: Objective
    parallelism: int = Field(ge=1, le=1024)
    switching: float = Field(default=0.1, ge=0, le=1000)
    memory: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    copies: int | None = Field(default=None, ge=1, le=1024)
    solver: Solver = Solver.BRANCH
    backfill: Backfilling = Backfilling.AUTO
    backfill_horizon: float = Field(default=DEFAULT_HORIZON, ge=0, le=1e6)


class ShareRecord(Record):
    """What one query costs in a plan, by each method (``docs/what-if.md``).

    Attributes:
        standalone: its own optimum, planned alone; None where that is unknown.
        marginal: what the plan costs less without what only this query needs.
        shapley: every step's and store's cost split equally among those that need it.
        proportional: the plan's cost in the ratio of ``standalone``.
        part: what the plan would cost for this query alone.
    """

    query: str
    standalone: float | None
    marginal: float
    shapley: float
    proportional: float | None
    part: float


class SharesRecord(Record):
    """The cost shares of a plan's queries, dearest (``shapley``) first.

    Attributes:
        omitted: queries that are left out to bound the answer.
        note: empty, or why something is missing.
    """

    queries: tuple[ShareRecord, ...]
    omitted: int = 0
    note: str = ""


class TotalsRecord(Record):
    """How many entries there are, and what they add up to per unit of time."""

    count: int
    tuples: float
    cost: float
    bytes: float | None = None


class StepChangeRecord(Record):
    """A step; ``tuples`` are sent per unit of time. None: it can't be estimated any more."""

    label: str
    tuples: float | None
    cost: float | None


class StoreChangeRecord(Record):
    """A store copy; ``tuples`` and ``bytes`` flow into it per unit of time."""

    label: str
    tuples: float | None
    bytes: float | None
    cost: float | None


class StepChangesRecord(Record):
    """Steps that only the new plan has, only the old one, and both."""

    added: tuple[StepChangeRecord, ...]
    removed: tuple[StepChangeRecord, ...]
    kept: tuple[StepChangeRecord, ...]


class StoreChangesRecord(Record):
    """Store copies that only the new plan has, only the old one, and both."""

    built: tuple[StoreChangeRecord, ...]
    dropped: tuple[StoreChangeRecord, ...]
    retained: tuple[StoreChangeRecord, ...]


class DiffRecord(Record):
    """How a plan differs from a published epoch's, both priced by the same statistics.

    Attributes:
        epoch: the published epoch.
        cost_before: what its plan would cost now; None if that can't be estimated any more.
        totals: of all entries of each kind.
        omitted: entries that are left out to bound the answer.
    """

    epoch: int
    unchanged: bool
    cost_before: float | None
    cost_after: float
    totals: dict[str, TotalsRecord]
    steps: StepChangesRecord
    stores: StoreChangesRecord
    omitted: int
    notes: tuple[str, ...]


class SharedReasonRecord(Record):
    """A step or store that is paid once for several; ``saved`` is cost x (users - 1)."""

    kind: Literal["step", "store"]
    label: str
    users: tuple[str, ...]
    cost: float
    saved: float


class KeptReasonRecord(Record):
    """An intermediate result; ``saved`` is ``detours`` (probes without it) minus ``upkeep``."""

    mir: str
    label: str
    users: tuple[str, ...]
    detours: float
    upkeep: float
    saved: float


class ReasonTotalsRecord(Record):
    """How much is shared and kept in all."""

    shared: int
    saved_by_sharing: float
    kept: int


class ReasonsRecord(Record):
    """Why what is shared and kept was worth it, greatest savings first."""

    shared: tuple[SharedReasonRecord, ...]
    kept: tuple[KeptReasonRecord, ...]
    totals: ReasonTotalsRecord
    omitted: int


class EpochRecord(Record):
    """One published epoch: what was decided, on what grounds, at what cost. Never changes.

    Attributes:
        statistics_epoch: the epoch whose statistics were used; None: nothing was measured yet.
        assumed: relations whose cardinality was unknown, so that the cost model assumed one.
        estimated: relations that were new, so that their share of a sample of their stream was
            taken -> that share. Absent from records of earlier releases.
        fallback: empty, or why the plan is not what the chosen optimiser would have given.
        rejected: queries that could not be planned for this epoch.
        switching_cost: what changing to this plan from the epoch before was charged, beside
            ``cost``; ``bound`` and ``gap`` are of both together.
        footprint: the plan's steps and stores, for comparison with later plans; None in epochs
            that an older version published.
        shares, diff, reasons: who costs what, what changes against the epoch published before,
            and why. ``diff_reason`` says why ``diff`` is None.
    """

    epoch: int
    published_at: AwareDatetime
    optimizer: Optimizer
    objective: Objective
    parallelism: int
    queries: tuple[str, ...]
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
    assumed: tuple[str, ...]
    estimated: dict[str, float] = Field(default_factory=dict)
    fallback: str = ""
    rejected: dict[str, ProblemRecord] = Field(default_factory=dict)
    explain: dict[str, Any]
    ruleset_digest: str
    switching_cost: float = 0.0
    footprint: dict[str, Any] | None = None
    shares: SharesRecord | None = None
    diff: DiffRecord | None = None
    diff_reason: str = ""
    reasons: ReasonsRecord | None = None
