"""Routes (one path per goal of a planning problem): greedy search, and total cost.

A *routing* has a path for every query goal, and for every goal of each probed intermediate result.
Its cost is the cost of the distinct edges (with chi = 1) plus that of the cheapest copies for them
(:mod:`anabranch_planner.search.copies`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from anabranch_planner.search.copies import CopyAccess, Kept, choose_copies, fits
from anabranch_planner.search.problem import EdgeId, Goal, PlanProblem, Sub

#: Index of a goal in :attr:`PlanProblem.goals` -> the edges of its path.
Routes = dict[int, tuple["EdgeId", ...]]
#: Prices of edges, by index.
Prices: TypeAlias = "Sequence[float] | Mapping[EdgeId, float]"
NOTHING: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Routing:
    """Routes, their copies, and their total cost.

    Attributes:
        cost: the objective: cost of the plan per unit of time, plus the charge for switching to
            it from the running plan.
        switching: the part of ``cost`` that is charged for switching.
    """

    routes: Routes
    accesses: dict[EdgeId, CopyAccess]
    copies: dict[Sub, Kept]
    cost: float
    switching: float = 0.0

    def kept(self, problem: PlanProblem) -> frozenset[Sub]:
        """The intermediate results that the routes maintain and that are thus stored."""
        return frozenset(s for s in self.copies if s in problem.mirs)


def finish(
    problem: PlanProblem, routes: Routes, given: Mapping[Sub, Kept] | None = None
) -> Routing:
    """Drop routes that no query needs, choose copies, and add up the cost.

    The cost is infinite if the routing exceeds the memory budget or the limit on results.

    Args:
        given: store -> its fixed copies, used instead of the cheapest ones.
    """
    needed = _needed(problem, routes)
    steps = dict.fromkeys(e for path in needed.values() for e in path)
    accesses, copies = choose_copies(problem, steps, given)
    price, spread = problem.graph.cost, problem.graph.spread
    cost = sum(price[e] + (spread[e] if accesses[e].broadcast else 0.0) for e in steps)
    cost += sum(problem.inserts[store] * len(kept) for store, kept in copies.items())
    switching = sum(problem.step_extra(e) for e in steps)
    switching += sum(problem.copy_extra(s, a) for s, kept in copies.items() for a in kept)
    fitting = problem.memory is None or fits(problem, copies)
    if not (fitting and problem.may_keep(copies)):
        cost = float("inf")
    return Routing(needed, accesses, copies, cost + switching, switching)


def _needed(problem: PlanProblem, routes: Routes) -> Routes:
    """The routes that queries need, directly or to maintain probed intermediate results."""
    pending = [g for g, goal in enumerate(problem.goals) if goal.mir is None]
    target, mirs = problem.graph.target, problem.mirs
    needed: Routes = {}
    while pending:
        goal = pending.pop()
        if goal in needed:
            continue
        needed[goal] = path = routes[goal]
        for e in path:
            if target[e] in mirs:
                pending.extend(mirs[target[e]])
    return dict(sorted(needed.items()))


def shortest(
    problem: PlanProblem,
    goal: Goal,
    prices: Prices,
    barred: Collection[Sub],
    paid: Mapping[EdgeId, int] = NOTHING,
    edges: Iterable[EdgeId] | None = None,
) -> tuple[EdgeId, ...] | None:
    """The cheapest path of ``goal`` that probes no store in ``barred``; None if there is none.

    Edges with a positive count in ``paid`` are free. ``edges`` restricts the goal's edges (None:
    all), and must keep the goal's order.

    Edges are sorted by size of the sub-join before them, so one pass settles every state (a DAG).
    Among equal paths, the edge listed first wins.
    """
    tails, heads, target = problem.graph.tail, problem.graph.head, problem.graph.target
    best: dict[int, float] = {goal.root: 0.0}
    via: dict[int, EdgeId] = {}
    for e in goal.edges if edges is None else edges:
        so_far = best.get(tails[e])
        if so_far is None or target[e] in barred:
            continue
        total = so_far if paid.get(e) else so_far + prices[e]
        head = heads[e]
        if head not in best or total < best[head]:
            best[head], via[head] = total, e
    if goal.sink not in best:
        return None
    path: list[EdgeId] = []
    state = goal.sink
    while state != goal.root:
        path.append(via[state])
        state = tails[via[state]]
    return tuple(reversed(path))


def tree_routes(problem: PlanProblem, edges: Iterable[EdgeId], barred: Collection[Sub]) -> Routes:
    """Shortest paths of all goals that consist of ``edges`` and probe no store in ``barred``.

    Every state keeps one incoming edge for all goals, so paths merge into trees. A goal with
    forbidden edges (:attr:`Goal.limited`) is routed separately.
    """
    graph = problem.graph
    roots = {goal.root for goal in problem.goals}
    ways: dict[int, EdgeId] = {}
    reached: dict[int, float] = dict.fromkeys(roots, 0.0)
    chosen = {e for e in edges if graph.target[e] not in barred}
    ordered = sorted(chosen, key=lambda e: (graph.size[e], e))
    for e in ordered:
        so_far = reached.get(graph.tail[e])
        if so_far is not None:
            total, head = so_far + graph.cost[e], graph.head[e]
            if head not in reached or total < reached[head]:
                reached[head], ways[head] = total, e
    routes: Routes = {}
    for index, goal in enumerate(problem.goals):
        path: list[EdgeId] = []
        state = goal.sink
        while state != goal.root and state in ways:
            path.append(ways[state])
            state = graph.tail[path[-1]]
        if state == goal.root and (not goal.limited or set(path) <= set(goal.edges)):
            routes[index] = tuple(reversed(path))
        elif goal.limited:
            own = [e for e in goal.edges if e in chosen]
            alone = shortest(problem, goal, graph.cost, barred, edges=own)
            if alone is not None:
                routes[index] = alone
    return routes


def route_greedily(
    problem: PlanProblem, kept: Collection[Sub] = (), rounds: int = 2, hints: Prices | None = None
) -> Routing | None:
    """Route one goal after the other by its cheapest path, where edges already paid for are free.

    Then every goal is routed again, given the paths of all others, for ``rounds`` rounds or until
    nothing changes. Only ``kept`` intermediate results may be probed; copies are chosen at the end.

    Args:
        hints: edge -> price to use in the search instead of its cost.

    Returns:
        None if a goal has no path: a restricted ``problem`` may need more than ``kept``.
    """
    prices = problem.graph.cost if hints is None else hints
    barred = problem.mirs.keys() - set(kept)
    # Route maintenance first, of smaller stores first: its cost does not depend on queries' paths.
    order = [g for m, goals in problem.mirs.items() if m not in barred for g in goals]
    order += [g for g, goal in enumerate(problem.goals) if goal.mir is None]
    uses: dict[EdgeId, int] = {}
    routes: Routes = {}
    for _ in range(rounds):
        changed = False
        for g in order:
            old = routes.get(g, ())
            for e in old:
                uses[e] -= 1
            path = shortest(problem, problem.goals[g], prices, barred, uses)
            if path is None:
                return None
            routes[g] = path
            changed = changed or path != old
            for e in path:
                uses[e] = uses.get(e, 0) + 1
        if not changed:
            break
    return finish(problem, tree_routes(problem, (e for e, n in uses.items() if n), barred))


def first_routing(problem: PlanProblem) -> Routing:
    """An initial plan: over base stores if possible, else with every intermediate result."""
    found = route_greedily(problem) or route_greedily(problem, problem.mirs)
    assert found is not None, "no plan, although every remaining MIR may be kept"
    return found
