"""Compilation of a plan to the ruleset of an epoch: probe trees, stores, edge labels, levels.

The orders of a plan are merged into probe trees (one per arriving relation, shared prefixes once).
Every tree edge becomes a probe rule with its own label. The end of an order becomes a store rule if
it maintains an intermediate result, or an output rule if it answers a query (CLASH, section "From
solution to rules"). The steps are in :mod:`~anabranch_planner.plans.compiling`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans.partial import check_kept
from anabranch_contract.plans.plan import Plan
from anabranch_contract.plans.ruleset import (
    BackfillRule,
    IndexSpec,
    Ruleset,
    StoreId,
    StoreRule,
    StoreSpec,
    arrival_edge,
    used_substreams,
)
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.parts import PlanPart, divide, whole
from anabranch_planner.cost.steps import SubJoins
from anabranch_planner.plans.backfill import BackfillDecision
from anabranch_planner.plans.compiling.queries import Sketch, check_same, query_specs, sketches
from anabranch_planner.plans.compiling.rules import (
    SortedRules,
    TreeRule,
    backfill_rules,
    outputs_beside,
    tree_rules,
    used_indexes,
)
from anabranch_planner.plans.compiling.stores import (
    Given,
    KeyTypes,
    PartTables,
    Place,
    base_stores,
    key_types,
    place_of,
    running_stores,
    stores_of_part,
    stores_of_streams,
)
from anabranch_planner.plans.narrow import narrow


def compile_ruleset(
    plan: Plan,
    queries: Sequence[JoinQuery],
    streams: Sequence[Stream],
    *,
    epoch: int,
    parallelism: int,
    sinks: Mapping[str, SinkSpec],
    backfills: Sequence[BackfillDecision] = (),
    freshness: Mapping[str, Mapping[str, int]] | None = None,
    past: Collection[str] = (),
    parts: Sequence[PlanPart] | None = None,
) -> Ruleset:
    """Compile ``plan`` to the ruleset of ``epoch``.

    Args:
        plan: a valid plan for exactly ``queries``.
        queries: the active queries.
        streams: every registered stream (all are read and counted, even if no query uses them).
        epoch: the epoch's number.
        parallelism: partitions per store.
        sinks: query id -> the sink of its results; default: Parquet files.
        backfills: decisions to backfill intermediate results (``plans.backfill``); a chosen one
            becomes a rule for every copy of the store.
        freshness: query id -> alias -> maximum age in microseconds of an alias's tuples in results.
        past: queries that also emit results over tuples from before their activation.
        parts: the plan's parts (:func:`~anabranch_planner.cost.parts.divide`), which cache their
            rules; None: divide the plan here.

    Raises:
        RulesetError: the plan is inconsistent with the queries.
    """
    found = divide(plan, queries) if parts is None else parts
    known = {s.name: s for s in sorted(streams, key=lambda s: s.name)}
    kinds = key_types(found)
    bases = base_stores(found, kinds, parallelism)
    chosen = {(b.owner, b.mir): b for b in backfills if b.chosen}
    active = [q for part in found for q in part.queries]
    derived = {(s, a): e for q in active for s, a, e in q.derived}
    common = _Common(known, kinds, bases, chosen, derived, parallelism)
    made = [_rules_of(part, common) for part in found]
    relations = {r.id: r for q in active for r in q.relations}
    added, latest = stores_of_streams(known.values(), relations, bases.values(), parallelism)
    shared = [*bases.values(), *added]
    arriving = [StoreRule(arrival_edge(s.relations[0]), s.id) for s in shared]
    rules = SortedRules.of([*arriving, *(rule for one in made for rule in one.trees)])
    stores = sorted([*shared, *(s for one in made for s in one.stores)], key=lambda s: s.id)
    indexes: dict[StoreId, set[IndexSpec]] = defaultdict(set)
    for one in made:
        for name, some in one.indexes.items():
            indexes[name] |= some
    for rule in latest:
        indexes[rule.store].add(rule.index)
    past_rules, emitting = [b for one in made for b in one.backfills], frozenset(past)
    specs = [s for part in found for s in query_specs(part, sinks, freshness or {}, emitting)]
    ruleset = Ruleset(
        epoch=epoch,
        streams=tuple(known.values()),
        relations=tuple(relations[r] for r in sorted(relations)),
        queries=tuple(sorted(specs, key=lambda q: q.id)),
        stores=tuple(replace(s, indexes=tuple(sorted(indexes[s.id]))) for s in stores),
        store_rules=rules.inserts,
        probe_rules=rules.probes,
        output_rules=rules.outputs,
        derived=tuple((s, a, derived[s, a]) for s, a in sorted(derived)),
        sketches=tuple(sorted(set().union(*(one.sketches for one in made)))),
        backfill_rules=tuple(sorted(past_rules, key=lambda b: b.store)),
        latest_rules=tuple(latest),
        substreams=used_substreams(
            (one for part in found for one in part.plan.substreams), rules.probes
        ),
    )
    ruleset.validate()
    return narrow(ruleset)


@dataclass(frozen=True, slots=True)
class _Common:
    """Inputs that the compilation of every part of a plan shares."""

    streams: Mapping[StreamName, Stream]
    kinds: KeyTypes
    bases: Mapping[Place, StoreSpec]
    backfills: Mapping[tuple[str, MirId], BackfillDecision]
    derived: Mapping[tuple[StreamName, str], Expr]
    parallelism: int


@dataclass(frozen=True, slots=True)
class _PartRules:
    """Rules of one part of a plan, its stores of intermediate results, its stores' indexes."""

    trees: Sequence[TreeRule]
    stores: Sequence[StoreSpec]
    indexes: Mapping[StoreId, set[IndexSpec]]
    sketches: set[Sketch]
    backfills: Sequence[BackfillRule]


