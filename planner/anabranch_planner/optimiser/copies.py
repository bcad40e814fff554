"""Which copies of each store to keep, given which steps probe it.

Given the steps, stores are independent of each other: for one store, every step is routed if the
copies include one whose partition attribute the probing tuple knows, and is broadcast to one of
the copies if not. That is a small covering problem per store, solved exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from anabranch_planner.model import AttrRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch_planner.mir import MirId
    from anabranch_planner.optimiser.problem import Edge, Problem

#: Candidate attributes per store up to which every subset is tried.
MAX_ATTRIBUTES = 12


@dataclass(frozen=True, slots=True)
class Access:
    """How a step reaches its store: by which copy, and whether it must ask every partition."""

    broadcast: bool
    partition: AttrRef | None


def attribute_rank(attribute: AttrRef | None) -> tuple[str, ...]:
    """A sort key for partition attributes: none first, then by name."""
    return () if attribute is None else (attribute.label, attribute.attribute)


#: The copies of one store, by partition attribute.
Kept = tuple[AttrRef | None, ...]


def choose_copies(
    problem: Problem, steps: Iterable[Edge]
) -> tuple[dict[Edge, Access], dict[MirId, Kept]]:
    """The cheapest copies for ``steps`` (distinct edges), and each step's access.

    Every required base store has at least one copy, probed or not. Ties go to fewer copies,
    then to the smaller attributes.
    """
    probes: dict[MirId, list[Edge]] = {m: [] for m in problem.required}
    for edge in steps:
        probes.setdefault(edge.target, []).append(edge)
    accesses: dict[Edge, Access] = {}
    copies: dict[MirId, Kept] = {}
    for store, edges in sorted(probes.items()):
        kept = _cover(problem, store, edges)
        copies[store] = kept
        accesses.update({edge: access_by(edge, kept) for edge in edges})
    return accesses, copies


def access_by(edge: Edge, kept: Kept) -> Access:
    """How ``edge`` probes a store of which the copies ``kept`` exist (at least one)."""
    if kept == (None,):
        return Access(False, None)
    routed = [a for a in kept if a in edge.known]
    return Access(False, routed[0]) if routed else Access(True, kept[0])


def _cover(problem: Problem, store: MirId, edges: list[Edge]) -> Kept:
    candidates = problem.partitions[store]
    if not candidates:
        return (None,)
    useful = [a for a in candidates if any(a in e.known for e in edges)] or [candidates[0]]

    def price(kept: tuple[AttrRef, ...]) -> float:
        chi = problem.model.chi(broadcast=True)
        probing = sum(e.cost if any(a in e.known for a in kept) else e.cost * chi for e in edges)
        return len(kept) * problem.inserts[store] + probing

    if len(useful) <= MAX_ATTRIBUTES:
        subsets = (c for size in range(1, len(useful) + 1) for c in combinations(useful, size))
        return min(subsets, key=lambda c: (price(c), len(c), c))
    kept: tuple[AttrRef, ...] = min(((a,) for a in useful), key=lambda c: (price(c), c))
    while True:
        grown = [tuple(sorted((*kept, a))) for a in useful if a not in kept]
        best = min(grown, key=lambda c: (price(c), c), default=kept)
        if price(best) >= price(kept):
            return kept
        kept = best
