"""The plan that a ruleset runs: its orders, intermediate results and store copies, read from rules.

A ruleset is compiled from a plan (:mod:`~anabranch_planner.plans.compile`); this is the inverse. So
a ruleset is enough to price, compare and revise the running plan under new statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.plan import Objective, Optimizer, Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.plans.ruleset import (
    Edge,
    ProbeRule,
    Ruleset,
    StoreId,
    StoreSpec,
    arrival_edge,
    substream_counts,
)
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, base_mir
from anabranch_planner.cost.footprint import Footprint, footprint_of
from anabranch_planner.cost.inferred import Inference
from anabranch_planner.cost.selectivity import PartNames
from anabranch_planner.cost.steps import SubJoins, Trails, trails
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.cost.validate import knows
from anabranch_planner.replan.there import StoresThere, owners
from anabranch_planner.search.building.builder import Builder
from anabranch_planner.search.copies import attribute_rank


@dataclass(frozen=True, slots=True)
class RunningPlan:
    """Plan of a running ruleset, and caches, computed once for all its revisions.

    Attributes:
        plan, trails, footprint: the running plan, without costs.
        subs, inference, bounds, names: caches of values that depend only on the queries' sub-joins.
        parts: owner -> its part of the plan.
    """

    ruleset: Ruleset
    queries: tuple[JoinQuery, ...]
    plan: Plan
    trails: Trails
    footprint: Footprint
    subs: SubJoins
    inference: Inference
    bounds: LoosestBounds
    names: PartNames
    parts: Mapping[str, OwnersPart]


@dataclass(slots=True)
class OwnersPart:
    """An owner's part of the running plan: its queries (all, or a single one), steps and copies.

    Attributes:
        builder: builder of their planning graph over the running stores; None until first needed.
    """

    queries: tuple[JoinQuery, ...]
    there: StoresThere
    footprint: Footprint
    builder: Builder | None = None


def running_plan(
    ruleset: Ruleset,
    queries: Sequence[JoinQuery],
    optimizer: Optimizer = Optimizer.CLASH,
    objective: Objective = Objective.TUPLES,
) -> RunningPlan:
    """The plan of ``ruleset``, with caches for its revisions; arguments as of :func:`plan_of`."""
    plan, subs = plan_of(ruleset, queries, optimizer, objective), SubJoins(queries)
    found = trails(plan, queries, subs)
    owner_of = owners(ruleset)
    parts = {}
    for owner in sorted({owner_of[q.id] for q in queries}):
        own = tuple(q for q in queries if owner_of[q.id] == owner)
        parts[owner] = OwnersPart(own, StoresThere(ruleset, owner), _part(plan, owner, own, subs))
    return RunningPlan(
        ruleset=ruleset,
        queries=tuple(queries),
        plan=plan,
        trails=found,
        footprint=footprint_of(plan, found),
        subs=subs,
        inference=Inference(queries, subs),
        bounds=LoosestBounds(queries),
        names=PartNames(),
        parts=parts,
    )


def _part(plan: Plan, owner: str, queries: Sequence[JoinQuery], subs: SubJoins) -> Footprint:
    mine = replace(
        plan,
        queries=tuple(q.id for q in queries),
        orders=tuple(replace(o, owner="") for o in plan.orders if o.owner == owner),
        copies=tuple(replace(c, owner="") for c in plan.copies if c.owner == owner),
    )
    return footprint_of(mine, trails(mine, queries, subs))


def plan_of(
    ruleset: Ruleset,
    queries: Sequence[JoinQuery],
    optimizer: Optimizer = Optimizer.CLASH,
    objective: Objective = Objective.TUPLES,
) -> Plan:
    """The plan that ``ruleset`` was compiled from, without costs (``cost.validate`` adds them).

    Args:
        queries: the queries of the ruleset.
        optimizer, objective: optimiser and objective of the plan; rules do not record them.

    Raises:
        RulesetError: a store or a query of the ruleset does not match ``queries``.
    """
    reader = _RulesetReader(ruleset, queries)
    orders = [*reader.query_orders(), *reader.upkeep_orders()]
    stores = reader.stores()
    copies = [StoreCopy(s.mir, _attribute(s), s.owner) for s in stores]
    return Plan(
        optimizer=optimizer,
        objective=objective,
        queries=tuple(sorted(q.id for q in queries)),
        orders=tuple(sorted(orders, key=lambda o: o.rank)),
        mirs=tuple(reader.mirs[m] for m in sorted(reader.mirs)),
        copies=tuple(sorted(copies, key=lambda c: (c.owner, c.mir, attribute_rank(c.partition)))),
        cost=0.0,
        bound=0.0,
        gap=0.0,
        method="read from rules",
        substreams=ruleset.substreams,
    )


class _RulesetReader:
    """Reconstructs the probe orders and stores of a plan from the rules compiled from it."""

    def __init__(self, ruleset: Ruleset, queries: Sequence[JoinQuery]) -> None:
        self._ruleset = ruleset
        self._queries = {q.id: q for q in queries}
        self._subs = SubJoins(queries)
        self._stores: dict[StoreId, StoreSpec] = {s.id: s for s in ruleset.stores}
        self._counts = substream_counts(ruleset.substreams)
        self._probes: dict[Edge, ProbeRule] = {p.out: p for p in ruleset.probe_rules}
        self.mirs: dict[MirId, Mir] = {s.mir: self._mir(s) for s in self.stores()}

    def stores(self) -> list[StoreSpec]:
        """Stores of the running plan, without stores kept only to find the latest tuple per key."""
        read = {r.id for q in self._queries.values() for r in q.relations}
        return [s for s in self._ruleset.stores if len(s.members) > 1 or s.relations[0] in read]

    def _mir(self, store: StoreSpec) -> Mir:
        if len(store.members) == 1:
            return base_mir(store.relations[0])
        return self._subs.of(self._containing(store), frozenset(store.members))

    def _containing(self, store: StoreSpec) -> JoinQuery:
        query = self._subs.containing(frozenset(store.members), store.mir)
        if query is None:
            raise RulesetError("bad-ruleset", f"no query contains the sub-join of {store.id}")
        return query

    def query_orders(self) -> list[ProbeOrder]:
        """The running plan's orders that answer queries: one per query, alias and substream."""
        found = []
        for rule in self._ruleset.output_rules:
            query = self._queries.get(rule.query)
            if query is None:
                raise RulesetError("bad-ruleset", f"query {rule.query} is not among those given")
            path = self._path(rule.edge)
            start = path[0].start if path else query.labels[0]
            order = self._order(str(rule.query), query, path, start, maintains=False)
            found += self._by_substream(order, path)
        return found

    def upkeep_orders(self) -> list[ProbeOrder]:
        """The running plan's orders that maintain intermediate results, reconstructed from its
        store rules: one per result, member and substream."""
        found: dict[tuple[str, MirId, Label, int], ProbeOrder] = {}
        arriving = {arrival_edge(r.id) for r in self._ruleset.relations}
        for rule in self._ruleset.store_rules:
            if rule.edge not in arriving:
                store, path = self._stores[rule.store], self._path(rule.edge)
                query = self._containing(store)
                order = self._order(str(store.mir), query, path, path[0].start, maintains=True)
                for one in self._by_substream(order, path):
                    found[store.owner, store.mir, one.start, one.substream] = one
        return list(found.values())

    def _by_substream(self, order: ProbeOrder, path: Sequence[ProbeRule]) -> list[ProbeOrder]:
        """Copies of ``order``, one per substream of arriving tuples that take ``path``."""
        count = self._counts.get(order.start, 1)
        numbers = path[0].substreams if path and path[0].substreams else range(count)
        return [replace(order, substream=number) for number in numbers]

    def _path(self, edge: Edge) -> list[ProbeRule]:
        """The running ruleset's probe rules on an arriving tuple's path to ``edge``, in order."""
        found = []
        while edge in self._probes:
            found.append(self._probes[edge])
            edge = self._probes[edge].edge
        return found[::-1]

    def _order(
        self,
        goal: str,
        query: JoinQuery,
        path: Sequence[ProbeRule],
        start: Label,
        *,
        maintains: bool,
    ) -> ProbeOrder:
        """The probe order that the rules of ``path`` implement, by the predicates of ``query``."""
        owner = self._stores[path[0].store].owner if path else ""
        head, steps = frozenset({start}), []
        for rule in path:
            partition = _attribute(self._stores[rule.store])
            step = Step(rule.mir, rule.members, partition, False, 0.0, 0.0)
            steps.append(replace(step, broadcast=not knows(query, head, step, self.mirs)))
            head |= frozenset(rule.members)
        return ProbeOrder(goal, maintains, start, tuple(steps), owner)


def _attribute(store: StoreSpec) -> AttrRef | None:
    return None if store.partition is None else store.partition[0]
