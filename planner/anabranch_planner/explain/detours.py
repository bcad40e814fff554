"""A plan without one of its intermediate results: detours in place of every probe of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING

from anabranch_contract.plans.plan import Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.queries.joins import AttrRef
from anabranch_contract.queries.mirs import Mir, MirId, base_mir, join_keys
from anabranch_planner.cost.steps import Labels, SubJoins, Trail, Trails, trails
from anabranch_planner.cost.validate import Prefix, knows
from anabranch_planner.search.copies import attribute_rank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch_contract.queries.joins import JoinQuery, Label
    from anabranch_planner.cost.model import CostModel

#: Owner, store and partition attribute of a copy.
Access = tuple[str, MirId, AttrRef | None]


def without(
    plan: Plan,
    queries: Sequence[JoinQuery],
    mir: MirId,
    model: CostModel,
    *,
    owner: str = "",
    found: Trails | None = None,
) -> Plan:
    """``plan`` with detours in place of every probe of ``owner``'s store ``mir``.

    A valid plan if ``plan`` is one. Equal prefixes keep one access: a step that the plan, or a
    detour before, has already is taken as it is there.
    """
    found = found or trails(plan, queries)
    detour = _Detours(plan, SubJoins(queries), mir, model, owner)
    known = {prefix: trail.step for prefix, trail in found.steps.items()}
    new: dict[Prefix, Step] = {}
    orders = []
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        if order.owner != owner or (order.maintains and order.goal == mir):
            orders.append(order)
            continue
        if any(step.target == mir for step in order.steps):
            taken = detour.reroute(order, [found.steps[p] for p in prefixes], new, known)
            order = replace(order, steps=tuple(taken.values()))
        orders.append(order)
    return _needed(replace(plan, orders=tuple(orders)), queries, mir, owner)


class Ledger:
    """What :func:`without` would cost more, store by store, without making the plans.

    The plan's steps and copies are counted by what uses them. Doing without a store takes some
    uses away and adds others; whatever is left without a use is no longer paid. That takes time
    in proportion to the orders that are concerned, not to the plan.
    """

    def __init__(
        self, plan: Plan, queries: Sequence[JoinQuery], model: CostModel, found: Trails
    ) -> None:
        self._plan = plan
        self._model = model
        self._found = found
        self._subs = SubJoins(queries)
        self._known = {prefix: trail.step for prefix, trail in found.steps.items()}
        self._probing: dict[tuple[str, MirId], list[int]] = {}
        self._upkeep: dict[tuple[str, MirId], list[int]] = {}
        self._uses: Counter[Prefix] = Counter()
        for index, (order, prefixes) in enumerate(zip(plan.orders, found.orders, strict=True)):
            self._uses.update(prefixes)
            for target in {step.target for step in order.steps}:
                self._probing.setdefault((order.owner, target), []).append(index)
            if order.maintains:
                self._upkeep.setdefault((order.owner, MirId(order.goal)), []).append(index)
        self._accesses = Counter(_access(p, step) for p, step in self._known.items())
        self._probes = Counter((p[0], step.target) for p, step in self._known.items())
        self._copies: dict[tuple[str, MirId], list[StoreCopy]] = {}
        for copy in plan.copies:
            self._copies.setdefault((copy.owner, copy.mir), []).append(copy)
        self._bases = {m.id for m in plan.mirs if m.is_base}

    def saving(self, owner: str, mir: MirId) -> tuple[float, float]:
        """What the plan would cost more without the store, and what its upkeep costs now.

        Upkeep is what goes with the store: steps that only its maintenance needs (or that of a
        store which only its maintenance probes), and copies.
        """
        new: dict[Prefix, Step] = {}
        detour = _Detours(self._plan, self._subs, mir, self._model, owner)
        uses: Counter[Prefix] = Counter()
        rerouted = self._probing.get((owner, mir), [])
        for index in rerouted:
            path = [self._found.steps[p] for p in self._found.orders[index]]
            uses.update(detour.reroute(self._plan.orders[index], path, new, self._known).keys())
        probes = self._probes + Counter((owner, step.target) for step in new.values())
        accesses = self._accesses + Counter(_access(p, step) for p, step in new.items())
        dead: list[Prefix] = []

        def lose(index: int) -> list[tuple[str, MirId]]:
            """Take away an order's uses; the stores that nothing probes any more."""
            idle = []
            for prefix in self._found.orders[index]:
                uses[prefix] -= 1
                if self._uses[prefix] + uses[prefix] == 0:
                    dead.append(prefix)
                    step = self._known[prefix]
                    accesses[_access(prefix, step)] -= 1
                    probes[owner, step.target] -= 1
                    if probes[owner, step.target] == 0:
                        idle.append((owner, step.target))
            return idle

        for index in rerouted:
            lose(index)
        dropped: Counter[Prefix] = Counter()
        pending = [(owner, mir)]
        for store in pending:  # grows while it is read
            for index in self._upkeep.get(store, ()):
                dropped.update(self._found.orders[index])
                pending += [s for s in lose(index) if s[1] not in self._bases and s not in pending]
        inserts = self._dropped_inserts(accesses)
        saved = (*(s.cost for s in new.values()), *(-self._known[p].cost for p in dead), -inserts)
        upkeep = (self._known[p].cost for p, n in dropped.items() if n == self._uses[p])
        return fsum(saved), fsum((*upkeep, inserts))

    def _dropped_inserts(self, accesses: Counter[Access]) -> float:
        """What the copies cost that were probed and are no longer.

        A base relation keeps its first copy if it would be left with none; an intermediate
        result that nothing probes any more keeps no copy.
        """
        gone = [a for a, n in self._accesses.items() if n > 0 and accesses[a] == 0]
        inserts = []
        for store in sorted({(a[0], a[1]) for a in gone}):
            copies = self._copies[store]
            lost = [c for c in copies if (c.owner, c.mir, c.partition) in gone]
            if store[1] in self._bases:
                lost = lost[1:] if len(lost) == len(copies) else lost
            elif not any(accesses[c.owner, c.mir, c.partition] for c in copies):
                lost = copies
            inserts += [c.insert_cost for c in lost]
        return fsum(inserts)


