"""The optimisers as passes over one problem: queries to graph, graph to routes, routes to plan.

* ``clash``: one integer program over all queries, split into components that can share nothing.
* ``individual``: each query's own optimum; nothing is shared, and every element has an owner.
* ``shared``: each query's own optimum; then equal prefixes are merged, and so are equal copies,
  without new choices.
* ``dppick``: each query's orders by dpPick (:mod:`~anabranch_planner.search.dppick`); nothing is
  shared, and there are no intermediate results.

All plans are priced by the same rules, so their costs are ``clash <= shared <= individual <=
dppick`` if the integer program is solved to optimality. Every shortcut (a cap, a time limit) is
named in ``Plan.method``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Plan, Solver
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.mirs import is_connected
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.assemble import Reused, gap, make_plan
from anabranch_planner.search.building.builder import Builder
from anabranch_planner.search.demands import Limits, Switching, demand
from anabranch_planner.search.dppick import pick_orders
from anabranch_planner.search.general import solve_as_printed
from anabranch_planner.search.outcome import Outcome, SolveSettings
from anabranch_planner.search.problem import PlanProblem
from anabranch_planner.search.routes import Routing
from anabranch_planner.search.warm_start import complete, running_routes
from anabranch_planner.skew.excluded import set_aside
from anabranch_planner.skew.start_orders import Starts
from anabranch_planner.skew.substreams import choose
from anabranch_planner.solvers.deadline import Deadline

#: Maximum number of flow variables for which the integer program is built.
MAX_FLOWS = 150_000
#: Share of the time limit for the joint program; the rest is for the plans of single queries.
JOINT_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a joint plan's optimiser.

    Attributes:
        optimizer: one of the optimisers of this module.
        objective: the unit of cost; determines whether inserts into store copies are charged.
        formulation: the integer program for all queries together (single queries are always
            solved by the tight one).
        solver: the solver of the integer program for all queries together.
        parallelism: partitions per store; a broadcast multiplies a step's cost by it.
        mir: whether intermediate results may be kept.
        partitioning: False ignores partition attributes: every step costs one probe.
        deadline: time limit, after which the best plan so far is returned; the time per phase is
            added to ``deadline.spent``.
        seed: seed of the solver's tie-breaking.
        threads: maximum number of threads of the solver.
        max_flows: number of flow variables above which local search replaces the integer program.
        substreams: maximum number of substreams (groups of key values with their own probe orders)
            per relation (:mod:`~anabranch_planner.skew.substreams`). Only for tight ``clash``.
        told_apart: the substreams of the running plan; they stay unless others save much more.
        look_ahead: whether revisions get filters that drop tuples without a later match
            (:mod:`~anabranch_planner.plans.look_ahead`); a plan does not depend on it.
        limits, switching: constraints and charges of the joint plan, see
            :mod:`anabranch_planner.search.demands`; the other optimisers ignore both.
    """

    optimizer: Optimizer = Optimizer.CLASH
    objective: Objective = Objective.TUPLES
    formulation: Formulation = Formulation.TIGHT
    solver: Solver = Solver.BRANCH
    parallelism: int = 1
    mir: bool = True
    partitioning: bool = True
    deadline: Deadline = field(default_factory=Deadline)
    seed: int = 0
    threads: int = 1
    max_flows: int = MAX_FLOWS
    substreams: int = 1
    told_apart: tuple[Substreams, ...] = ()
    look_ahead: bool = False
    limits: Limits | None = None
    switching: Switching | None = None

    @property
    def keeps_mirs(self) -> bool:
        """Whether plans may store intermediate results. A limit above 0 applies to joint plans
        only, so optimisers that plan each query separately then store none. dpPick never does."""
        if self.optimizer is Optimizer.DPPICK:
            return False
        most = None if self.limits is None else self.limits.mirs
        return self.mir and (most is None or (most > 0 and self.optimizer is Optimizer.CLASH))

    @property
    def settings(self) -> SolveSettings:
        """Settings of the plan's solver, for each call."""
        return SolveSettings(self.solver, self.seed, self.threads, self.max_flows)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Queries to plan together, with the statistics and the options."""

    queries: tuple[JoinQuery, ...]
    statistics: Statistics
    options: Options


@dataclass(frozen=True, slots=True)
class StandalonePlans:
    """Plans in which each query has its own optimum, for comparison with a joint plan.

    Attributes:
        individual: queries share nothing.
        shared: as ``individual``, but equal probe steps and store copies run once.
    """

    individual: Plan
    shared: Plan


def plan_apart(problem: PlanProblem, request: PlanRequest) -> StandalonePlans:
    """The ``individual`` and ``shared`` plans, for which each query is solved once."""
    options = request.options
    outcomes = _apart(problem, options)
    return StandalonePlans(
        make_plan(Optimizer.INDIVIDUAL, options.objective, outcomes),
        make_plan(Optimizer.SHARED, options.objective, outcomes),
    )


def apart_of(plan: Plan, options: Options) -> StandalonePlans | None:
    """Standalone plans derived from a joint ``plan`` of a single query without substreams, limits
    and charges, which equals the standalone plan. None if ``plan`` is not such a plan."""
    tight = options.optimizer is Optimizer.CLASH and options.formulation is Formulation.TIGHT
    if len(plan.queries) != 1 or not tight or plan.substreams or _demanding(options):
        return None
    owner = str(plan.queries[0])
    individual = replace(
        plan,
        optimizer=Optimizer.INDIVIDUAL,
        orders=tuple(replace(order, owner=owner) for order in plan.orders),
        copies=tuple(replace(copy, owner=owner) for copy in plan.copies),
    )
    return StandalonePlans(individual, replace(plan, optimizer=Optimizer.SHARED))


def check(queries: Sequence[JoinQuery], request: PlanRequest) -> Sequence[JoinQuery]:
    """Return ``queries`` after checking that they can be planned together.

    Raises:
        QueryError: two queries have the same id, or a query is a cross product.
    """
    require_plannable(queries)
    return queries


def build(queries: Sequence[JoinQuery], request: PlanRequest) -> PlanProblem:
    """Build the planning problem: the graph of partial results of all queries."""
    with request.options.deadline.phase("build"):
        builder = builder_of(queries, request)
        builder.add(queries)
        return builder.problem()


def builder_of(queries: Sequence[JoinQuery], request: PlanRequest) -> Builder:
    """An empty graph of partial results for ``queries``, under the options of the request."""
    return Builder(cost_model(queries, request), mir=request.options.keeps_mirs)


def cost_model(
    queries: Sequence[JoinQuery],
    request: PlanRequest,
    substreams: Sequence[Substreams] | None = None,
) -> CostModel:
    """Cost model for planning ``queries``.

    Args:
        substreams: split of relations' tuples by key value; None: the split that saves most.
    """
    options = request.options
    model = CostModel(
        request.statistics,
        objective=options.objective,
        parallelism=options.parallelism,
        partitioning=options.partitioning,
        bounds=LoosestBounds(queries),
        counted=options.told_apart,
    )
    if substreams is None:
        joint = options.optimizer is Optimizer.CLASH
        printed = options.formulation is Formulation.PAPER
        if options.substreams < 2 or not joint or printed:
            return model
        # More substreams cause more calls of probes, which only the objective in seconds charges.
        starts = Starts(queries, model.charging(Objective.SECONDS))
        earlier = options.told_apart
        chosen = choose(starts, options.substreams, earlier)
        substreams = [choice.function for choice in chosen]
        if options.keeps_mirs:
            substreams = set_aside(starts, substreams, options.substreams, earlier)
    return model.divided(substreams) if substreams else model


def charge(problem: PlanProblem, request: PlanRequest) -> PlanProblem:
    """``problem`` with the request's limits, and charges for switching from the running plan.

    Raises:
        PlannerError: the limits can't be met.
    """
    options = request.options
    if options.optimizer is not Optimizer.CLASH or not _demanding(options):
        return problem
    with options.deadline.phase("build"):
        return demand(problem, options.limits or Limits(), options.switching)


def solve(problem: PlanProblem, request: PlanRequest) -> tuple[Outcome, ...]:
    """Solve the problem for all queries together, or for each query alone, within the deadline.

    Raises:
        PlannerError: the requested formulation does not support limits or switching charges.
    """
    options = request.options
    if options.optimizer is Optimizer.DPPICK:
        with options.deadline.phase("solve"):
            return tuple(pick_orders(part) for part in problem.apart())
    if options.optimizer is not Optimizer.CLASH:
        return _apart(problem, options)
    joint = options.deadline.share(JOINT_SHARE)
    if options.formulation is Formulation.PAPER:
        outcome = solve_as_printed(problem, request.queries, options.settings, joint)
    else:
        outcome = solve_problem(problem, options.settings, joint, _warm(problem))
    return (outcome,)


def assemble(
    outcomes: Sequence[Outcome], request: PlanRequest, reused: Reused | None = None
) -> Plan:
    """Convert solutions to a plan. If a joint plan is not proven optimal, return the cheaper one of
    it and the merged plans of single queries.

    Args:
        reused: see :func:`make_plan`.
    """
    options = request.options
    with options.deadline.phase("assemble"):
        plan = make_plan(options.optimizer, options.objective, outcomes, reused)
    if options.optimizer is not Optimizer.CLASH or outcomes[0].proven:
        return plan
    if _demanding(options):
        # The merged plans of single queries would ignore limits and the running plan.
        return plan
    apart = _apart(outcomes[0].problem, options)
    naive = make_plan(Optimizer.SHARED, options.objective, apart)
    if naive.cost >= plan.cost:
        return plan
    return replace(
        plan,
        orders=naive.orders,
        mirs=naive.mirs,
        copies=naive.copies,
        cost=naive.cost,
        gap=gap(naive.cost, plan.bound),
        method=f"shared, because {plan.method} found nothing better",
    )


def _demanding(options: Options) -> bool:
    return options.limits is not None or options.switching is not None


def _warm(problem: PlanProblem) -> Routing | None:
    """The running plan's routes as the solver's start, if switching away from them is charged."""
    return complete(problem, running_routes(problem)) if problem.extra_steps else None


def _apart(whole: PlanProblem, options: Options) -> tuple[Outcome, ...]:
    """Solve the planning problem of each query by itself."""
    outcomes = []
    for number, problem in enumerate(whole.apart()):
        share = options.deadline.share(1 / (len(whole.queries) - number))
        outcomes.append(solve_problem(problem, options.settings, share))
    return tuple(outcomes)


def require_plannable(queries: Sequence[JoinQuery]) -> None:
    """Reject queries that can't be planned together.

    Raises:
        QueryError: two queries have the same id, or a query is a cross product.
    """
    seen = set()
    for query in queries:
        if query.id in seen:
            raise QueryError(
                "duplicate-query",
                f"two queries are called {query.id!r}",
                field="id",
                remedy="give every query its own id",
            )
        seen.add(query.id)
        if not is_connected(query, frozenset(query.labels)):
            raise QueryError(
                "cross-product",
                f"query {query.id!r} is a cross product: its joins do not connect "
                + ", ".join(sorted(query.labels)),
                field="sql",
                remedy="add an equality between the parts",
            )
