"""Bodies of dry runs and explanations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Solver
from anabranch_contract.rest.documents import (
    Closed,
    Document,
    Duration,
    Open,
    Positive,
    QueryName,
    StatementText,
    StreamName,
    examples,
)
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.planning.insight import DiffRecord, ReasonsRecord, SharesRecord
from anabranch_contract.rest.planning.settings import AssumedSettings
from anabranch_contract.rest.queries import Dialect, MissedOut, ProblemRecord, QueryIn
from anabranch_contract.rest.streams import RetentionIn

Detail = Literal["full", "summary"]


class ExplainIn(Closed):
    """A statement to be explained: any query, whether it can run continuously or not."""

    model_config = examples(
        {"sql": "SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin"}
    )

    sql: StatementText
    dialect: Dialect = "spark"
    window: Duration | dict[str, Duration] | None = None


class DryRunIn(AssumedSettings):
    """A plan to compute without publishing it.

    Queries in ``add`` are added to the registered ones, queries in ``drop`` removed. ``statistics``
    maps relations (or streams, meaning all their relations) to cardinalities and overrides
    measurements; so do ``distinct`` and ``selectivity``.
    """

    model_config = examples(
        {
            "add": [
                {
                    "id": "calm",
                    "sql": "SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin "
                    "WHERE w.wind < 5",
                }
            ],
            "statistics": {"flights": 50000},
            "detail": "summary",
        }
    )

    add: list[QueryIn] = Field(default=[], max_length=1000)
    drop: list[QueryName] = Field(default=[])
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
    formulation: Formulation = Field(
        default=Formulation.TIGHT, description="Formulation of the integer program."
    )
    deadline: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Seconds for a solve, at most the service's own limit; 0: no solving at all.",
    )
    detail: Detail = Field(
        default="full",
        description="`summary` leaves out the plan itself and cuts long lists.",
    )


class CostRangeOut(Document):
    """A plan's cost if every assumed figure were a tenth or ten times the default."""

    low: float
    high: float


class AheadRecord(Document):
    """Forecast of the next period, by which a plan is priced.

    Attributes:
        period: its length, in units of the history: an epoch's batches over all so far.
        arrivals: relation -> forecast tuples. Other relations keep the history's rate.
        periods: number of measured periods behind the forecast.
    """

    period: float
    arrivals: dict[str, float]
    periods: int


class CostsRecord(Document):
    """The cost constants of a plan under the objective ``seconds``.

    Attributes:
        call, probe, look, match, write, row, merge, rewrite: CPU seconds per call of a step,
            probing tuple, segment that one looks into, match, write of a store, stored row, merge
            of segments, and row that a merge rewrites.
        calls: calls of each step in the next epoch, and writes of each store.
        batches: of the history, by which merges are reckoned.
        measurements: to how many measurements of steps, inserts and merges they were fitted; 0:
            none.
        error: the sum of absolute errors over these, as a share of their CPU time.
    """

    call: float
    probe: float
    look: float
    match: float
    write: float
    row: float
    merge: float
    rewrite: float
    calls: float
    batches: float
    measurements: int
    error: float | None


class CpuRecord(Document):
    """CPU seconds that steps and stores are expected to take in the next epoch, whatever objective
    has chosen them.

    Attributes:
        plan: of the plan. ``individual``: of a plan of each query alone, by the same optimiser's
            objective, together.
    """

    plan: float
    individual: float


class PlanFigures(Document):
    """The figures of every plan, published or not.

    ``cpu`` is null until two periods have been measured, and where nothing is compared.
    """

    optimizer: Open[Optimizer]
    objective: Open[Objective]
    parallelism: int
    queries: list[str]
    cost: float
    bound: float | None
    gap: float | None
    individual_cost: float | None
    shared_cost: float | None
    solve_ms: float
    method: str
    cpu: CpuRecord | None = None


class EffectOut(Document):
    """Expected completeness of a query's results before and after a change of plan.

    ``before`` is null for an added query, ``after`` for a dropped one. ``floor`` is the required
    completeness (null: none is set), ``floor_broken`` whether ``after`` is less.
    """

    query: str
    before: float | None
    after: float | None
    floor: float | None
    floor_broken: bool


class EffectsOut(Document):
    """Effects of a change of plan on the queries that may be rationed, greatest loss first.

    ``budget`` is the present share of rationed probes' CPU time, ``budget_after`` the share that
    the same time is of their CPU time after the change. ``omitted``: number of queries left out to
    bound the answer.
    """

    budget: float
    budget_after: float
    queries: list[EffectOut]
    omitted: int


class ExplainedPlan(PlanFigures):
    """A plan with its search, its reasons and its differences from another one.

    ``statistics_epoch``: whose statistics were used; null: no measurements yet. ``assumed``:
    relations of unknown cardinality, so that the cost model assumed one. ``estimated``: relations
    that nothing has been counted of yet -> their share of a sample of their stream. ``ahead``: the
    forecast of the next period; null: costs are of all history. ``costs``: the cost constants of
    the objective ``seconds``; null under the others. ``fallback``: empty, or why the chosen
    optimiser did not make the plan. ``switching_cost``: the penalty for new steps and stores, in
    addition to ``cost``; ``bound`` and ``gap`` are of both together. ``diff`` is null if there is
    nothing to compare with; ``diff_reason`` then says why.
    """

    candidates: int
    variables: int
    constraints: int
    statistics_epoch: int | None
    assumed: list[str]
    estimated: dict[str, float] = Field(default_factory=dict)
    ahead: AheadRecord | None = None
    costs: CostsRecord | None = None
    fallback: str = ""
    rejected: dict[str, ProblemRecord] = Field(default_factory=dict)
    explain: dict[str, Any]
    switching_cost: float = 0.0
    shares: SharesRecord | None = None
    diff: DiffRecord | None = None
    diff_reason: str = ""
    reasons: ReasonsRecord | None = None


class DryRunOut(ExplainedPlan):
    """The plan that would be made, how it differs from the latest published epoch's, and why.

    With ``detail`` ``summary``, ``explain`` and ``text`` hold totals only.
    """

    cost_range: CostRangeOut
    text: str
    switching: float
    memory: float | None
    copies: int | None
    intermediate_results: int | None
    formulation: Open[Formulation]
    solver: Open[Solver]
    deadline: float
    detail: Open[Detail]
    effects: EffectsOut | None = Field(
        default=None,
        description="Null where probes are not rationed, or nothing would be added or dropped.",
    )


class LogicalPlanOut(Document):
    """A logical plan: for people, as data, and as a graph (Graphviz)."""

    text: str
    data: dict[str, Any]
    dot: str


class MultiJoinOut(Document):
    """A multi-way join of a converted plan: its inputs, equalities and other conditions, and the
    nodes that it replaces, each with the rule of TSC that made it a member of the group.
    """

    inputs: list[str]
    predicates: list[str]
    residual: list[str]
    replaces: list[str]


class ExplainOut(Document):
    """The plans of a statement, and its additional cost as a query.

    ``refused`` says why it can't run continuously; then there is no ``plan``, and ``before`` and
    ``after`` cover only its joins. ``added_cost`` is the cost that it adds to the registered
    queries.
    """

    sql: str
    before: LogicalPlanOut
    after: LogicalPlanOut
    multijoins: list[MultiJoinOut]
    refused: ProblemRecord | None
    normalised: NormalisedInfo | None
    orders: list[dict[str, Any]]
    stores: list[dict[str, Any]]
    shared_with: list[str]
    added_cost: float | None
    plan: DryRunOut | None
    missed: list[MissedOut] = Field(
        default=[], description="Rows that were read and that it would not see."
    )
