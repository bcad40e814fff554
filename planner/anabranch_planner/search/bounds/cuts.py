"""Rows that a fractional point of the program breaks: upkeep that one path needs, taken together.

A path probes at most one MIR that has a certain label ``t``, because its labels are disjoint. In
the program, each MIR's upkeep from ``t`` pays for the steps it takes at least as much as the MIR is
kept, but two MIRs that are each kept to a half may share a step that is paid for to a half. Where
one goal ``g`` takes half of its flow over the one and half over the other, that step is needed in
either case, so it has to be paid in full.

In general let ``f_g(M)`` be the flow of ``g`` over edges that probe ``M``, and ``S`` a set of
states from ``t`` with the root ``(t, {t})`` but without ``(t, M)`` for the MIRs in ``D``, all of
which have ``t``. Whichever of them the path probes, its upkeep leads from the root out of ``S``:

    sum of f_g(M) over M in D  <=  sum of y_e over the edges e that lead out of S, of all that the
                                   upkeep of some M in D from t may use

For given ``g`` and ``t`` the row that is broken most is a minimum cut of the graph of states from
``t``, where edges hold ``y_e`` and ``f_g(M)`` leaves at ``(t, M)`` (Ford & Fulkerson, "Maximal flow
through a network", 1956). The rows would follow if every goal had upkeep flows of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from anabranch_planner.search.formulation import Variables
from anabranch_planner.search.problem import Goal, PlanProblem, Sub
from anabranch_planner.solvers.program import Row

#: By how much a row has to be broken to be worth adding.
BROKEN = 1e-4
#: A node that is no state.
_SINK = -1


def broken(problem: PlanProblem, made: Variables, values: list[float]) -> list[Row]:
    """Rows of the kind above that ``values`` break, each once."""
    target, subs = problem.graph.target, problem.graph.subs
    upkeep = {
        (m, problem.goals[g].origin): problem.goals[g] for m, gs in problem.mirs.items() for g in gs
    }
    found: dict[Row, None] = {}
    for goal, flows in zip(problem.goals, made.flows, strict=True):
        over: dict[Sub, list[int]] = defaultdict(list)
        for e, flow in zip(goal.edges, flows, strict=True):
            if target[e] in problem.mirs:
                over[target[e]].append(flow)
        parts = {m: part for m, i in over.items() if (part := sum(values[f] for f in i)) > BROKEN}
        if len(parts) < 2:
            continue
        labels = {x for m in parts for x in subs[m].labels}
        for origin in sorted({o for _, o in upkeep if o[0] in labels}):
            some = {m: upkeep[m, origin] for m in parts if origin[0] in subs[m].labels}
            if len(some) > 1:
                cut = _cut(problem, made, values, some, parts)
                if cut is not None:
                    short, needed = cut
                    found[_row([f for m in short for f in over[m]], needed)] = None
    return list(found)


def _row(flows: list[int], edges: list[int]) -> Row:
    """The row by which ``flows`` are at most ``edges`` together; a flow may stand for its edge."""
    both = set(flows).intersection(edges)
    more, less = ([i for i in side if i not in both] for side in (flows, edges))
    return 0.0, (*more, *less), (*([1.0] * len(more)), *([-1.0] * len(less)))


def _cut(
    problem: PlanProblem,
    made: Variables,
    values: list[float],
    some: dict[Sub, Goal],
    parts: dict[Sub, float],
) -> tuple[list[Sub], list[int]] | None:
    """MIRs paid too little for their maintenance, and the edges that need more; None: no MIR is."""
    graph = problem.graph
    root = next(iter(some.values())).root
    edges = dict.fromkeys(e for goal in some.values() for e in goal.edges)
    arcs = [(graph.tail[e], graph.head[e], values[made.edges[e]]) for e in edges]
    arcs += [(goal.sink, _SINK, parts[m]) for m, goal in some.items()]
    total, near = _flow(arcs, root)
    if total > sum(parts[m] for m in some) - BROKEN:
        return None
    short = [m for m, goal in some.items() if goal.sink not in near]
    used = dict.fromkeys(e for m in short for e in some[m].edges)
    out = (e for e in used if graph.tail[e] in near and graph.head[e] not in near)
    return short, [made.edges[e] for e in out]


def _flow(arcs: Iterable[tuple[int, int, float]], root: int) -> tuple[float, set[int]]:
    """A maximum flow's value, and the nodes on the root's side of a minimum cut.

    Augments along shortest paths (Edmonds & Karp). There are as many nodes as an MIR has connected
    parts.
    """
    left: dict[int, dict[int, float]] = defaultdict(dict)
    for tail, head, capacity in arcs:
        left[tail][head] = left[tail].get(head, 0.0) + capacity
        left[head].setdefault(tail, 0.0)
    total = 0.0
    while True:
        via = {root: root}
        queue = [root]
        for node in queue:
            for other, capacity in left[node].items():
                if capacity > 1e-9 and other not in via:
                    via[other] = node
                    queue.append(other)
        if _SINK not in via:
            return total, set(via)
        path = [_SINK]
        while path[-1] != root:
            path.append(via[path[-1]])
        steps = list(zip(path[1:], path, strict=False))
        amount = min(left[tail][head] for tail, head in steps)
        for tail, head in steps:
            left[tail][head] -= amount
            left[head][tail] += amount
        total += amount
