"""Lower bounds of a plan's optimal cost that need no integer program of the whole problem."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from anabranch_planner.search.formulation import formulate
from anabranch_planner.search.problem import EdgeId, PlanProblem, Sub
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.relaxation import Relaxation


def floor(problem: PlanProblem) -> float:
    """Trivial lower bound: the cheapest first probe of each arriving relation, and the cheapest
    copy of each base store."""
    cost, tail = problem.graph.cost, problem.graph.tail
    first = {
        goal.root: min(cost[e] for e in goal.edges if tail[e] == goal.root)
        for goal in problem.goals
        if goal.mir is None and goal.edges
    }
    return sum(first.values()) + sum(cheapest_copy(problem, s) for s in problem.required)


def cheapest_copy(problem: PlanProblem, store: Sub) -> float:
    """The price of the cheapest copy of ``store``, for a lower bound."""
    return min(problem.copy_price(store, a) for a in problem.partitions[store] or (None,))


def by_shares(problem: PlanProblem, deadline: Deadline, seed: int) -> float:
    """Lower bound of a plan's cost: the sum of the queries' own optima, if each element's cost is
    split among the queries that can use the element.

    Let ``n(e)`` be the number of queries that can use the edge ``e`` (directly, or to maintain
    a store); the same for stores. A joint plan pays ``c(e)`` once for a step that at most ``n(e)``
    queries need, so it pays at least ``c(e)/n(e)`` per query that needs it. The elements of a joint
    plan that a query needs are a standalone plan of the query. So the sum of the queries' optima
    under shared costs is at most the joint optimum, and so is the sum of their relaxations. A query
    not processed before the deadline counts 0.
    """
    alone = problem.apart()
    edges: dict[EdgeId, int] = defaultdict(int)
    stores: dict[Sub, int] = defaultdict(int)
    for part in alone:
        for e in {e for goal in part.goals for e in goal.edges}:
            edges[e] += 1
        for store in part.inserts:
            stores[store] += 1
    graph = problem.graph
    shared = replace(graph, cost=list(graph.cost), spread=list(graph.spread))
    for e, sharing in edges.items():
        shared.cost[e] /= sharing
        shared.spread[e] /= sharing
    total = 0.0
    for part in alone:
        if deadline.expired():
            break
        priced = replace(
            part,
            graph=shared,
            inserts={s: c / stores[s] for s, c in part.inserts.items()},
            extra_steps={},
            extra_copies={},
            memory=None,
        )
        total += relaxed(priced, deadline, seed)
    return total


def relaxed(problem: PlanProblem, deadline: Deadline, seed: int) -> float:
    """Optimum of the linear relaxation of ``problem``; if time runs out, its constant part."""
    made = formulate(problem)
    relaxation = Relaxation(made.program, seed)
    if made.program.variables and relaxation.solve({}, deadline.left()):
        return max(relaxation.objective, 0.0)
    return made.program.offset
