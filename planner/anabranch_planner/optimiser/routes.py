"""Routes: one path per goal. How they are found in a set of allowed edges, priced and improved.

A *routing* is a path for every query goal and, for every MIR that some path probes, for each of
the MIR's goals. Its cost is that of the distinct edges (with chi = 1) and of the cheapest copies
for them (:mod:`anabranch_planner.optimiser.copies`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch_planner.mir import MirId
from anabranch_planner.optimiser.copies import Access, Kept, choose_copies
from anabranch_planner.optimiser.problem import Edge, Goal, Problem, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

Routes = dict[Goal, tuple[Edge, ...]]


@dataclass(frozen=True, slots=True)
class Routing:
    """Routes, their copies, and what they cost together."""

    routes: Routes
    accesses: dict[Edge, Access]
    copies: dict[MirId, Kept]
    cost: float

    @property
    def kept(self) -> frozenset[MirId]:
        """The intermediate results that are kept."""
        return frozenset(MirId(g.name) for g in self.routes if g.maintains)


def finish(problem: Problem, routes: Routes) -> Routing:
    """Drop what no query needs from ``routes``, choose copies, and add up the cost."""
    needed = _needed(problem, routes)
    steps = dict.fromkeys(edge for path in needed.values() for edge in path)
    accesses, copies = choose_copies(problem, steps)
    chi = problem.model.chi(broadcast=True)
    cost = sum(e.cost * (chi if accesses[e].broadcast else 1) for e in steps)
    cost += sum(problem.inserts[store] * len(kept) for store, kept in copies.items())
    return Routing(needed, accesses, copies, cost)


def _needed(problem: Problem, routes: Routes) -> Routes:
    pending = problem.query_goals()
    needed: Routes = {}
    while pending:
        goal = pending.pop()
        if goal in needed:
            continue
        needed[goal] = routes[goal]
        for edge in routes[goal]:
            if not problem.is_base(edge.target):
                pending.extend(problem.mir_goals(edge.target))
    return dict(sorted(needed.items()))


def shortest(
    problem: Problem,
    goal: Goal,
    usable: Callable[[Edge], bool],
    price: Callable[[Edge], float],
) -> tuple[Edge, ...] | None:
    """The cheapest path of ``goal`` over usable edges; None if there is none.

    Edges are listed smaller heads first, so one pass settles every state (a DAG). Ties go to
    the edge that is listed first.
    """
    root, sink = problem.ends[goal]
    best: dict[State, float] = {root: 0.0}
    via: dict[State, Edge] = {}
    for edge in problem.goals[goal]:
        if edge.tail in best and usable(edge):
            total = best[edge.tail] + price(edge)
            if edge.head not in best or total < best[edge.head]:
                best[edge.head], via[edge.head] = total, edge
    if sink not in best:
        return None
    path: list[Edge] = []
    state = sink
    while state != root:
        path.append(via[state])
        state = via[state].tail
    return tuple(reversed(path))


def tree_routes(problem: Problem, edges: Collection[Edge], kept: Collection[MirId]) -> Routes:
    """Routes inside a solver's choice: only ``edges``, probing base stores and ``kept`` MIRs.

    Every state keeps one way in, whichever goal passes through it, so routes merge into trees.
    """
    allowed = frozenset(edges)
    mirs = frozenset(kept)
    ways: dict[State, tuple[float, Edge]] = {}
    reached: dict[State, float] = {root: 0.0 for root, _ in problem.ends.values()}
    ordered = sorted(
        (e for e in allowed if problem.is_base(e.target) or e.target in mirs),
        key=lambda e: (len(e.tail.labels), e.tail, e.head),
    )
    for edge in ordered:
        if edge.tail in reached:
            total = reached[edge.tail] + edge.cost
            if edge.head not in reached or total < reached[edge.head]:
                reached[edge.head], ways[edge.head] = total, (total, edge)
    routes: Routes = {}
    for goal, (root, sink) in problem.ends.items():
        path: list[Edge] = []
        state = sink
        while state != root and state in ways:
            path.append(ways[state][1])
            state = path[-1].tail
        if state == root:
            routes[goal] = tuple(reversed(path))
    return routes


def route_greedily(problem: Problem, kept: Iterable[MirId] = (), rounds: int = 3) -> Routing:
    """Route goal by goal, cheapest path first, where an edge that is paid already is free.

    A few rounds re-route every goal against all the others, until nothing changes. Only
    ``kept`` MIRs may be probed; copies are chosen at the end.
    """
    allowed = frozenset(kept)
    goals = [g for g in problem.goals if not g.maintains or g.name in allowed]
    # MIRs first, by size: what maintains them is paid whatever the queries do.
    goals.sort(key=lambda g: (not g.maintains, len(problem.ends[g][1].labels), g))
    routes: Routes = {}
    uses: dict[Edge, int] = {}
    for _ in range(rounds):
        before = dict(routes)
        for goal in goals:
            for edge in routes.get(goal, ()):
                uses[edge] -= 1
            path = shortest(
                problem,
                goal,
                lambda e: problem.is_base(e.target) or e.target in allowed,
                lambda e: 0.0 if uses.get(e) else e.cost,
            )
            assert path is not None, f"{goal} has no route over base relations"
            routes[goal] = path
            for edge in path:
                uses[edge] = uses.get(edge, 0) + 1
        if routes == before:
            break
    used = [e for e, count in uses.items() if count]
    return finish(problem, tree_routes(problem, used, allowed))


def improve(problem: Problem, routing: Routing, evaluations: int) -> Routing:
    """Local search over the set of kept MIRs: add or drop one while that makes it cheaper.

    Args:
        evaluations: how many sets may be tried at most.
    """
    best = routing
    mirs = [m for m, found in problem.mirs.items() if not found.is_base]
    changed = True
    while changed and evaluations > 0:
        changed = False
        for mir in mirs:
            if evaluations <= 0:
                break
            evaluations -= 1
            trial = route_greedily(problem, best.kept ^ {mir})
            if trial.cost < best.cost * (1 - 1e-12):
                best, changed = trial, True
    return best
