"""The optimisers behind one signature: queries and statistics in, a plan out.

* ``clash``: one integer program over all queries (per group of queries that have a relation in
  common; groups can share nothing).
* ``individual``: each query's own optimum; nothing is shared, everything carries its owner.
* ``shared``: each query's own optimum; then equal prefixes run once and equal copies are kept
  once, without choosing anything anew.

All three are charged by the same rules, so ``clash <= shared <= individual`` wherever the
program is solved to the end. Every shortcut (a cap, a time limit) is named in ``Plan.method``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch_planner.errors import QueryError
from anabranch_planner.mir import is_connected
from anabranch_planner.optimiser.assemble import assemble, merge_prefixes
from anabranch_planner.optimiser.copies import attribute_rank
from anabranch_planner.optimiser.cost import CostModel
from anabranch_planner.optimiser.formulation import formulate, start_values
from anabranch_planner.optimiser.problem import Problem, build_problem
from anabranch_planner.optimiser.routes import Routing, finish, improve, route_greedily, tree_routes
from anabranch_planner.optimiser.solvers.highs import solve
from anabranch_planner.optimiser.solvers.interface import Request, Solver, Status
from anabranch_planner.optimiser.watch import Watch
from anabranch_planner.plan import Formulation, Objective, Optimizer, Plan, ProbeOrder, StoreCopy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_planner.model import JoinQuery
    from anabranch_planner.statistics import Statistics

#: Flow variables up to which the integer program is built.
MAX_VARIABLES = 150_000
#: Part of a deadline for the joint program; the rest is for sharing plans made alone, which is
#: tried where the joint program was not solved to the end.
JOINT_SHARE = 0.75
#: Sets of kept MIRs that the local search may try, per problem.
EVALUATIONS = 60


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How one problem was solved."""

    problem: Problem
    routing: Routing
    bound: float
    method: str
    variables: int
    constraints: int


def optimise(
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    *,
    optimizer: Optimizer = Optimizer.CLASH,
    objective: Objective = Objective.DEFAULT,
    parallelism: int = 1,
    mir: bool = True,
    partitioning: bool = True,
    formulation: Formulation = Formulation.TIGHT,
    solver: Solver = Solver.HIGHS,
    watch: Watch | None = None,
    seed: int = 0,
    threads: int = 1,
    max_variables: int = MAX_VARIABLES,
) -> Plan:
    """Plan ``queries`` under ``statistics``.

    Args:
        optimizer: which of the optimisers above.
        objective: whether inserts into store copies are charged.
        parallelism: partitions per store, what a broadcast multiplies a step by.
        mir: whether intermediate results may be kept.
        partitioning: False ignores partition attributes: every step costs one probe.
        formulation: which integer program is solved.
        solver: which solver solves it.
        watch: the caller's clock and the deadline. What has been found by then is returned
            with its gap; where the time went is added to ``watch.spent``.
        seed: of the solver's tie-breaking.
        threads: how many the solver may use.
        max_variables: above it the integer program is not built and local search decides.

    Raises:
        QueryError: two queries have one id, or a query is a cross product.
    """
    _require_plannable(queries)
    watch = watch or Watch()
    model = CostModel(
        statistics, objective=objective, parallelism=parallelism, partitioning=partitioning
    )
    ordered = sorted(queries, key=lambda q: q.id)

    def run(chosen: Optimizer, watch: Watch) -> Plan:
        groups = _groups(ordered) if chosen is Optimizer.CLASH else [[q] for q in ordered]
        outcomes: list[_Outcome] = []
        for i, group in enumerate(groups):
            left = watch.left()
            share = None if left is None else left / (len(groups) - i)
            with watch.phase("build"):
                problem = build_problem(group, model, mir=mir)
            outcomes.append(_solve(problem, share, seed, threads, max_variables, watch))
        return _plan(chosen, objective, outcomes)

    joint = optimizer is Optimizer.CLASH
    left = watch.left()
    plan = run(optimizer, watch if left is None or not joint else watch.within(left * JOINT_SHARE))
    if not joint or plan.method == _EXACT:
        return plan
    naive = run(Optimizer.SHARED, watch)
    if naive.cost >= plan.cost:
        return plan
    return replace(
        plan,
        orders=naive.orders,
        mirs=naive.mirs,
        copies=naive.copies,
        cost=naive.cost,
        gap=_gap(naive.cost, plan.bound),
        method=f"shared, because {plan.method} found nothing better",
    )


def individual_cost(
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    *,
    objective: Objective = Objective.DEFAULT,
    parallelism: int = 1,
    mir: bool = True,
    partitioning: bool = True,
    watch: Watch | None = None,
) -> float:
    """What ``queries`` cost if each is planned and run alone."""
    return optimise(
        queries,
        statistics,
        optimizer=Optimizer.INDIVIDUAL,
        objective=objective,
        parallelism=parallelism,
        mir=mir,
        partitioning=partitioning,
        watch=watch,
    ).cost


