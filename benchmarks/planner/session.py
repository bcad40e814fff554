"""A plan that follows its queries: one is added or dropped, the rest comes later.

A :class:`Session` keeps the graph of all queries, the routes of the plan and its proven bound, for
statistics that do not change meanwhile (new statistics are a new session). A query that is added
is planned together with the queries that can share most with it, everybody else's orders staying
as they are (:mod:`neighbourhood`); :meth:`Session.improve` then solves the whole, when there is
time for it.

Bounds survive changes. A plan for more queries contains a plan for fewer, so when a query is added
the old bound holds, and with it what only the new query needs (:func:`bounds.exclusive`). When a
query is dropped the optimum falls by at most what the query costs alone, since any plan of it
beside the optimal plan of the others is a plan of all; so the old bound less the cost of any plan
of that query holds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Objective, Optimizer, Plan, Solver
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.plans.optimise import MAX_FLOWS, require_plannable
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.assemble import Reused, make_plan
from anabranch_planner.search.lower_bounds import floor, relaxed
from anabranch_planner.search.neighbourhood import nearest, reoptimise, size_of
from anabranch_planner.search.outcome import Outcome, Settings
from anabranch_planner.search.problem import Builder
from anabranch_planner.search.routes import Routing, finish, first_routing
from anabranch_planner.solvers.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_contract.queries.joins import JoinQuery, QueryId
    from anabranch_planner.cost.statistics import Statistics
    from anabranch_planner.search.problem import EdgeId, GoalKey, Problem, Sub


class Session:
    """Joint plans (optimiser ``clash``) of a set of queries that changes.

    Args:
        statistics: for the life of the session.
        objective, parallelism, mir, partitioning, solver, seed, threads, max_flows: as for
            :class:`~anabranch_planner.plans.optimise.Options`.
    """

    def __init__(
        self,
        statistics: Statistics,
        *,
        objective: Objective = Objective.DEFAULT,
        parallelism: int = 1,
        mir: bool = True,
        partitioning: bool = True,
        solver: Solver = Solver.BRANCH,
        seed: int = 0,
        threads: int = 1,
        max_flows: int = MAX_FLOWS,
    ) -> None:
        self._statistics = statistics
        self._objective = objective
        self._parallelism = parallelism
        self._partitioning = partitioning
        self._mir = mir
        self._settings = Settings(solver, seed, threads, max_flows)
        self._queries: dict[QueryId, JoinQuery] = {}
        self._routes: dict[GoalKey, tuple[EdgeId, ...]] = {}
        self._bound = 0.0
        self._reused = Reused()
        self._builder = self._new_builder()

    @property
    def queries(self) -> tuple[JoinQuery, ...]:
        """The queries that are planned, by id."""
        return tuple(self._queries[q] for q in sorted(self._queries))

    def plan(self, queries: Sequence[JoinQuery], deadline: Deadline | None = None) -> Plan:
        """Begin anew: the best plan of exactly ``queries``.

        Raises:
            QueryError: as :func:`optimise` does; the session stays as it was.
        """
        require_plannable(queries)
        deadline = deadline or Deadline()
        self._queries = {q.id: q for q in queries}
        with deadline.phase("build"):
            self._builder = self._new_builder()
            self._reused = Reused()
            self._builder.add(queries)
            problem = self._builder.problem()
        return self._take(solve_problem(problem, self._settings, deadline), deadline)

    def add(self, query: JoinQuery, deadline: Deadline | None = None) -> Plan:
        """The plan with ``query`` beside the others, re-optimised around it.

        Where time bounds are involved, which loosen what others' steps may find and so change
        their costs, all is planned anew.

        Raises:
            QueryError: there is a query of that id, or it is a cross product.
        """
        require_plannable([*self._queries.values(), query])
        if _timed(query) or any(_timed(q) for q in self._queries.values()):
            return self.plan([*self._queries.values(), query], deadline)
        deadline = deadline or Deadline()
        self._queries[query.id] = query
        with deadline.phase("build"):
            self._builder.add([query])
            problem = self._builder.problem()
            known = self._routing(problem)
            free = around(problem, query.id, size_of(problem))

        def solve(part: Problem) -> Routing:
            return solve_problem(part, self._settings, deadline).routing

        found = reoptimise(problem, known, free, solve)
        with deadline.phase("bound"):
            more = exclusive(problem, query.id, deadline, self._settings.seed)
            bound = max(self._bound + more, floor(problem))
        method = f"{self._settings.solver} around {query.id}: {len(free)} queries"
        return self._take(Outcome(problem, found, bound, method, 0, 0), deadline)

    def drop(self, query: QueryId, deadline: Deadline | None = None) -> Plan:
        """The plan without ``query``; the others keep their orders.

        Raises:
            QueryError: there is no query of that id.
        """
        if query not in self._queries:
            raise QueryError(
                "unknown-query",
                f"there is no query {query!r} to drop",
                field="id",
                remedy="drop one that was planned or added",
            )
        deadline = deadline or Deadline()
        whole = self._builder.problem()
        alone = next(p for p in whole.apart() if p.queries == (query,))
        del self._queries[query]
        self._builder.drop(query)
        problem = self._builder.problem()
        bound = max(self._bound - first_routing(alone).cost, floor(problem))
        routing = self._routing(problem)
        method = f"without {query}, else as before"
        return self._take(Outcome(problem, routing, bound, method, 0, 0), deadline)

    def improve(self, deadline: Deadline | None = None) -> Plan:
        """Solve the whole, beginning from the plan that is there."""
        deadline = deadline or Deadline()
        problem = self._builder.problem()
        known = self._routing(problem)
        outcome = solve_problem(problem, self._settings, deadline, known)
        return self._take(outcome, deadline)

    def _new_builder(self) -> Builder:
        model = CostModel(
            self._statistics,
            objective=self._objective,
            parallelism=self._parallelism,
            partitioning=self._partitioning,
            bounds=LoosestBounds(tuple(self._queries.values())),
        )
        return Builder(model, mir=self._mir)

    def _routing(self, problem: Problem) -> Routing:
        """The routes so far, as far as ``problem`` has their goals; no cost if some lack."""
        at = {g.key: i for i, g in enumerate(problem.goals)}
        routes = {at[k]: path for k, path in self._routes.items() if k in at}
        if any(g.mir is None and i not in routes for i, g in enumerate(problem.goals)):
            return Routing(routes, {}, {}, float("inf"))
        return finish(problem, routes)

    def _take(self, outcome: Outcome, deadline: Deadline) -> Plan:
        problem, routing = outcome.problem, outcome.routing
        self._bound = min(max(outcome.bound, 0.0), routing.cost)
        self._routes = {problem.goals[g].key: path for g, path in routing.routes.items()}
        with deadline.phase("assemble"):
            return make_plan(Optimizer.CLASH, self._objective, [outcome], self._reused)


def _timed(query: JoinQuery) -> bool:
    """Whether the query bounds the distance in time of any two of its labels."""
    return any(
        bound is not None
        for i, row in enumerate(query.bounds)
        for j, bound in enumerate(row)
        if i != j
    )


def around(problem: Problem, query: str, flows: int) -> list[str]:
    """:meth:`~anabranch_planner.search.neighbourhood.Sharing.around` for one query only."""
    mine = {e for g in problem.goals if g.mir is None and g.name == query for e in g.edges}
    shared: dict[str, int] = defaultdict(int)
    size: dict[str, int] = defaultdict(int)
    for goal in problem.goals:
        if goal.mir is None:
            size[goal.name] += len(goal.edges)
            if not mine.isdisjoint(goal.edges):
                shared[goal.name] += len(mine.intersection(goal.edges))
    return nearest([query], shared, size, flows)


def exclusive(problem: Problem, query: str, deadline: Deadline, seed: int) -> float:
    """What ``query`` costs at least beyond any plan of the other queries.

    A joint plan pays for a plan of the others, which uses nothing that only ``query`` can use,
    and for what ``query`` uses of the latter. So to a bound of the others the optimum of
    ``query`` alone may be added if everything that the others can use is free to it.
    """
    target, mirs = problem.graph.target, problem.mirs
    goals = [g for g in problem.goals if g.mir is None and g.name != query]
    others = {e for goal in goals for e in goal.edges}
    stores: set[Sub] = set()
    fresh = {target[e] for e in others}
    while fresh:
        stores |= fresh
        upkeep = {e for m in fresh if m in mirs for g in mirs[m] for e in problem.goals[g].edges}
        others |= upkeep
        fresh = {target[e] for e in upkeep} - stores
    alone = next(p for p in problem.apart() if p.queries == (query,))
    edges = {e for goal in alone.goals for e in goal.edges}
    cost = list(problem.graph.cost)
    for e in edges & others:
        cost[e] = 0.0
    priced = replace(
        alone,
        graph=replace(problem.graph, cost=cost),
        inserts={s: 0.0 if s in stores else c for s, c in alone.inserts.items()},
        extra_steps={},
        extra_copies={},
        memory=None,
    )
    return relaxed(priced, deadline, seed)