def _rules_of(part: PlanPart, common: _Common) -> _PartRules:
    """The rules of ``part``, cached while its inputs are unchanged."""
    copies, bases = part.plan.copies, common.bases
    stores = dict.fromkeys((c.owner, c.mir) for c in copies)
    past = [common.backfills[store] for store in stores if store in common.backfills]
    read = {r.stream for q in part.queries for r in q.relations}
    own = {c: bases[place_of(c)] for c in copies if place_of(c) in bases}
    attributes = {c.partition for c in copies if c.partition is not None and c not in own}
    names = {attribute.attribute for attribute in attributes}
    known = {(s, a): e for (s, a), e in common.derived.items() if a in names and s in read}
    given = Given(
        {name: common.streams[name] for name in read if name in common.streams},
        own,
        {attribute: common.kinds[False, attribute] for attribute in attributes},
        known | {(s, a): e for q in part.queries for s, a, e in q.derived},
        common.parallelism,
        tuple((b.owner, b.mir, b.order) for b in past),
    )
    return part.once("rules", given, partial(_make_rules, part, given, past))


def _make_rules(part: PlanPart, given: Given, past: Sequence[BackfillDecision]) -> _PartRules:
    before: _PartRules | None = part.before("rules", given)
    if before is not None:
        outputs = outputs_beside(before.trees, part)
        if outputs is not None:
            found = before.sketches | sketches(one.query for one in part.grown)
            return replace(before, trees=[*before.trees, *outputs], sketches=found)
    tables = PartTables.of(part)
    stores = stores_of_part(tables, given)
    trees = tree_rules(tables, stores)
    return _PartRules(
        trees,
        [s for copies in stores.values() for s in copies if len(s.members) > 1],
        used_indexes(trees),
        sketches(part.queries),
        backfill_rules(tables, stores, past),
    )


def compile_revision(
    plan: Plan,
    queries: Sequence[JoinQuery],
    running: Ruleset,
    revision: int,
    subs: SubJoins | None = None,
) -> Ruleset:
    """Compile ``plan`` to a revision: a ruleset that replaces ``running`` within its epoch.

    Args:
        plan: a valid plan for exactly ``queries``, over stores of ``running``
            (:func:`~anabranch_planner.replan.revise.fits` checks which stores each may use).
        queries: the queries of ``running``.
        subs: cache of the sub-joins of ``queries``, shared by several revisions.

    Returns:
        ``running`` with the plan's routes. Stores of intermediate results that the plan drops are
        removed; the other stores keep their indexes and gain the indexes of the plan's probes.

    Raises:
        RulesetError: the plan uses a store that ``running`` lacks, or contradicts ``queries``.
    """
    tables = PartTables.of(whole(plan, queries), subs)
    there = running_stores(plan, running)
    check_same(tables.queries.values(), running)
    trees = tree_rules(tables, there)
    arriving = {arrival_edge(r.id) for r in running.relations}
    rules = SortedRules.of([*trees, *(r for r in running.store_rules if r.edge in arriving)])
    fed, indexes = {rule.store for rule in rules.inserts}, used_indexes(trees)
    stores = [
        replace(s, indexes=tuple(sorted({*s.indexes, *indexes.get(s.id, ())})))
        for s in running.stores
        if len(s.members) == 1 or s.id in fed
    ]
    kept = {s.id for s in stores}
    ruleset = replace(
        running,
        stores=tuple(stores),
        store_rules=rules.inserts,
        probe_rules=rules.probes,
        output_rules=rules.outputs,
        backfill_rules=tuple(b for b in running.backfill_rules if b.store in kept),
        substreams=used_substreams(plan.substreams, rules.probes),
        revision=revision,
    )
    ruleset.validate()
    check_kept(ruleset)
    return ruleset
