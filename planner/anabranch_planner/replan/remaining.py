"""The running plan after queries are dropped; the probe orders of remaining queries do not change.

Only elements that no remaining query needs are removed: orders of dropped queries, and intermediate
results and store copies that nothing else probes. Everything else stays, with one exception: if
only dropped queries join by the partition attribute of a copy, the copy is partitioned by the first
attribute by which a remaining query joins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.plan import Objective, Optimizer, Plan
from anabranch_contract.plans.ruleset import (
    Edge,
    ProbeRule,
    Ruleset,
    StoreId,
    StoreSpec,
    arrival_edge,
    used_substreams,
)
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label, QueryId, RelationId
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.steps import trails
from anabranch_planner.cost.validate import knows
from anabranch_planner.replan.running import plan_of
from anabranch_planner.replan.there import owners
from anabranch_planner.search.copies import attribute_rank


def plan_of_remaining(
    ruleset: Ruleset,
    queries: Sequence[JoinQuery],
    optimizer: Optimizer = Optimizer.CLASH,
    objective: Objective = Objective.TUPLES,
) -> Plan:
    """The running plan for ``queries`` only, without costs (``cost.validate`` adds them).

    Args:
        queries: some or all of the ruleset's queries; the definitions of the others are not needed.
        optimizer, objective: optimiser and objective of the ruleset's plan.

    Raises:
        RulesetError: the ruleset has no orders for one of ``queries``, or contradicts it.
    """
    there = {rule.query for rule in ruleset.output_rules}
    for query in queries:
        if query.id not in there:
            raise RulesetError("bad-ruleset", f"the ruleset has no query {query.id}")
    kept = _needed(ruleset, {query.id for query in queries})
    return _partitioned(plan_of(kept, queries, optimizer, objective), queries)


def choices(plan: Plan) -> dict[str, Any]:
    """Probe orders and store copies of ``plan`` as JSON. Plans of the same queries with equal
    documents execute identically, whatever their estimated costs."""
    orders = [
        [
            order.owner if order.steps else "",
            order.goal,
            order.maintains,
            order.start,
            [[s.target, list(s.members), _written(s.partition)] for s in order.steps],
            *([order.substream] if order.substream else []),
        ]
        # Omit queries over one relation, which have no probes: every arriving tuple is a result.
        for order in plan.orders
        if order.steps
    ]
    copies = [[copy.owner, copy.mir, _written(copy.partition)] for copy in plan.copies]
    return {"orders": sorted(orders), "copies": sorted(copies)}


def _written(attribute: AttrRef | None) -> list[str]:
    return [] if attribute is None else [attribute.label, attribute.attribute]


# --- rules of the remaining queries --------------------------------------------------------------


def _needed(ruleset: Ruleset, queries: Collection[QueryId]) -> Ruleset:
    """The running ``ruleset`` with only the rules and stores that ``queries`` need."""
    stores = {store.id: store for store in ruleset.stores}
    probing = {probe.out: probe for probe in ruleset.probe_rules}
    arriving = {arrival_edge(relation.id) for relation in ruleset.relations}
    upkeep: dict[StoreId, list[Edge]] = defaultdict(list)
    for rule in ruleset.store_rules:
        if rule.edge not in arriving:
            upkeep[rule.store].append(rule.edge)
    outputs = tuple(rule for rule in ruleset.output_rules if rule.query in queries)
    probes: dict[Edge, ProbeRule] = {}
    kept: set[StoreId] = set()
    pending = [rule.edge for rule in outputs]
    while pending:
        edge = pending.pop()
        probe = probing.get(edge)
        if probe is None or edge in probes:
            continue
        probes[edge] = probe
        pending.append(probe.edge)
        if probe.store not in kept:
            kept.add(probe.store)
            pending += upkeep[probe.store]
    kept |= _of_relations(ruleset, queries, {stores[name] for name in kept})
    left = tuple(rule for rule in ruleset.probe_rules if rule.out in probes)
    return replace(
        ruleset,
        stores=tuple(store for store in ruleset.stores if store.id in kept),
        store_rules=tuple(
            rule
            for rule in ruleset.store_rules
            if rule.store in kept and (rule.edge in arriving or rule.edge in probes)
        ),
        probe_rules=left,
        output_rules=outputs,
        substreams=used_substreams(ruleset.substreams, left),
        backfill_rules=(),
        latest_rules=(),
    )


def _of_relations(
    ruleset: Ruleset, queries: Collection[QueryId], kept: Collection[StoreSpec]
) -> set[StoreId]:
    """One store for each relation that ``queries`` join and that has no store in ``kept``."""
    owner_of = owners(ruleset)
    there = {(s.owner, s.relations[0]) for s in kept if len(s.members) == 1}
    found: dict[tuple[str, RelationId], StoreId] = {}
    wanted = {
        (owner_of[query.id], relation)
        for query in ruleset.queries
        if query.id in queries and len(query.members) > 1
        for _, _, relation in query.members
    }
    for store in ruleset.stores:
        key = store.owner, store.relations[0]
        if len(store.members) == 1 and key in wanted - there:
            found.setdefault(key, store.id)
    return set(found.values())


# --- partition attributes ------------------------------------------------------------------------


def _partitioned(plan: Plan, queries: Sequence[JoinQuery]) -> Plan:
    """``plan`` whose copies have another partition attribute if no query joins by theirs."""
    mirs = {mir.id: mir for mir in plan.mirs}
    compared = _compared(queries)
    moved: dict[tuple[str, MirId, AttrRef | None], AttrRef | None] = {}
    for copy in plan.copies:
        mir = mirs[copy.mir]
        known = {a for m in mir.members for a in compared[m, mir.is_base]}
        if copy.partition is not None and copy.partition not in known:
            moved[copy.owner, copy.mir, copy.partition] = min(known, key=attribute_rank)
    if not moved:
        return plan
    copies = {
        replace(c, partition=moved.get((c.owner, c.mir, c.partition), c.partition))
        for c in plan.copies
    }
    found, orders = trails(plan, queries), []
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        steps = []
        for prefix, step in zip(prefixes, order.steps, strict=True):
            to = moved.get((order.owner, step.target, step.partition), step.partition)
            trail, probing = found.steps[prefix], replace(step, partition=to)
            routed = knows(trail.query, trail.head, probing, mirs)
            steps.append(replace(probing, broadcast=not routed))
        orders.append(replace(order, steps=tuple(steps)))
    ranked = sorted(copies, key=lambda c: (c.owner, c.mir, attribute_rank(c.partition)))
    return replace(plan, copies=tuple(ranked), orders=tuple(orders))


def _compared(queries: Sequence[JoinQuery]) -> Mapping[tuple[Label, bool], set[AttrRef]]:
    """(alias, False) -> the alias's attributes by which ``queries`` join; (relation, True) -> those
    of a relation, named as in its store."""
    found: dict[tuple[Label, bool], set[AttrRef]] = defaultdict(set)
    for query in queries:
        relation_of = {m.label: Label(m.relation) for m in query.members}
        for key_class in query.classes:
            for ref in key_class.members:
                base = relation_of[ref.label]
                found[ref.label, False].add(ref)
                found[base, True].add(AttrRef(base, ref.attribute))
    return found
