"""REST bodies of dry runs and of explained statements."""

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
from anabranch_contract.rest.planning.insight import (
    DiffRecord,
    ReasonsRecord,
    SharesRecord,
    TableRecord,
    TablesRecord,
)
from anabranch_contract.rest.planning.settings import AssumedSettings
from anabranch_contract.rest.queries import (
    Dialect,
    MissedOut,
    Parameters,
    ProblemRecord,
    QueryIn,
)
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
    parameters: Parameters | None = Field(
        default=None, description="Values of the statement's parameters (`:name`)."
    )


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
                    "name": "calm",
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
        description="Bytes per tuple of a relation or stream; default: from its columns' types.",
    )
    retention: dict[StreamName, RetentionIn | None] = Field(
        default_factory=dict,
        description="Retention to assume, by stream; null: the stream has no retention limits.",
        examples=[{"orders": {"ttl": "7 days"}}],
    )
    formulation: Formulation = Field(
        default=Formulation.TIGHT, description="Formulation of the integer program."
    )
    deadline: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Seconds that the solver may take, at most the service's limit; 0: use the "
        "greedy plan, without the solver.",
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
    """Forecast of the arrivals in the next epoch, used to price a plan.

    Attributes:
        period: batches per epoch, as a share of all batches so far (the history).
        arrivals: relation -> forecast number of tuples. Others keep their mean rate so far.
        periods: number of measured periods that the forecast is based on.
    """

    period: float
    arrivals: dict[str, float]
    periods: int


class CostsRecord(Document):
    """The cost constants of a plan under the objective ``seconds``.

    Attributes:
        call, probe, look, match, write, row, merge, rewrite: CPU seconds per call of a step, per
            probing tuple, per segment that it reads, per match, per write of a store, per stored
            row, per merge of segments, and per row that a merge rewrites.
        derive: further CPU seconds per write of an intermediate result.
        calls: expected calls of each step, and writes of each store, in the next epoch.
        batches: number of batches so far, from which the number of merges is estimated.
        measurements: number of measured steps, inserts and merges that the constants are fitted
            to; 0: not fitted.
        error: sum of the fit's absolute errors over these, as a share of their CPU time.
    """

    call: float
    probe: float
    look: float
    match: float
    write: float
    row: float
    merge: float
    rewrite: float
    derive: float = 0.0
    calls: float
    batches: float
    measurements: int
    error: float | None


class CpuRecord(Document):
    """Expected CPU seconds of all steps and stores in the next epoch, under any objective.

    Attributes:
        plan: CPU seconds of the joint plan.
        individual: CPU seconds in total, if each query had its own plan, under the same objective.
    """

    plan: float
    individual: float


class PlanFigures(Document):
    """Costs, lower bound and solver of a plan, published or not.

    ``cpu`` is null until two periods have been measured, and without a plan to compare with.
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

    ``budget`` is the CPU time that rationed probes may take, as a share of what they would take
    without rations; ``budget_after`` is the same time as a share of what they would take after the
    change. ``omitted``: number of queries left out of the answer.
    """

    budget: float
    budget_after: float
    queries: list[EffectOut]
    omitted: int


class ExplainedPlan(PlanFigures):
    """A plan with the size of its integer program, its statistics, and its difference from another.

    ``statistics_epoch``: epoch whose statistics were used; null: no measurements yet. ``assumed``:
    relations with a default cardinality, for lack of measurements. ``estimated``: relations not
    counted yet -> share of a sample of their stream that passes their filter. ``ahead``: forecast
    of the next epoch's arrivals; null: costs use the mean rates so far. ``costs``: cost constants
    of the objective ``seconds``; null under others. ``fallback``: empty, or why another optimiser
    than the chosen one made the plan. ``switching_cost``: penalty for new steps and stores, in
    addition to ``cost``; ``bound`` and ``gap`` are of the sum. ``diff_reason``: why ``diff`` is
    null. ``tables``: prices of the maintained tables; null: not computed.
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
    tables: TablesRecord | None = None


class DryRunOut(ExplainedPlan):
    """The plan of a dry run, and its difference from the newest published epoch's, with reasons.

    With the detail ``summary``, ``explain`` and ``text`` hold totals only.
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
        description="Effects on completeness; null: no rations, or no query added or dropped.",
    )


class LogicalPlanOut(Document):
    """A logical plan as text, as JSON, and as a graph in Graphviz's language."""

    text: str
    data: dict[str, Any]
    dot: str


class MultiJoinOut(Document):
    """A multi-way join made by Two-Step Convert (TSC): its inputs, equalities and other conditions,
    and the replaced nodes of the binary plan, each with the conversion rule that applied.
    """

    inputs: list[str]
    predicates: list[str]
    residual: list[str]
    replaces: list[str]


class ExplainOut(Document):
    """The plans of a statement with binary joins (``before``) and multi-way joins (``after``), and
    the cost ``added_cost`` that it would add to the registered queries.

    ``refused`` says why it can't run continuously; then ``plan`` is null, and ``before`` and
    ``after`` cover only its joins.
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
    table: TableRecord | None = Field(
        default=None, description="Its maintained table, with the share of each of its queries."
    )
    missed: list[MissedOut] = Field(
        default=[], description="Rows already read and not stored, which it would miss."
    )