def _access(prefix: Prefix, step: Step) -> Access:
    return prefix[0], step.target, step.partition


class _Detours:
    """The cheapest ways around one store, by the stores that the plan keeps otherwise."""

    def __init__(
        self, plan: Plan, subs: SubJoins, mir: MirId, model: CostModel, owner: str
    ) -> None:
        self._subs = subs
        self._model = model
        self._without = mir
        self._mirs = [m for m in plan.mirs if not m.is_base]
        self._copies: dict[MirId, list[AttrRef | None]] = {}
        for copy in plan.copies:
            if copy.owner == owner and copy.mir != mir:
                self._copies.setdefault(copy.mir, []).append(copy.partition)

    def reroute(
        self,
        order: ProbeOrder,
        path: Sequence[Trail],
        new: dict[Prefix, Step],
        known: Mapping[Prefix, Step],
    ) -> dict[Prefix, Step]:
        """The order's steps with detours, each as ``known`` or ``new`` has it at that prefix.

        What neither has is added to ``new``, so that equal prefixes keep one access.
        """
        taken: list[Step] = []
        for trail in path:
            around = trail.step.target == self._without
            taken += self.around(trail) if around else [trail.step]
        query = path[-1].query
        head: Labels = frozenset({order.start})
        prefix: tuple[tuple[MirId, tuple[Label, ...], MirId], ...] = ()
        chosen = {}
        for step in taken:
            head |= frozenset(step.members)
            prefix = (*prefix, (step.target, step.members, self._subs.of(query, head).id))
            key = (order.owner, order.start, prefix)
            chosen[key] = known[key] if key in known else new.setdefault(key, step)
        return chosen

    def around(self, trail: Trail) -> list[Step]:
        """The cheapest probes from where the step begins to where it leads.

        Dynamic programming over the sets of labels in between, smaller ones first.
        """
        query, head = trail.query, trail.head
        goal = head | frozenset(trail.step.members)
        targets = self._targets(query, trail.step.members)
        best: dict[Labels, tuple[float, list[Step]]] = {head: (0.0, [])}
        pending = {head}
        while pending:
            at = min(pending, key=lambda labels: (len(labels), sorted(labels)))
            pending.remove(at)
            cost, taken = best[at]
            for labels, store in targets:
                if labels & at or not join_keys(query.classes, at, labels):
                    continue
                grown = at | labels
                added = self._step(trail, at, labels, store)
                reached = (cost + added.cost, [*taken, added])
                if grown not in best or _rank(reached) < _rank(best[grown]):
                    best[grown] = reached
                    pending.add(grown)
        return best[goal][1]

    def _targets(self, query: JoinQuery, members: tuple[Label, ...]) -> list[tuple[Labels, Mir]]:
        """The stores that can fill some of ``members``, and which."""
        inside = frozenset(members)
        found = [
            (frozenset(m.members), m)
            for m in self._mirs
            if m.id in self._copies
            and inside.issuperset(m.members)
            and self._subs.of(query, frozenset(m.members)).id == m.id
        ]
        single = [frozenset({label}) for label in members]
        return found + [(labels, self._subs.of(query, labels)) for labels in single]

    def _step(self, trail: Trail, head: Labels, labels: Labels, store: Mir) -> Step:
        query = trail.query
        bare = Step(store.id, tuple(sorted(labels)), None, False, 0.0, 0.0)
        kept = sorted(self._copies[store.id], key=attribute_rank)
        routed = [
            a
            for a in kept
            if a is None or knows(query, head, replace(bare, partition=a), {store.id: store})
        ]
        sent = self._model.probe(self._subs.of(query, head), trail.start)
        return replace(
            bare,
            partition=routed[0] if routed else kept[0],
            broadcast=not routed,
            cost=sent * self._model.chi(broadcast=not routed),
            cardinality=self._model.probe(self._subs.of(query, head | labels), trail.start),
        )


