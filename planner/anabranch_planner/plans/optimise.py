"""The optimisers behind one signature: queries and statistics in, a plan out.

* ``clash``: one integer program over all queries, taken apart where they can share nothing.
* ``individual``: each query's own optimum; nothing is shared, everything carries its owner.
* ``shared``: each query's own optimum; then equal prefixes run once and equal copies are kept
  once, without choosing anything anew.

All three are charged by the same rules, so ``clash <= shared <= individual`` wherever the
program is solved to the end. Every shortcut (a cap, a time limit) is named in ``Plan.method``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Plan, Solver
from anabranch_contract.queries.mirs import is_connected
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import loosest_bounds
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.assemble import gap, make_plan
from anabranch_planner.search.demands import Limits, Switching, demand
from anabranch_planner.search.general import solve_as_printed
from anabranch_planner.search.outcome import Settings
from anabranch_planner.search.problem import Problem, build_problem
from anabranch_planner.search.warm_start import complete, routes_of, running_routes
from anabranch_planner.solvers.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_contract.queries.joins import JoinQuery
    from anabranch_planner.cost.statistics import Statistics
    from anabranch_planner.search.routes import Routing

#: Flow variables up to which the integer program is built.
MAX_FLOWS = 150_000
#: Part of a deadline for the joint program; the rest is for sharing plans made alone, which is
#: tried where the joint program was not solved to the end.
JOINT_SHARE = 0.9


def optimise(
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    *,
    optimizer: Optimizer = Optimizer.CLASH,
    objective: Objective = Objective.DEFAULT,
    formulation: Formulation = Formulation.TIGHT,
    solver: Solver = Solver.BRANCH,
    parallelism: int = 1,
    mir: bool = True,
    partitioning: bool = True,
    deadline: Deadline | None = None,
    seed: int = 0,
    threads: int = 1,
    max_flows: int = MAX_FLOWS,
    limits: Limits | None = None,
    switching: Switching | None = None,
    start: Plan | None = None,
) -> Plan:
    """Plan ``queries`` under ``statistics``.

    Args:
        optimizer: which of the optimisers above.
        objective: whether inserts into store copies are charged.
        formulation: which integer program is solved for all queries together (single queries
            are always solved by the tight one).
        solver: which solver solves it.
        parallelism: partitions per store, what a broadcast multiplies a step by.
        mir: whether intermediate results may be kept.
        partitioning: False ignores partition attributes: every step costs one probe.
        deadline: the caller's clock and the deadline. What has been found by then is returned
            with its gap; where the time went is added to ``deadline.spent``.
        seed: of the solver's tie-breaking.
        threads: how many the solver may use.
        max_flows: above it the integer program is not built and local search decides.
        limits, switching: of the joint plan, see :mod:`anabranch_planner.search.demands`;
            the other optimisers are there for comparison and know neither.
        start: a plan for the joint search to begin from, such as the running epoch's: it may be
            for other queries and statistics. It decides which of several equally cheap plans is
            found and how soon, not how good the plan is. Where switching is charged, the default
            is the running plan.

    Raises:
        QueryError: two queries have one id, or a query is a cross product.
        PlannerError: the limits can't be met, or the formulation does not know them.
    """
    require_plannable(queries)
    deadline = deadline or Deadline()
    with deadline.phase("build"):
        model = CostModel(
            statistics,
            objective=objective,
            parallelism=parallelism,
            partitioning=partitioning,
            bounds=loosest_bounds(queries),
        )
        whole = build_problem(queries, model, mir=mir)
        if optimizer is Optimizer.CLASH and (limits is not None or switching is not None):
            whole = demand(whole, limits or Limits(), switching)
    settings = Settings(solver, seed, threads, max_flows)
    if optimizer is not Optimizer.CLASH:
        return _apart(whole, optimizer, settings, deadline)
    joint = deadline.share(JOINT_SHARE)
    if formulation is Formulation.PAPER:
        outcome = solve_as_printed(whole, queries, settings, joint)
    else:
        outcome = solve_problem(whole, settings, joint, _warm(whole, start))
    with deadline.phase("assemble"):
        plan = make_plan(optimizer, objective, [outcome])
    if outcome.proven or limits is not None or switching is not None:
        # Plans made alone and merged know neither limits nor the running plan.
        return plan
    naive = _apart(whole, Optimizer.SHARED, settings, deadline)
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


def _warm(problem: Problem, start: Plan | None) -> Routing | None:
    """A plan to begin from: ``start``, else the running one if changing it is charged."""
    if start is not None:
        return complete(problem, routes_of(problem, start))
    if problem.extra_steps:
        return complete(problem, running_routes(problem))
    return None


def _apart(whole: Problem, optimizer: Optimizer, settings: Settings, deadline: Deadline) -> Plan:
    """Every query's own optimum."""
    outcomes = []
    for number, problem in enumerate(whole.apart()):
        share = deadline.share(1 / (len(whole.queries) - number))
        outcomes.append(solve_problem(problem, settings, share))
    return make_plan(optimizer, whole.model.objective, outcomes)


def require_plannable(queries: Sequence[JoinQuery]) -> None:
    """Refuse queries that can't be planned together.

    Raises:
        QueryError: see :func:`optimise`.
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
