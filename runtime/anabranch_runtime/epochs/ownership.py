"""Queries that use each rule and store of a shared plan; removal of rules of failed queries.

A query fails when an expression that it needs can't be evaluated (division by zero, overflow, a
cast). Rules and stores that serve only failed queries are removed; all others continue. So every
rule and store has *users*: the queries whose results depend on it.

* The user of an output rule is its query.
* The users of an edge (tuples between two rules) are the users of its outputs, of its further
  probes, and of the intermediate results stored from it.
* The users of a store are the users of the probes that read it, including probes that read it
  because a
materialized join is incomplete. The users of a relation are the queries that join it.
* The users of the search for newer tuples of equal key (latest per key) are the stream's queries.

An expression that fails in a shared rule fails exactly the rule's users, since a shared edge checks
only conditions that all of its users have in common (``plans.compile``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeVar

from anabranch_contract.plans.ruleset import (
    Edge,
    IndexSpec,
    KeyPart,
    ProbeRule,
    Ruleset,
    StoreId,
    arrival_edge,
)
from anabranch_contract.queries.joins import QueryId, RelationId
from anabranch_runtime.epochs.lookups import without_lookups
from anabranch_runtime.epochs.per_ruleset import KEPT, per_number, per_ruleset

Queries = frozenset[QueryId]
#: A store and one of its indexes.
Indexed = tuple[StoreId, IndexSpec]


_K = TypeVar("_K")
_NOBODY: frozenset[QueryId] = frozenset()


@dataclass(frozen=True, slots=True)
class Ownership:
    """Users (queries) of a ruleset's edges, stores, relations and indexes; no entry: no users."""

    edges: Mapping[Edge, Queries]
    stores: Mapping[StoreId, Queries]
    relations: Mapping[RelationId, Queries]
    indexes: Mapping[Indexed, Queries]

    def of_edge(self, edge: Edge) -> Queries:
        """The queries that need the tuples on ``edge`` of the plan (output of a rule)."""
        return self.edges.get(edge, _NOBODY)

    def of_store(self, store: StoreId) -> Queries:
        """The queries whose probes read ``store``."""
        return self.stores.get(store, _NOBODY)

    def of_relation(self, relation: RelationId) -> Queries:
        """The queries that join ``relation``."""
        return self.relations.get(relation, _NOBODY)

    def of_index(self, store: StoreId, index: IndexSpec) -> Queries:
        """The queries whose probes use an index of ``store``."""
        return self.indexes.get((store, index), _NOBODY)


@per_ruleset
def ownership(ruleset: Ruleset) -> Ownership:
    """Compute the users of every edge, store, relation and index of ``ruleset``."""
    edges, stores = defaultdict[Edge, set[QueryId]](set), defaultdict[StoreId, set[QueryId]](set)
    for output in ruleset.output_rules:
        edges[output.edge].add(output.query)
    relations = defaultdict[RelationId, set[QueryId]](set)
    for query in ruleset.queries:
        for _, _, relation in query.members:
            relations[relation].add(query.id)
    for latest in ruleset.latest_rules:
        same = (r.id for r in ruleset.relations if r.stream == latest.stream)
        readers = set[QueryId]().union(*(relations.get(r, _NOBODY) for r in same))
        relations[latest.relation] = readers
        stores[latest.store] = set(readers)
    arrivals = {arrival_edge(r) for r in relations}
    # The last probes of each path first, so that one pass passes users on to all probes before.
    probes = ruleset.paths[::-1]
    grown = True
    while grown:  # Fixpoint: users of intermediate results add users to the paths into them.
        grown = False
        for rule in probes:
            users = edges.get(rule.out)
            if users:
                grown |= _grow(edges[rule.edge], users)
                grown |= _grow(stores[rule.store], users)
                for step in rule.fill:
                    grown |= _grow(stores[step.store], users)
        for insert in ruleset.store_rules:
            if insert.edge not in arrivals:
                grown |= _grow(edges[insert.edge], stores.get(insert.store, _NOBODY))
        for backfill in ruleset.backfill_rules:
            for one in backfill.steps:
                grown |= _grow(stores[one.store], stores.get(backfill.store, _NOBODY))
    indexes = defaultdict[Indexed, set[QueryId]](set)
    for used, edge in _index_uses(ruleset.probe_rules):
        indexes[used] |= edges.get(edge, _NOBODY)
    for latest in ruleset.latest_rules:
        indexes[latest.store, latest.index] |= relations[latest.relation]
    return Ownership(_frozen(edges), _frozen(stores), _frozen(relations), _frozen(indexes))


