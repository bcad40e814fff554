"""What the service keeps in Redis. Every record is validated whenever it is read back."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from anabranch_planner.model import Stream, StreamName
from anabranch_planner.plan import Objective, Optimizer
from anabranch_planner.types import parse_type


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
    """A registered stream; ``lateness`` in microseconds, None: unbounded."""

    name: str
    columns: tuple[ColumnRecord, ...]
    event_time: str | None = None
    lateness: int | None = None
    source: SourceRecord = SourceRecord()

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
        )


class SinkRecord(Record):
    """Where results go."""

    type: Literal["parquet", "count"] = "parquet"


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


class NormalisedInfo(Record):
    """How the planner understood a query.

    Attributes:
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
    """What can be switched at run time; takes effect at the next planned epoch."""

    optimizer: Optimizer
    objective: Objective
    parallelism: int = Field(ge=1, le=1024)


class EpochRecord(Record):
    """One published epoch: what was decided, on what grounds, at what cost. Never changes.

    Attributes:
        statistics_epoch: the epoch whose statistics were used; None: nothing was measured yet.
        assumed: relations whose cardinality was unknown, so that the cost model assumed one.
        fallback: empty, or why the plan is not what the chosen optimiser would have given.
        rejected: queries that could not be planned for this epoch.
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
    fallback: str = ""
    rejected: dict[str, ProblemRecord] = Field(default_factory=dict)
    explain: dict[str, Any]
    ruleset_digest: str
