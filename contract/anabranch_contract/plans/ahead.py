"""Look-ahead filters that a probe rule may apply without losing a result.

A tuple on an edge is useless if each of its paths contains a probe without a match. Often the key
of a later probe is known early: its attributes belong to labels that are already joined, or equal
attributes of joined labels because of the keys of probes in between. Then a filter can test whether
the later store has the key at all, before earlier probes multiply the tuple.

A filter before a probe (:func:`askable`) may test a later probe only if *every* store rule and
output rule downstream of the filter is downstream of that probe, too: otherwise it would drop a
tuple for a store or query that is reached without the probe. The filter tests only the presence of
the key; the later probe's other checks (arrival, time bounds, residuals) can only reject further
tuples. Rows inserted after the test must not be missed. Base stores have all rows of a batch before
the first probe; an intermediate result is complete from the level after its last inserts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from anabranch_contract.plans.ruleset import (
    Edge,
    KeyPart,
    Presence,
    ProbeRule,
    Ruleset,
    StoreId,
    arrival_edge,
)
from anabranch_contract.queries.joins import AttrRef, Label

#: An attribute and the key type in which it is compared.
_Typed = tuple[AttrRef, str]


def askable(ruleset: Ruleset) -> dict[Edge, tuple[Presence, ...]]:
    """Return the look-ahead filters that each probe may apply: outgoing edge -> filters, sorted.

    Filters on the probe's own store and key are omitted, and so are edges without filters.
    """
    complete = _complete(ruleset)
    members = {s.id: s.members for s in ruleset.stores}
    ended = {r.edge for r in ruleset.output_rules} | {r.edge for r in ruleset.store_rules}
    known: dict[Edge, frozenset[Label]] = {}
    for rule in ruleset.paths:
        known[rule.out] = known.get(rule.edge, frozenset([rule.start])).union(rule.members)
    #: Edge -> for each probe rule on the edge, the tests (store, key) that all paths through the
    #: rule make later.
    wanted: dict[Edge, list[set[Presence]]] = defaultdict(list)
    found: dict[Edge, tuple[Presence, ...]] = {}
    for rule in reversed(ruleset.paths):
        before = known.get(rule.edge, frozenset([rule.start]))
        own = dict(zip(members[rule.store], rule.members, strict=True))
        behind: set[Presence] = set()
        if rule.out not in ended and wanted[rule.out]:
            behind = _known_before(set.intersection(*wanted[rule.out]), before, rule, own)
        mine = Presence(rule.mir, rule.store, rule.key)
        allowed = (one for one in behind - {mine} if rule.level >= complete.get(one.store, 0))
        if asked := tuple(sorted(allowed)):
            found[rule.out] = asked
        wanted[rule.edge].append(behind | {mine})
    return found


def _complete(ruleset: Ruleset) -> dict[StoreId, int]:
    """Map each intermediate result's store to the first level (probe stage) after its inserts."""
    levels = {rule.out: rule.level for rule in ruleset.probe_rules}
    arrivals = {arrival_edge(r.id) for r in ruleset.relations}
    found: dict[StoreId, int] = {}
    for insert in ruleset.store_rules:
        if insert.edge not in arrivals:
            found[insert.store] = max(found.get(insert.store, 0), levels[insert.edge] + 1)
    return found


def _known_before(
    wanted: Iterable[Presence],
    before: frozenset[Label],
    rule: ProbeRule,
    own: Mapping[Label, Label],
) -> set[Presence]:
    """Return the filters in ``wanted`` whose keys the tuples of ``rule`` already have.

    ``before``: labels joined before ``rule``; the returned keys only have their attributes.
    """
    names = _names(rule, before, own)
    found = set()
    for one in wanted:
        parts = []
        for part in one.key:
            there = part.probe.label in before
            probe = part.probe if there else names.get((part.probe, part.type))
            parts += [] if probe is None else [KeyPart(probe, part.build, part.type)]
        if len(parts) == len(one.key):
            found.add(Presence(one.mir, one.store, tuple(parts)))
    return found


def _names(
    rule: ProbeRule, before: frozenset[Label], own: Mapping[Label, Label]
) -> dict[_Typed, AttrRef]:
    """Map each attribute to the attributes of labels in ``before`` that the key of ``rule`` equates
    with it.

    Of several equal attributes the first in sorted order is taken. Equalities are only combined if
    they have the same key type, since values equal in one type need not be equal in another.
    """
    groups: list[set[_Typed]] = []
    equal = [(k.probe, AttrRef(own[k.build.label], k.build.attribute), k.type) for k in rule.key]
    for step in rule.fill:
        equal += [(k.probe, AttrRef(step.label, k.build.attribute), k.type) for k in step.key]
    for probe, build, kind in equal:
        pair = {(probe, kind), (build, kind)}
        touched = [group for group in groups if group & pair]
        groups = [group for group in groups if not group & pair]
        groups.append(pair.union(*touched))
    found: dict[_Typed, AttrRef] = {}
    for group in groups:
        there = sorted(ref for ref, _ in group if ref.label in before)
        if there:
            found.update(dict.fromkeys(group, there[0]))
    return found
