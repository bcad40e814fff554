"""Optimal plans by brute force: the probe orders of Algorithm 1, with every set of copies per
store.

It uses the optimiser's candidates and cardinalities, but neither its graph of states nor its
integer program; orders share steps only if their prefixes are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from anabranch_contract.protocol.merging import merges, rewrites
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, base_mir, sub_join
from anabranch_planner.cost.footprint import StepKey
from anabranch_planner.cost.model import CostModel
from anabranch_planner.search.demands import DEFAULT_WIDTH, Limits, Switching
from anabranch_planner.search.printed.candidates import (
    CandidateOrder,
    candidate_orders,
    partition_candidates,
    sub_query,
)

Trail = tuple[object, ...]


@dataclass(frozen=True)
class _Step:
    store: Mir
    cost: float
    everywhere: float
    known: frozenset[AttrRef]
    key: StepKey


def cheapest(
    queries: Sequence[JoinQuery],
    model: CostModel,
    *,
    mir: bool,
    at_most: float = float("inf"),
    limits: Limits | None = None,
    switching: Switching | None = None,
) -> float:
    """Return the cost of the cheapest joint plan of ``queries``; infinite if above ``at_most``.

    With ``switching``, the cost includes its charges.
    """
    limits = limits or Limits()
    partitions = partition_candidates(queries)
    several = [q for q in queries if len(q.labels) > 1]
    required = {base_mir(r.id).id: base_mir(r.id) for q in several for r in q.relations}
    goals = [(str(q.id), q, start) for q in several for start in q.labels]
    # An absolute tolerance is added as well, since a plan may cost nothing.
    limit, best = at_most * (1 + 1e-9) + 1e-9, float("inf")
    inserts = sum(model.insert(store) for store in required.values())
    arrivals = {
        start: prices(model, model.cardinality(sub_join(query, frozenset({start}))), 0.0, "")[0]
        for _, query, start in goals
    }

    def at_least(steps: dict[Trail, _Step], pending: list[tuple[str, JoinQuery, Label]]) -> float:
        """Bound from below: all steps, all base stores, a first step of each start without one."""
        begun = {trail[0] for trail in steps}
        missing = {start for _, _, start in pending} - begun
        known = sum(s.cost + _charge(s, switching) for s in steps.values())
        return inserts + known + sum(arrivals[x] for x in missing)

    def total(steps: dict[Trail, _Step]) -> float:
        stores = {s.store.id: s.store for s in steps.values()} | required
        # (bytes, cost) of every way to choose copies of the stores so far, without dominated ones.
        ways = [(0.0, sum(_charge(s, switching) for s in steps.values()))]
        for store in stores.values():
            probes = [s for s in steps.values() if s.store.id == store.id]
            found = _copies(store, probes, partitions[store.id], model, limits, switching)
            ways = _best_ways([(b + o, c + p) for b, c in ways for o, p in found], limits)
        return min((cost for _, cost in ways), default=float("inf"))

    def search(
        pending: list[tuple[str, JoinQuery, Label]],
        done: frozenset[tuple[str, Label]],
        steps: dict[Trail, _Step],
    ) -> None:
        nonlocal best
        if at_least(steps, pending) >= min(best, limit):
            return
        if not pending:
            cost = total(steps)
            best = cost if cost <= min(best, limit) else best
            return
        (name, query, start), *rest = pending
        if (name, start) in done:
            search(rest, done, steps)
            return
        for added, more in options(name, query, start):
            kept = {s.store.id for s in (steps | added).values() if not s.store.is_base}
            if limits.mirs is not None and len(kept) > limits.mirs:
                continue
            search([*rest, *more], done | {(name, start)}, steps | added)

    def options(
        name: str, query: JoinQuery, start: Label
    ) -> list[tuple[dict[Trail, _Step], list[tuple[str, JoinQuery, Label]]]]:
        if (name, start) not in known_options:
            known_options[name, start] = [
                _steps(query, start, order, model)
                for order in candidate_orders(query, start, mir=mir)
            ]
        return known_options[name, start]

    known_options: dict[
        tuple[str, Label], list[tuple[dict[Trail, _Step], list[tuple[str, JoinQuery, Label]]]]
    ] = {}
    search(goals, frozenset(), {})
    return best


def _steps(
    query: JoinQuery, start: Label, order: CandidateOrder, model: CostModel
) -> tuple[dict[Trail, _Step], list[tuple[str, JoinQuery, Label]]]:
    """Return the steps of an order by their prefixes, and the goals of the MIRs that it probes."""
    steps: dict[Trail, _Step] = {}
    goals: list[tuple[str, JoinQuery, Label]] = []
    head = frozenset({start})
    trail: Trail = (start,)
    for probe in order:
        members = frozenset(probe.members)
        store = sub_join(query, members)
        before, after = sub_join(query, head), sub_join(query, head | members)
        trail = (*trail, probe.target, probe.members, after.id)
        key = StepKey(start, before.id, after.id, store.id, tuple(sorted(members)))
        sent = model.cardinality(before) / len(head)
        made = model.cardinality(after) / (len(head) + len(members))
        cost, everywhere = prices(model, sent, made, store.id)
        steps[trail] = _Step(store, cost, everywhere, _known(query, head, members, store), key)
        if not store.is_base:
            inner = sub_query(query, frozenset(store.members))
            goals += [(store.id, inner, label) for label in store.members]
        head |= members
    return steps, goals


def prices(model: CostModel, sent: float, made: float, store: str) -> tuple[float, float]:
    """Return the price of a step that knows its partition, and of one that does not."""
    known = model.constants
    if known is None:
        return sent, sent * model.parallelism
    fixed = known.call * known.calls + sent * known.probe + made * known.match
    look = sent * known.look * known.looks.get(MirId(store), 1.0)
    return fixed + look, fixed + look * model.parallelism


def insert_price(model: CostModel, store: Mir) -> float:
    """Return the price of a copy's inserts and merges, whether or not they are charged."""
    known, added = model.constants, model.cardinality(store)
    times = rewrites(model.batches)
    if known is None:
        return added * (1 + times)
    writes = known.write + known.merge * merges(times)
    return writes * known.calls + added * (known.row + known.rewrite * times)


