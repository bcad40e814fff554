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
from anabranch_contract.rest.queries import Dialect, MissedOut, Parameters, ProblemRecord, QueryIn
from anabranch_contract.rest.streams import RetentionIn

Detail = Literal["full", "summary"]


class ExplainIn(Closed):
    """A statement to be explained: any query, whether it can run continuously or not.

    Attributes:
        sql: the statement.
        window: window of all aliases, or alias -> its window: an alias's tuples join only tuples
            whose event time is at most this much later; null: no window.
        parameters: values of the statement's parameters (``:name``).
        detail: ``summary`` leaves out the joint plan with all queries, as in dry runs.
    """

    model_config = examples(
        {"sql": "SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin"}
    )

    sql: StatementText
    dialect: Dialect = "spark"
    window: Duration | dict[str, Duration] | None = None
    parameters: Parameters | None = None
    detail: Detail = "full"


class DryRunIn(AssumedSettings):
    """A plan to compute without publishing it.

    Attributes:
        add: queries to add to the registered ones.
        drop: names of registered queries to leave out.
        statistics: relation, or stream for all its relations -> number of tuples per unit of time
            to assume instead of the measured one.
        distinct: number of distinct values to assume for ``relation.column``, or for the
            combinations of ``relation.column,column``, instead of the measured one.
        selectivity: equality -> matches over the size of the cross product, to assume instead of
            the measured value.
        widths: bytes per tuple of a relation or stream; default: from its columns' types.
        retention: stream -> retention to assume; null: the stream has no retention limits.
        formulation: formulation of the integer program.
        deadline: seconds that the solver may take, at most the service's limit; 0: use the greedy
            plan, without the solver.
        detail: ``summary`` leaves out the plan itself and cuts long lists.
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
        default_factory=dict, examples=[{"orders.customer_id": 500}]
    )
    selectivity: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(
        default_factory=dict, examples=[{"orders.customer_id = customers.customer_id": 0.001}]
    )
    widths: dict[str, Positive] = Field(default_factory=dict)
    retention: dict[StreamName, RetentionIn | None] = Field(
        default_factory=dict, examples=[{"orders": {"ttl": "7 days"}}]
    )
    formulation: Formulation = Formulation.TIGHT
    deadline: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    detail: Detail = "full"


class CostRangeOut(Document):
    """Range of a plan's cost, if assumed figures are between a tenth and ten times their defaults.

    Attributes:
        low: least cost, in the unit of ``objective``.
        high: greatest cost, in the unit of ``objective``.
    """

    low: float
    high: float


class AheadRecord(Document):
    """Forecast of the arrivals in the next epoch, used to price a plan.

    Attributes:
        period: number of batches in the epoch, as a fraction of all batches so far (the history).
        arrivals: relation -> forecast number of tuples. Other relations have the mean rate so far.
        periods: number of measured periods on which the forecast is based.
    """

    period: float
    arrivals: dict[str, float]
    periods: int


class CostsRecord(Document):
    """The cost constants of a plan under the objective ``seconds``.

    Attributes:
        call: CPU seconds per call of a step.
        probe: CPU seconds per probing tuple.
        look: CPU seconds per segment that a probing tuple reads.
        match: CPU seconds per match.
        write: CPU seconds per write of a store.
        row: CPU seconds per stored row.
        merge: CPU seconds per merge of segments.
        rewrite: CPU seconds per row that a merge rewrites.
        derive: further CPU seconds per write of an intermediate result.
        calls: expected calls of each step, and writes of each store, in the next epoch.
        batches: number of batches so far, from which the number of merges is estimated.
        measurements: number of measured steps, inserts and merges to which the constants are
            fitted; 0: not fitted.
        error: sum of the fit's absolute errors over these, as a fraction of their CPU time.
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
    """Costs, lower bound and solver of a plan, whether published or not.

    Attributes:
        optimizer: method that chose probe orders and stores.
        objective: unit of costs: CPU seconds, tuples sent and rows written, or tuples sent
            (``paper``).
        parallelism: number of partitions per store.
        queries: runs of queries that the plan answers.
        cost: estimated cost per unit of time, in the unit of ``objective``.
        bound: proven lower bound of ``cost`` and ``switching_cost`` together; null: unknown.
        gap: distance of ``cost`` and ``switching_cost`` together from ``bound``, as a share of
            them; 0: proven optimal.
        individual_cost: total cost if each query had its own plan; null: not computed.
        shared_cost: total cost of each query's own plan if equal probe steps and store copies ran
            once; null: not computed.
        solve_ms: duration of the planning, in milliseconds.
        method: method that found the plan, such as ``highs`` or ``greedy``; several if parts of the
            plan were found by different methods.
        cpu: expected CPU time; null: fewer than two periods have been measured, or there is no plan
            to compare with.
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

    Attributes:
        query: name of the query.
        before: expected share of emitted results under the running plan; null for an added query.
        after: expected share of emitted results under the new plan; null for a dropped query.
        floor: completeness that the query requires; null: none.
        floor_broken: whether ``after`` is less than ``floor``.
    """

    query: str
    before: float | None
    after: float | None
    floor: float | None
    floor_broken: bool


