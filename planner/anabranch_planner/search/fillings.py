"""Requirements on store copies by any probe order of a goal, as rows of the integer program.

A path (probe order) to the aliases ``K`` adds each alias but the first once: by an edge that probes
the alias's base store (the edge *fills* the alias from that store), or an MIR with the alias. A
probed MIR is kept, so its maintenance fills the alias, too, from each of the MIR's other aliases,
and so on through ever smaller MIRs. Finally a step probes the base store, and its tuples have only
certain attributes: the store has a copy by one of them, or the step is broadcast.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from anabranch_contract.queries.joins import Label
from anabranch_planner.search.problem import EdgeId, Goal, PlanProblem, Sub

#: A base store and the alias whose rows it adds; or an intermediate result's store and None.
Place = tuple["Sub", "Label | None"]


class FillingNeed(NamedTuple):
    """Requirement on a store: a copy by one of the attributes in the mask ``known``, or a broadcast
    by one of ``steps``."""

    known: int
    steps: frozenset[EdgeId]


#: Base store and alias of an intermediate result -> requirement of the result's maintenance.
Upkeep = dict[Place, FillingNeed]
NO_STEPS: frozenset[EdgeId] = frozenset()


def needs(problem: PlanProblem, broadcast: Collection[EdgeId]) -> dict[Sub, Upkeep]:
    """Intermediate result -> requirements of its maintenance on base stores, whatever the orders.

    Args:
        broadcast: the steps that may be broadcast.
    """
    found: dict[Sub, Upkeep] = {}
    for mir in problem.graph.smaller_first(problem.mirs):
        # Maintenance begins with every other alias, so take the most restrictive requirement.
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
    """Store (and alias) -> a goal's edges that cause it to be probed, directly or by the
    maintenance of a probed intermediate result; each with the requirement on the store if the edge
    is chosen.
    Args:
        upkeep: the requirements of the intermediate results that the goal may probe."""
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
    """The requirement on store copies that one of the requirements ``ways`` is satisfied."""
    known, steps = 0, NO_STEPS
    for need in ways:
        known |= need.known
        if need.steps:
            steps |= need.steps
    return FillingNeed(known, steps)


def _choice(need: FillingNeed) -> tuple[int, int, int]:
    return need.known.bit_count(), len(need.steps), need.known