def _charge(step: _Step, switching: Switching | None) -> float:
    if switching is None or step.key in switching.running.steps:
        return 0.0
    return switching.weight * step.cost


def _copies(
    store: Mir,
    probes: list[_Step],
    attributes: tuple[AttrRef, ...],
    model: CostModel,
    limits: Limits,
    switching: Switching | None,
) -> list[tuple[float, float]]:
    """Return bytes and cost (including probes) of every set of copies of one store."""
    candidates = attributes if model.partitioned else (None,)
    size = model.cardinality(store) * sum(
        limits.widths.get(r, DEFAULT_WIDTH) for r in store.relations
    )
    found = []
    for count in range(1, min(len(candidates), limits.copies or len(candidates)) + 1):
        for kept in combinations(candidates, count):
            cost = model.insert(store) * count
            for p in probes:
                routed = kept == (None,) or p.known & set(kept)
                cost += p.cost if routed else p.everywhere
            if switching is not None:
                new = [a for a in kept if (store.id, a) not in switching.running.copies]
                cost += switching.weight * insert_price(model, store) * len(new)
            found.append((size * count, cost))
    return _best_ways(found, limits)


def _best_ways(ways: list[tuple[float, float]], limits: Limits) -> list[tuple[float, float]]:
    """Return the Pareto-optimal ways (bytes, cost) within the memory limit."""
    best: list[tuple[float, float]] = []
    room = float("inf") if limits.memory is None else limits.memory * (1 + 1e-9)
    for size, cost in sorted(ways):
        if size <= room and (not best or cost < best[-1][1]):
            best.append((size, cost))
    return best


def _known(
    query: JoinQuery, head: frozenset[Label], members: frozenset[Label], store: Mir
) -> frozenset[AttrRef]:
    found = set()
    for key_class in query.classes:
        if {m.label for m in key_class.members} & head:
            for m in key_class.members:
                if m.label in members:
                    base = Label(store.relations[0])
                    found.add(AttrRef(base, m.attribute) if store.is_base else m)
    return frozenset(found)
