"""Choice of store copies (partition attributes) for given probe steps.

For given steps, stores are independent of each other. In a store, a step is routed if the probing
tuple has the partition attribute of one of the copies; otherwise it is broadcast to one of the
copies. Choosing the copies is a small covering problem per store, solved exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from anabranch_contract.queries.joins import AttrRef
from anabranch_planner.search.problem import EdgeId, PlanProblem, Sub

#: Maximum number of a store's candidate attributes for which all subsets are tried.
MAX_ATTRIBUTES = 8
#: Fraction by which a plan may exceed the memory budget; greater than solvers' tolerances.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class CopyAccess:
    """The store copy that a step probes, and whether it is broadcast to all partitions."""

    broadcast: bool
    partition: AttrRef | None


def attribute_rank(attribute: AttrRef | None) -> tuple[str, ...]:
    """Sort key of store copies' partition attributes: None (no attribute) first, then by name."""
    return () if attribute is None else (attribute.label, attribute.attribute)


#: Partition attributes of the chosen copies of one store.
Kept = tuple[AttrRef | None, ...]


def choose_copies(
    problem: PlanProblem, steps: Iterable[EdgeId], given: Mapping[Sub, Kept] | None = None
) -> tuple[dict[EdgeId, CopyAccess], dict[Sub, Kept]]:
    """The cheapest store copies for ``steps`` (distinct edges), and the copy that each step probes.

    Every required base store has at least one copy, even if unprobed. Of equally cheap choices the
    one with fewer copies wins, then by attribute names. The problem's ``most_copies`` is respected,
    and so is its ``memory``, but only greedily: copies are dropped one by one (the exact choice is
    made by the integer program, see :func:`decided`).

    Args:
        given: store -> its fixed copies; copies that no step uses are dropped.
    """
    target = problem.graph.target
    probes: dict[Sub, list[EdgeId]] = {m: [] for m in problem.required}
    for edge in steps:
        probes.setdefault(target[edge], []).append(edge)
    given = given or {}
    copies = {
        s: _used(problem, edges, given[s]) if given.get(s) else _cover(problem, s, edges)
        for s, edges in probes.items()
    }
    if problem.memory is not None:
        _fit(problem, probes, copies)
    accesses: dict[EdgeId, CopyAccess] = {}
    for store, edges in probes.items():
        _reach(problem, store, edges, copies[store], accesses)
    return accesses, copies


def _reach(
    problem: PlanProblem,
    store: Sub,
    edges: list[EdgeId],
    kept: Kept,
    accesses: dict[EdgeId, CopyAccess],
) -> None:
    """Set the copy of ``store`` that each of ``edges`` probes, as by :func:`access_by`."""
    if kept == (None,):
        accesses.update(dict.fromkeys(edges, CopyAccess(False, None)))
        return
    candidates, known = problem.partitions[store], problem.graph.known
    routed = [(1 << i, CopyAccess(False, a)) for i, a in enumerate(candidates) if a in kept]
    broadcast = CopyAccess(True, kept[0])
    for e in edges:
        accesses[e] = next((access for bit, access in routed if known[e] & bit), broadcast)


def _fit(problem: PlanProblem, probes: dict[Sub, list[EdgeId]], copies: dict[Sub, Kept]) -> None:
    """Drop store copies until memory suffices, least cost per byte first; each store keeps one."""
    size = problem.bytes
    while not fits(problem, copies):
        options = [
            ((_priced(problem, edges, less) - _priced(problem, edges, kept)) / size[s], s, less)
            for s, edges in probes.items()
            if size[s] > 0 and len(kept := copies[s]) > 1
            for less in combinations(kept, len(kept) - 1)
        ]
        if not options:
            return
        _, store, copies[store] = min(options, key=lambda o: o[:2])


def fits(problem: PlanProblem, copies: Mapping[Sub, Kept]) -> bool:
    """Whether ``copies`` fit the memory budget, which :data:`ROUNDING` allows them to exceed."""
    held = sum(problem.bytes[store] * len(kept) for store, kept in copies.items())
    return problem.memory is None or held <= problem.memory * (1 + ROUNDING)


