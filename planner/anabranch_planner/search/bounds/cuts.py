"""Cutting planes for the maintenance of intermediate results (MIRs) that compete on one path.

A path probes at most one MIR that contains a given alias ``t``, because the aliases of its probes
are disjoint. In the program, the upkeep of an MIR from ``t`` pays for each of its steps at least
the fraction to which the MIR is kept. Two MIRs that are each kept to one half may share a step that
is paid to one half. If a goal ``g`` sends half of its flow over each of the two MIRs, that step is
needed in either case, and so has to be paid in full.

In general let ``f_g(M)`` be the flow of ``g`` over edges that probe ``M``. Let ``D`` be a set of
MIRs that contain ``t``, and ``S`` a set of states from ``t`` that has the root ``(t, {t})``, but
not ``(t, M)`` for any ``M`` in ``D``. Whichever of these MIRs a path probes, its upkeep leaves
``S``:

    sum of f_g(M) over M in D  <=  sum of y_e over the edges e that leave S and that the upkeep
                                   of some M in D from t may use

For given ``g`` and ``t`` the most violated row is a minimum cut of the graph of states from ``t``,
where edges have the capacity ``y_e`` and ``f_g(M)`` is the demand at ``(t, M)`` (Ford & Fulkerson,
"Maximal flow through a network", 1956). The rows would be implied by one upkeep flow per goal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from anabranch_planner.search.formulation import Variables
from anabranch_planner.search.problem import Goal, PlanProblem, Sub
from anabranch_planner.solvers.program import Row

#: Minimum violation for which a row is added to the program.
BROKEN = 1e-4
#: Sink of the flow network, whose other nodes are states.
_SINK = -1


def broken(problem: PlanProblem, made: Variables, values: list[float]) -> list[Row]:
    """The cuts of the integer program that its fractional solution ``values`` violates."""
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
    """The cut's row ``sum of flows <= sum of edges``; a variable on both sides cancels out."""
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
    """The intermediate results (left) and edges (right) of a violated cut; None if none is."""
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
    """Value of a maximum flow, and the nodes on the root's side of a minimum cut.

    Augments along shortest paths (Edmonds & Karp). Networks are small: a node per sub-join.
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
