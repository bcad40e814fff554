"""How paths fill their labels: from a base store, or from an intermediate result.

A path that ends with the labels ``K`` fills each of them once, except its start: by an edge that
probes the label's base store, or by an edge that probes an MIR with the label. A probed MIR is
kept, so its upkeep fills the label, too, from each of the MIR's other labels, and so on through
ever smaller MIRs. Finally a step probes the base store, and knows only certain attributes: either
the store has a copy by one of them, or the step is broadcast.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from anabranch_contract.queries.joins import Label
from anabranch_planner.search.problem import EdgeId, Goal, PlanProblem, Sub

#: A base store and the label that it fills (one store may fill several); or (MIR's store, None).
Place = tuple["Sub", "Label | None"]


class FillingNeed(NamedTuple):
    """Requirement for filling a place: a copy of its store by an attribute in the mask ``known``,
    or a broadcast of one of ``steps``.
    """

    known: int
    steps: frozenset[EdgeId]


#: The requirements of an MIR's upkeep at the base stores of its labels.
Upkeep = dict[Place, FillingNeed]
NO_STEPS: frozenset[EdgeId] = frozenset()


def needs(problem: PlanProblem, broadcast: Collection[EdgeId]) -> dict[Sub, Upkeep]:
    """Requirements that the upkeep of each MIR has for every choice of orders.

    Args:
        broadcast: the steps that may be broadcast.
    """
    found: dict[Sub, Upkeep] = {}
    for mir in problem.graph.smaller_first(problem.mirs):
        # The upkeep from every start fills the label, so the most restrictive one counts.
        least: Upkeep = {}
        for g in problem.mirs[mir]:
            for place, ways in fillings(problem, problem.goals[g], found, broadcast).items():
                if place[1] is not None:
                    one = either(need for _, need in ways)
                    known = least.get(place)
                    if known is None or _choice(one) < _choice(known):
                        least[place] = one
        found[mir] = least
    return found


def fillings(
    problem: PlanProblem, goal: Goal, upkeep: dict[Sub, Upkeep], broadcast: Collection[EdgeId]
) -> dict[Place, list[tuple[EdgeId, FillingNeed]]]:
    """The edges by which a path may fill each place that has a choice of copies, and their needs.

    Args:
        upkeep: the requirements of the MIRs that the goal may probe.
    """
    graph, partitions = problem.graph, problem.partitions
    found: dict[Place, list[tuple[EdgeId, FillingNeed]]] = {}
    for e in goal.edges:
        store = graph.target[e]
        inside = upkeep[store] if store in problem.mirs else None
        if inside is not None:
            for place, need in inside.items():
                found.setdefault(place, []).append((e, need))
        if len(partitions[store]) > 1:
            label = graph.members(e)[0] if inside is None else None
            need = FillingNeed(graph.known[e], frozenset((e,)) if e in broadcast else NO_STEPS)
            found.setdefault((store, label), []).append((e, need))
    return found


def either(ways: Iterable[FillingNeed]) -> FillingNeed:
    """The weakest requirement implied by each of ``ways``: the union of their alternatives."""
    known, steps = 0, NO_STEPS
    for need in ways:
        known |= need.known
        if need.steps:
            steps |= need.steps
    return FillingNeed(known, steps)


def _choice(need: FillingNeed) -> tuple[int, int, int]:
    return need.known.bit_count(), len(need.steps), need.known