_EXACT = "highs"


def _solve(
    problem: Problem,
    time_limit: float | None,
    seed: int,
    threads: int,
    max_variables: int,
    watch: Watch,
) -> _Outcome:
    """The best routing of ``problem``: local search, then the integer program from there."""
    known = improve(problem, route_greedily(problem), EVALUATIONS)
    flows = sum(len(edges) for edges in problem.goals.values())
    if flows == 0:
        return _Outcome(problem, known, known.cost, _EXACT, 0, 0)
    if flows > max_variables:
        method = f"greedy: {flows} flow variables exceed the cap of {max_variables}"
        return _Outcome(problem, known, _floor(problem), method, 0, 0)
    variables = formulate(problem, known.cost)
    start = tuple(start_values(problem, variables, known))
    request = Request(variables.program, start, time_limit, seed, threads)
    with watch.phase("solve"):
        solution = solve(request)
    best = known
    if solution.values is not None:
        edges = [e for e, i in variables.edges.items() if solution.values[i] > 0.5]
        kept = [m for m, i in variables.mirs.items() if solution.values[i] > 0.5]
        found = finish(problem, tree_routes(problem, edges, kept))
        if found.cost <= best.cost:
            best = found
    method, bound = _EXACT, best.cost
    if solution.status is not Status.OPTIMAL:
        method, bound = "highs: time limit", min(max(solution.bound, _floor(problem)), best.cost)
    if problem.reduced:
        names = ", ".join(problem.reduced)
        method, bound = f"{method}; one order per start for {names} (cap)", _floor(problem)
    return _Outcome(
        problem, best, bound, method, variables.program.variables, variables.program.rows
    )


def _floor(problem: Problem) -> float:
    """A lower bound without solving: every start is sent out once, every base store kept once."""
    first = {
        root: min(e.cost for e in problem.goals[goal] if e.tail == root)
        for goal, (root, sink) in problem.ends.items()
        if not goal.maintains and root != sink
    }
    return sum(first.values()) + sum(problem.inserts[store] for store in problem.required)


def _plan(optimizer: Optimizer, objective: Objective, outcomes: Sequence[_Outcome]) -> Plan:
    orders: list[ProbeOrder] = []
    copies: list[StoreCopy] = []
    if optimizer is Optimizer.SHARED:
        orders, copies, cost = merge_prefixes([(o.problem, o.routing) for o in outcomes])
        # No plan of several queries is cheaper than the dearest of them alone.
        bound = max((o.bound for o in outcomes), default=0.0)
    else:
        for o in outcomes:
            owner = str(o.problem.queries[0]) if optimizer is Optimizer.INDIVIDUAL else ""
            some_orders, some_copies = assemble(o.problem, o.routing, owner)
            orders += some_orders
            copies += some_copies
        cost = sum(o.routing.cost for o in outcomes)
        bound = sum(o.bound for o in outcomes)
    stores = {m: found for o in outcomes for m, found in o.problem.mirs.items()}
    used = {c.mir for c in copies}
    methods = dict.fromkeys(o.method for o in outcomes)
    bound = min(bound, cost)
    return Plan(
        optimizer=optimizer,
        objective=objective,
        queries=tuple(sorted(q for o in outcomes for q in o.problem.queries)),
        orders=tuple(sorted(orders, key=lambda o: (o.owner, o.maintains, o.goal, o.start))),
        mirs=tuple(stores[m] for m in sorted(used)),
        copies=tuple(sorted(copies, key=lambda c: (c.owner, c.mir, attribute_rank(c.partition)))),
        cost=cost,
        bound=bound,
        gap=_gap(cost, bound),
        method="; ".join(m for m in methods if m != _EXACT) or _EXACT,
        candidates=sum(o.problem.candidates for o in outcomes),
        variables=sum(o.variables for o in outcomes),
        constraints=sum(o.constraints for o in outcomes),
    )


def _gap(cost: float, bound: float) -> float:
    return (cost - bound) / cost if cost > bound else 0.0


def _groups(queries: Sequence[JoinQuery]) -> list[list[JoinQuery]]:
    """Queries that have a relation in common, directly or through others, in order of ids."""
    groups: list[tuple[set[str], list[JoinQuery]]] = []
    for query in queries:
        relations: set[str] = {r.id for r in query.relations}
        members = [query]
        rest = []
        for ids, group in groups:
            if ids & relations:
                relations |= ids
                members = group + members
            else:
                rest.append((ids, group))
        groups = [*rest, (relations, members)]
    return sorted(
        (sorted(members, key=lambda q: q.id) for _, members in groups), key=lambda g: g[0].id
    )


def _require_plannable(queries: Sequence[JoinQuery]) -> None:
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
