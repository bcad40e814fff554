"""Cost of a plan without one of its intermediate results: what the stored result saves.

Instead of the result's store, probe orders take a *detour*: they probe other stores of the plan,
one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum

from anabranch_contract.plans.plan import Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, join_keys
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import Labels, Path, Prefix, SubJoins, Trail, Trails
from anabranch_planner.cost.validate import knows
from anabranch_planner.search.copies import attribute_rank

#: Owner, store and partition attribute of a copy.
Access = tuple[str, MirId, AttrRef | None]


class DetourCosts:
    """Additional cost of a plan without one of its stores, computed from the plan's own steps.

    It counts the probe orders that use each step and store copy. Without the store some uses end
    and others begin; a step or copy that loses all uses costs nothing. The time is proportional to
    the number of affected orders, not to the plan's size.
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
        self._probes = Counter((p.owner, step.target) for p, step in self._known.items())
        self._copies: dict[tuple[str, MirId], list[StoreCopy]] = {}
        for copy in plan.copies:
            self._copies.setdefault((copy.owner, copy.mir), []).append(copy)
        self._bases = {m.id for m in plan.mirs if m.is_base}

    def saving(self, owner: str, mir: MirId) -> tuple[float, float]:
        """The cost that the store of ``mir`` saves in probes, and the cost of its upkeep.

        Upkeep consists of inserts into the store's copies, and of the probe steps that only its
        maintenance needs, or only the maintenance of stores that these steps probe.
        """
        new: dict[Prefix, Step] = {}
        detour = Detours(self._plan, self._subs, mir, self._model, owner)
        uses: Counter[Prefix] = Counter()
        rerouted = self._probing.get((owner, mir), [])
        for index in rerouted:
            path = [self._found.steps[p] for p in self._found.orders[index]]
            uses.update(detour.reroute(self._plan.orders[index], path, new, self._known).keys())
        probes = self._probes + Counter((owner, step.target) for step in new.values())
        accesses = self._accesses + Counter(_access(p, step) for p, step in new.items())
        dead: list[Prefix] = []

        def lose(index: int) -> list[tuple[str, MirId]]:
            """Remove a plan's uses by an order; return the stores that no order probes any more."""
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
        for store in pending:  # the loop appends to it
            for index in self._upkeep.get(store, ()):
                dropped.update(self._found.orders[index])
                pending += [s for s in lose(index) if s[1] not in self._bases and s not in pending]
        inserts = self._dropped_inserts(accesses)
        saved = (*(s.cost for s in new.values()), *(-self._known[p].cost for p in dead), -inserts)
        upkeep = (self._known[p].cost for p, n in dropped.items() if n == self._uses[p])
        return fsum(saved), fsum((*upkeep, inserts))

    def _dropped_inserts(self, accesses: Counter[Access]) -> float:
        """Saved cost of inserts into the store copies that are no longer probed without a store.

        A base relation keeps its first copy if no other copy is left; an intermediate result that
        is no longer probed keeps no copy.
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
    return prefix.owner, step.target, step.partition


class Detours:
    """Finds the cheapest replacement for probes of one store among a plan's other stores."""

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
        """The steps of ``order`` after its probes are replaced by detours, by prefix.

        Equal prefixes share a step. A step in neither ``known`` (the plan's) nor ``new`` is added.
        """
        taken: list[Step] = []
        for trail in path:
            around = trail.step.target == self._without
            taken += self.around(trail) if around else [trail.step]
        query = path[-1].query
        head: Labels = frozenset({order.start})
        path_taken: Path = ()
        chosen = {}
        for step in taken:
            head |= frozenset(step.members)
            after = self._subs.of(query, head).id
            path_taken = (*path_taken, (step.target, step.members, after))
            key = Prefix(order.owner, order.start, path_taken, order.substream)
            chosen[key] = known[key] if key in known else new.setdefault(key, step)
        return chosen

    def around(self, trail: Trail) -> list[Step]:
        """The cheapest detour: probes of other stores that join the same relations as ``trail``.

        Dynamic programming over the sets of aliases joined in between, smaller sets first.
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
        """Stores of the plan whose aliases are a subset of ``members``, each with its aliases."""
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
        """The probe step of a detour that adds ``labels`` from ``store`` after ``head``."""
        query = trail.query
        bare = Step(store.id, tuple(sorted(labels)), None, False, 0.0, 0.0)
        kept = sorted(self._copies[store.id], key=attribute_rank)
        routed = [
            a for a in kept if knows(query, head, replace(bare, partition=a), {store.id: store})
        ]
        before, after = self._subs.of(query, head), self._subs.of(query, head | labels)
        return replace(
            bare,
            partition=routed[0] if routed else kept[0],
            broadcast=not routed,
            cost=self._model.step(
                before, after, store.id, trail.start, trail.substream, broadcast=not routed
            ),
            cardinality=self._model.probe(after, trail.start, trail.substream),
        )


def _rank(reached: tuple[float, list[Step]]) -> tuple[float, list[MirId]]:
    """Sort key of detours: cost, then the stores that they probe."""
    return reached[0], [s.target for s in reached[1]]
