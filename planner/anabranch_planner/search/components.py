"""Sub-problems of the planning problem: independent components, and restrictions to fewer choices.

Two goals have to be planned together if they may share an element whose cost is paid once: an edge,
an MIR, or (if copies are charged) the copies of a store with several candidate partition
attributes. The optimum of a problem is the sum of its components' optima.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from anabranch_planner.search.problem import EdgeId, Goal, PlanProblem, Sub

#: Components of at most ``SMALL`` flow variables are solved in batches of ``BATCH * SMALL``.
SMALL, BATCH = 150, 40


@dataclass(frozen=True, slots=True)
class SubProblem:
    """A planning problem with a subset of the goals of a larger one.

    Attributes:
        goals: for every goal of ``problem``, its index in the larger problem.
    """

    problem: PlanProblem
    goals: tuple[int, ...]


def split(problem: PlanProblem) -> list[SubProblem]:
    """Split ``problem`` into components that can be planned independently.

    With a memory budget all stores compete, so the problem is one component. With a cap on
    intermediate results, all goals that may probe one are in one component.
    """
    parent = list(range(len(problem.goals)))

    def find(g: int) -> int:
        while parent[g] != g:
            parent[g] = parent[parent[g]]
            g = parent[g]
        return g

    def join(one: int, other: int) -> None:
        one, other = find(one), find(other)
        parent[max(one, other)] = min(one, other)

    target, mirs, charged = problem.graph.target, problem.mirs, problem.charged
    contested = {s for s, found in problem.partitions.items() if charged and len(found) > 1}
    first_edge: dict[EdgeId, int] = {}
    first_store: dict[Sub, int] = {}
    for g, goal in enumerate(problem.goals):
        for e in goal.edges:
            known = first_edge.setdefault(e, g)
            if known != g:
                join(known, g)
            store = target[e]
            if store in mirs:
                join(mirs[store][0], g)
            elif store in contested:
                join(first_store.setdefault(store, g), g)
    for found in mirs.values():
        for g in found:
            join(found[0], g)
    if problem.most_mirs is not None:
        upkeep = [found[0] for found in mirs.values() if found]
        for g in upkeep[1:]:
            join(upkeep[0], g)
    if problem.memory is not None:
        for g in range(1, len(parent)):
            join(0, g)
    members: dict[int, list[int]] = {}
    for g in range(len(parent)):
        members.setdefault(find(g), []).append(g)
    if len(members) == 1:
        return [SubProblem(problem, tuple(range(len(parent))))]
    ranks = _ranks(problem)
    return [_part(problem, goals, ranks) for goals in members.values()]


def join(problem: PlanProblem, parts: Sequence[SubProblem]) -> SubProblem:
    """Combine several components of ``problem`` to one sub-problem."""
    return _part(problem, [g for part in parts for g in part.goals], _ranks(problem))


def _ranks(problem: PlanProblem) -> dict[Sub, int]:
    return {store: rank for rank, store in enumerate(problem.required)}


def _part(problem: PlanProblem, members: list[int], ranks: dict[Sub, int]) -> SubProblem:
    return _build(problem, members, {g: problem.goals[g] for g in members}, ranks)


def _build(
    problem: PlanProblem, members: Iterable[int], goals: dict[int, Goal], ranks: dict[Sub, int]
) -> SubProblem:
    """The sub-problem with the goals ``members`` (indices). It does not loop over other goals,
    because a problem may have a thousand components."""
    order = list(members)
    at = {g: i for i, g in enumerate(order)}
    kept = dict.fromkeys(goal.mir for g in order if (goal := goals[g]).mir is not None)
    mirs = {m: tuple(at[g] for g in problem.mirs[m]) for m in kept}
    target = problem.graph.target
    used = {target[e] for g in order for e in goals[g].edges}
    required = tuple(sorted(used & ranks.keys(), key=ranks.__getitem__))
    stores = (*required, *mirs)
    part = replace(
        problem,
        goals=tuple(goals[g] for g in order),
        mirs=mirs,
        required=required,
        partitions={s: problem.partitions[s] for s in stores},
        inserts={s: problem.inserts[s] for s in stores},
    )
    return SubProblem(part, tuple(order))


def restrict(
    problem: PlanProblem, allowed: Callable[[int, EdgeId], bool], alive: Collection[Sub]
) -> SubProblem | None:
    """Restrict ``problem`` to some edges per goal, and to some intermediate results.

    Args:
        allowed: whether a goal (by its index) may use an edge.
        alive: the intermediate results that may be kept. If a goal of one of them no longer has a
            path, it is dropped with all edges that probe it.

    Returns:
        None if a goal of a query has no path left.
    """
    graph, kept = problem.graph, {m: None for m in problem.mirs if m in alive}
    while True:
        goals: dict[int, Goal] = {}
        gone: Sub | None = None
        order = [g for g, goal in enumerate(problem.goals) if goal.mir is None or goal.mir in kept]
        for g in order:
            goal = problem.goals[g]
            reached, forward = {goal.root}, []
            for e in goal.edges:
                store = graph.target[e]
                if (
                    graph.tail[e] in reached
                    and (store in kept or store not in problem.mirs)
                    and allowed(g, e)
                ):
                    reached.add(graph.head[e])
                    forward.append(e)
            if goal.sink not in reached:
                if goal.mir is None:
                    return None
                gone = goal.mir
                break
            useful, edges = {goal.sink}, []
            for e in reversed(forward):
                if graph.head[e] in useful:
                    useful.add(graph.tail[e])
                    edges.append(e)
            edges.reverse()
            goals[g] = goal if len(edges) == len(goal.edges) else replace(goal, edges=tuple(edges))
        if gone is None:
            return _keep_required(problem, _build(problem, order, goals, _ranks(problem)))
        del kept[gone]


def _keep_required(problem: PlanProblem, part: SubProblem) -> SubProblem:
    """``part`` with all base stores of ``problem``: each costs a copy even if not probed."""
    stores = (*problem.required, *part.problem.mirs)
    whole = replace(
        part.problem,
        required=problem.required,
        partitions={s: problem.partitions[s] for s in stores},
        inserts={s: problem.inserts[s] for s in stores},
    )
    return SubProblem(whole, part.goals)


def batches(parts: Sequence[SubProblem]) -> list[list[SubProblem]]:
    """Group components into batches: small ones together, each large one alone."""
    large = [[p] for p in parts if p.problem.flows > SMALL]
    small: list[list[SubProblem]] = []
    room = -1
    for part in parts:
        size = part.problem.flows
        if size > SMALL:
            continue
        if size > room:
            small.append([])
            room = SMALL * BATCH
        small[-1].append(part)
        room -= size
    return large + small