def _grow(known: set[QueryId], users: AbstractSet[QueryId]) -> bool:
    before = len(known)
    known |= users
    return len(known) > before


def _frozen(users: Mapping[_K, Iterable[QueryId]]) -> dict[_K, Queries]:
    return {key: found for key, some in users.items() if (found := frozenset(some))}


def without(ruleset: Ruleset, failed: frozenset[str]) -> Ruleset:
    """Return ``ruleset`` without the ``failed`` queries, rules that serve only these, and rules by
    which rows of tables would complete results (``lookups``).

    The remaining stores are unchanged, so they have the same rows as under the complete ruleset;
    they lose only unused indexes.
    """
    ruleset = without_lookups(ruleset)
    gone = frozenset(q.id for q in ruleset.queries if q.id in failed) if failed else _NOBODY
    if not gone:
        return ruleset
    known = _rest(ruleset)
    found = known.get(gone)
    if found is None:
        # Sets of failed queries only grow, so smaller sets than this one are not needed again.
        for old in list(known)[: 1 - KEPT]:
            known.pop(old, None)
        found = known[gone] = _without(ruleset, gone)
    return found


@per_number
def _rest(ruleset: Ruleset) -> dict[Queries, Ruleset]:
    """Cache of :func:`without` per ruleset: failed queries -> the remaining ruleset."""
    return {}


def _without(ruleset: Ruleset, gone: Queries) -> Ruleset:
    users = ownership(ruleset)

    def stays(of: Queries) -> bool:
        return not of or not of <= gone

    # Stores of retained streams stay, since queries registered later need their rows.
    keep = {s.name for s in ruleset.streams if s.is_retained}
    kept_whole = {r.id for r in ruleset.relations if r.stream in keep and not r.filter}
    relations = kept_whole | {r.id for r in ruleset.relations if stays(users.of_relation(r.id))}
    stores = [
        s
        for s in ruleset.stores
        if (stays(users.of_store(s.id)) or kept_whole.issuperset(s.relations))
        and relations.issuperset(s.relations)
    ]
    probes = tuple(p for p in ruleset.probe_rules if stays(users.of_edge(p.out)))
    edges = {arrival_edge(r) for r in relations} | {p.out for p in probes}
    # Drop store copies that no probe reads, unless rows of another store are computed from them.
    starved = {r.store for r in ruleset.store_rules if r.edge not in edges}
    stores = [s for s in stores if s.id not in starved]
    kept = {s.id for s in stores}
    latest = tuple(r for r in ruleset.latest_rules if r.relation in relations)
    used = {indexed for indexed, _ in _index_uses(probes)}
    used |= {(r.store, r.index) for r in latest}
    return replace(
        ruleset,
        relations=tuple(r for r in ruleset.relations if r.id in relations),
        queries=tuple(q for q in ruleset.queries if q.id not in gone),
        stores=tuple(
            replace(s, indexes=tuple(i for i in s.indexes if (s.id, i) in used)) for s in stores
        ),
        store_rules=tuple(r for r in ruleset.store_rules if r.store in kept),
        probe_rules=probes,
        output_rules=tuple(o for o in ruleset.output_rules if o.query not in gone),
        sketches=tuple(s for s in ruleset.sketches if s[0] in relations),
        backfill_rules=tuple(b for b in ruleset.backfill_rules if b.store in kept),
        latest_rules=latest,
    )


def _index_uses(probes: Iterable[ProbeRule]) -> Iterator[tuple[Indexed, Edge]]:
    """Yield, for each probe rule, its store and index, and its output edge."""
    for rule in probes:
        yield (rule.store, _index(rule.key)), rule.out
        for step in rule.fill:
            yield (step.store, _index(step.key)), rule.out


def _index(key: tuple[KeyPart, ...]) -> IndexSpec:
    return tuple((k.build, k.type) for k in key)
