"""Warm starts of the search: the running plan's paths, completed for goals without one."""

from __future__ import annotations

from anabranch_planner.search.problem import EdgeId, PlanProblem
from anabranch_planner.search.routes import Routes, Routing, finish, shortest, tree_routes


def running_routes(problem: PlanProblem) -> Routes:
    """The running plan's paths in the planning problem ``problem``.

    They consist of the edges without a switching charge (:func:`demands.demand`).
    """
    edges = dict.fromkeys(e for goal in problem.goals for e in goal.edges)
    barred = {
        m
        for m in problem.mirs
        if all((m, a) in problem.extra_copies for a in problem.partitions[m] or (None,))
    }
    return tree_routes(problem, (e for e in edges if e not in problem.extra_steps), barred)


def complete(problem: PlanProblem, routes: Routes) -> Routing | None:
    """``routes``, with the cheapest path added for each goal that has none.

    Edges used in ``routes`` are free for the added paths, which probe only stores that ``routes``
    maintains completely. None if some goal has no path then.
    """
    have = {m for m, goals in problem.mirs.items() if all(g in routes for g in goals)}
    barred = problem.mirs.keys() - have
    target = problem.graph.target
    found: Routes = {}
    paid: dict[EdgeId, int] = {}
    for index, path in routes.items():
        goal = problem.goals[index]
        if goal.mir not in barred and not any(target[e] in barred for e in path):
            found[index] = path
            for e in path:
                paid[e] = paid.get(e, 0) + 1
    for index, goal in enumerate(problem.goals):
        if index in found or goal.mir in barred:
            continue
        way = shortest(problem, goal, problem.graph.cost, barred, paid)
        if way is None:
            return None
        found[index] = way
        for e in way:
            paid[e] = paid.get(e, 0) + 1
    return finish(problem, found)
