"""Narrowing of intermediate results: a pass over a ruleset that excludes key values that no probe
can match (:mod:`anabranch_contract.plans.partial`).

A store is narrowed if it is probed only by substreams (tuples with certain key values), and one of
its probe attributes is that key. The kept values are part of the store's id, so another set of
values makes a new store; probes of older rows may still use the earlier store.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from msgspec import structs

from anabranch_contract.plans.partial import ValueSet, Ways, check_kept, kept_values
from anabranch_contract.plans.ruleset import KeptValues, Ruleset, StoreId, StoreSpec
from anabranch_contract.queries.mirs import MirId


def narrow(ruleset: Ruleset) -> Ruleset:
    """``ruleset`` with intermediate results that store only key values which probes can match."""
    kept = _wanted(ruleset)
    if not kept:
        return ruleset
    made = renamed(ruleset, {name: (_narrowed(name, one), one) for name, one in kept.items()})
    check_kept(made)
    return made


def renamed(ruleset: Ruleset, kept: Mapping[StoreId, tuple[StoreId, KeptValues | None]]) -> Ruleset:
    """``ruleset`` in which stores have the new ids of ``kept``, and keep only these key values."""

    def name(store: StoreId) -> StoreId:
        return kept[store][0] if store in kept else store

    def spec(store: StoreSpec) -> StoreSpec:
        if store.id not in kept:
            return store
        new, values = kept[store.id]
        return replace(store, id=new, kept=values)

    probes = (
        replace(
            rule,
            store=name(rule.store),
            ahead=tuple(structs.replace(a, store=name(a.store)) for a in rule.ahead),
        )
        for rule in ruleset.probe_rules
    )
    stores = sorted(map(spec, ruleset.stores), key=lambda s: s.id)
    fed = (structs.replace(rule, store=name(rule.store)) for rule in ruleset.store_rules)
    past = (replace(rule, store=name(rule.store)) for rule in ruleset.backfill_rules)
    return replace(
        ruleset,
        stores=tuple(stores),
        store_rules=tuple(sorted(fed, key=lambda r: (r.edge, r.store))),
        probe_rules=tuple(probes),
        backfill_rules=tuple(sorted(past, key=lambda r: r.store)),
    )


def _wanted(ruleset: Ruleset) -> dict[StoreId, KeptValues]:
    """Store -> key values that probes can match, for stores where some values are never probed."""
    probing = [rule for rule in ruleset.probe_rules if rule.fill]
    if not ruleset.substreams or not probing:
        return {}
    ways = Ways.of(ruleset)
    copies: dict[tuple[str, MirId], list[StoreId]] = defaultdict(list)
    for store in ruleset.stores:
        copies[store.owner, store.mir].append(store.id)
    owner_of = {store.id: store.owner for store in ruleset.stores}
    #: (owner, intermediate result) -> for each probe: join attribute -> values that it can match.
    asked: dict[tuple[str, MirId], list[tuple[KeptValues, ...]]] = defaultdict(list)
    for rule in probing:
        asked[owner_of[rule.store], rule.mir].append(ways.found(rule))
    found: dict[StoreId, KeptValues] = {}
    for result, probes in asked.items():
        by = set.intersection(*({(k.attribute, k.type) for k in some} for some in probes))
        options = []
        for one in sorted(by):
            each = (k for some in probes for k in some if (k.attribute, k.type) == one)
            values = reduce(ValueSet.union, map(kept_values, each))
            if not values.is_all:
                options.append(KeptValues(*one, tuple(sorted(values.hashes)), values.listed))
        if options:
            # Prefer a list of kept values, since a list of excluded values is usually longer.
            kept = min(options, key=lambda one: (not one.listed, len(one.hashes)))
            found |= dict.fromkeys(copies[result], kept)
    return found


def _narrowed(store: StoreId, kept: KeptValues) -> StoreId:
    digest = hashlib.sha256(repr(kept).encode()).hexdigest()[:6]
    return StoreId(f"{store}~{digest}")