def decided(problem: PlanProblem, copies: Mapping[Sub, Kept]) -> dict[Sub, Kept]:
    """The store copies of a solution that :func:`choose_copies` might not find from its routes.

    With a memory budget these are all copies, otherwise the copies of stores with too many
    attributes for trying every subset.
    """
    if problem.memory is not None:
        return dict(copies)
    if not problem.charged:
        return {}
    return {s: k for s, k in copies.items() if len(problem.partitions[s]) > MAX_ATTRIBUTES}


def _used(problem: PlanProblem, edges: list[EdgeId], kept: Kept) -> Kept:
    used = {access_by(problem, e, kept).partition for e in edges}
    return tuple(a for a in kept if a in used) or kept[:1]


def _priced(problem: PlanProblem, edges: list[EdgeId], kept: Kept) -> float:
    """Total additional cost of broadcasts by ``edges`` if the store has the copies ``kept``."""
    spread = problem.graph.spread
    return sum(spread[e] for e in edges if access_by(problem, e, kept).broadcast)


def access_by(problem: PlanProblem, edge: EdgeId, kept: Kept) -> CopyAccess:
    """The copy of ``kept`` (at least one) that ``edge`` probes, and whether as a broadcast."""
    if kept == (None,):
        return CopyAccess(False, None)
    known = problem.graph.known[edge]
    for i, attribute in enumerate(problem.partitions[problem.graph.target[edge]]):
        if known >> i & 1 and attribute in kept:
            return CopyAccess(False, attribute)
    return CopyAccess(True, kept[0])


def _cover(problem: PlanProblem, store: Sub, edges: list[EdgeId]) -> Kept:
    """The cheapest copies of ``store`` for the steps ``edges``, by trying subsets."""
    candidates = problem.partitions[store]
    if not candidates:
        return (None,)
    spread, all_known = problem.graph.spread, problem.graph.known
    # Steps whose tuples have the same attributes are either all routed or all broadcast.
    groups: dict[int, float] = {}
    known = 0
    for e in edges:
        known |= all_known[e]
        groups[all_known[e]] = groups.get(all_known[e], 0.0) + spread[e]
    prices = {i: problem.copy_price(store, a) for i, a in enumerate(candidates)}
    useful = [i for i in prices if known >> i & 1]
    # A copy by an attribute that no probing tuple has only takes broadcasts. A copy that runs is
    # the cheapest of these, because others are charged for switching.
    others = min((i for i in prices if i not in useful), key=lambda i: (prices[i], i), default=0)
    if not useful or prices[others] < min(prices[i] for i in useful):
        useful = sorted({*useful, others})
    if len(useful) == 1:
        return (candidates[useful[0]],)
    most = len(useful) if problem.most_copies is None else problem.most_copies

    def price(kept: tuple[int, ...]) -> float:
        mask = 0
        for i in kept:
            mask |= 1 << i
        missed = sum(c for g, c in groups.items() if not g & mask)
        return sum(prices[i] for i in kept) + missed

    if len(useful) <= MAX_ATTRIBUTES:
        sizes = range(1, min(len(useful), most) + 1)
        subsets = (c for size in sizes for c in combinations(useful, size))
        return _named(candidates, min(subsets, key=lambda c: (price(c), len(c), c)))
    kept: tuple[int, ...] = min(((i,) for i in useful), key=lambda c: (price(c), c))
    while len(kept) < most:
        grown = [tuple(sorted((*kept, i))) for i in useful if i not in kept]
        best = min(grown, key=lambda c: (price(c), c), default=kept)
        if price(best) >= price(kept):
            break
        kept = best
    return _named(candidates, kept)


def _named(candidates: tuple[AttrRef, ...], kept: tuple[int, ...]) -> Kept:
    return tuple(candidates[i] for i in kept)