def _rank(reached: tuple[float, list[Step]]) -> tuple[float, list[MirId]]:
    return reached[0], [s.target for s in reached[1]]


def _needed(plan: Plan, queries: Sequence[JoinQuery], gone: MirId, owner: str) -> Plan:
    """``plan`` without the orders and copies that nothing needs once ``gone`` is not probed."""
    upkeep: dict[tuple[str, str], list[ProbeOrder]] = {}
    for order in plan.orders:
        if order.maintains:
            upkeep.setdefault((order.owner, order.goal), []).append(order)
    orders = [o for o in plan.orders if not o.maintains]
    maintained: set[tuple[str, str]] = set()
    for order in orders:  # grows while it is read
        for step in order.steps:
            goal = (order.owner, str(step.target))
            if goal not in maintained:
                maintained.add(goal)
                orders += upkeep.get(goal, ())
    lost = {o for o, _ in upkeep.items() if o not in maintained} | {(owner, str(gone))}
    probed = {(o.owner, s.target, s.partition) for o in orders for s in o.steps}
    before = {(o.owner, s.target, s.partition) for o in plan.orders for s in o.steps}
    kept = [
        c
        for c in plan.copies
        if (c.owner, str(c.mir)) not in lost
        and ((c.owner, c.mir, c.partition) in probed or (c.owner, c.mir, c.partition) not in before)
    ]
    kept += _required(plan, queries, kept)
    mirs = {c.mir for c in kept}
    smaller = replace(
        plan,
        orders=tuple(o for o in plan.orders if not o.maintains or (o.owner, o.goal) not in lost),
        copies=tuple(sorted(kept, key=lambda c: (c.owner, c.mir, attribute_rank(c.partition)))),
        mirs=tuple(m for m in plan.mirs if m.id in mirs),
        method=f"{plan.method}, without {gone}",
    )
    cost = _cost(smaller, trails(smaller, queries))
    bound = min(plan.bound, cost)
    return replace(smaller, cost=cost, bound=bound, gap=(cost - bound) / cost if cost else 0.0)


def _required(
    plan: Plan, queries: Sequence[JoinQuery], kept: Sequence[StoreCopy]
) -> list[StoreCopy]:
    """The first copy of every base relation that has to be stored and is no longer."""
    owners = {o.goal: o.owner for o in plan.orders if not o.maintains}
    stored = {(c.owner, c.mir) for c in kept}
    wanted = {
        (owners[q.id], base_mir(r.id).id) for q in queries if len(q.labels) > 1 for r in q.relations
    } - stored
    first: dict[tuple[str, MirId], StoreCopy] = {}
    for copy in plan.copies:
        first.setdefault((copy.owner, copy.mir), copy)
    return [first[base] for base in sorted(wanted)]


def _cost(plan: Plan, found: Trails) -> float:
    steps = fsum(t.step.cost for t in found.steps.values())
    return fsum((steps, *(c.insert_cost for c in plan.copies)))