class EffectsOut(Document):
    """Effects of a change of plan on queries with load shedding, the greatest loss first.

    Attributes:
        budget: CPU time that rationed probes may take, as a share of their time without rations.
        budget_after: the same time, as a share of the time that they would take without rations
            after the change.
        queries: effect on each query.
        omitted: number of queries omitted from the answer.
    """

    budget: float
    budget_after: float
    queries: list[EffectOut]
    omitted: int


class ExplainedPlan(PlanFigures):
    """A plan with its integer program's size, its statistics, and its difference from another.

    Attributes:
        candidates: number of candidate probe orders in the solved problem.
        variables: number of variables of the integer program.
        constraints: number of constraints of the integer program.
        statistics_epoch: epoch whose statistics were used; null: no measurements yet.
        assumed: relations for which a default cardinality was assumed, for lack of measurements.
        estimated: relation whose tuples have not been counted yet -> share of a sample of its
            stream that passes its filter.
        ahead: forecast of the next epoch's arrivals; null: costs use the mean rates so far.
        costs: cost constants of the objective ``seconds``; null under other objectives.
        fallback: empty, or why another optimiser than the chosen one made the plan.
        rejected: query that could not be planned -> the reason.
        explain: the plan: probe orders, steps and stores, as JSON.
        switching_cost: penalty for new steps and stores, in addition to ``cost`` and in its unit.
        shares: the queries' shares of the cost; null: not computed.
        diff: difference from another plan; null: see ``diff_reason``.
        diff_reason: reason why ``diff`` is null; else empty.
        reasons: savings by shared elements and by intermediate results; null: not computed.
        tables: prices of the maintained tables; null: not computed.
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
    """The plan of a dry run, and its difference from the newest published plan, with reasons.

    Attributes:
        cost_range: range of the cost if assumed figures are not equal to their defaults.
        text: the plan as text; with the detail ``summary`` one line.
        switching: penalty for a step or store copy that the running epoch lacks, as a fraction of
            its cost.
        memory: maximum bytes of all store copies; null: no limit.
        copies: maximum copies per store; null: no limit.
        intermediate_results: maximum number of intermediate results; null: no limit.
        formulation: formulation of the integer program.
        solver: solver of the integer program.
        deadline: seconds that the solver was allowed to take.
        detail: ``full``, or ``summary``: ``explain`` has totals only, and long lists are cut.
        effects: effects on completeness; null: no rations, or no query is added or dropped.
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
    effects: EffectsOut | None = None


class LogicalPlanOut(Document):
    """A logical plan in three forms.

    Attributes:
        text: the plan as indented text.
        data: the plan as JSON.
        dot: the plan as a graph in Graphviz's language.
    """

    text: str
    data: dict[str, Any]
    dot: str


class MultiJoinOut(Document):
    """A multi-way join made from binary joins by Two-Step Convert (TSC).

    Attributes:
        inputs: names of its inputs.
        predicates: its equalities, as text.
        residual: its other conditions, as text.
        replaces: the replaced nodes of the binary plan, each with the conversion rule that applied.
    """

    inputs: list[str]
    predicates: list[str]
    residual: list[str]
    replaces: list[str]


class ExplainOut(Document):
    """The plans of a statement, and its cost in a joint plan with the registered queries.

    Attributes:
        sql: the statement in Spark SQL.
        before: its plan with binary joins; of a refused statement only its joins.
        after: its plan with multi-way joins; of a refused statement only its joins.
        multijoins: the multi-way joins in ``after``.
        refused: reason why the statement can't run continuously; null: it can.
        normalised: normal form of the statement; null: it is refused.
        orders: its probe orders in the joint plan, with their steps; empty: it is refused.
        stores: the stores that these steps probe.
        shared_with: registered queries that use these stores, too.
        added_cost: cost that the statement would add to the registered queries' plan, in the unit
            of the objective; null: it is refused.
        plan: the joint plan with the statement; null: it is refused.
        table: the statement's maintained table, with the share of each query that reads it.
        missed: rows already read and not stored, which the query would miss.
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
    table: TableRecord | None = None
    missed: list[MissedOut] = Field(default=[])
