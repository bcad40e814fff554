"""Look-ahead filters that a probe rule may apply without losing a result.

A tuple on an edge is useless if each of its paths contains a probe without a match. Some of these
probes' keys are known long before: their attributes belong to labels joined already, or are equal
to such attributes by the keys in between. Then a filter can test whether the stores have the key at
all, before anything fans out.

A filter before a probe (:func:`askable`) may test a later probe only if *every* end behind the
filter, a store rule or an output rule, lies behind that probe: otherwise it would drop a tuple for
a store or query that is reached without the probe. The filter tests only the presence of the key;
the later probe's other checks (arrival, time bounds, residuals) can only reject more. Rows inserted
after the test must not be missed. Base stores have all rows of a batch before the first probe; an
intermediate result is complete from the level after its last inserts.
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
    """Edge of a probe rule -> the filters allowed before that probe, sorted, without the probe's
    own store and key; edges without filters are left out.
    """
    complete = _complete(ruleset)
    members = {s.id: s.members for s in ruleset.stores}
    ended = {r.edge for r in ruleset.output_rules} | {r.edge for r in ruleset.store_rules}
    known: dict[Edge, frozenset[Label]] = {}
    for rule in ruleset.paths:
        known[rule.out] = known.get(rule.edge, frozenset([rule.start])).union(rule.members)
    #: Edge -> keys tested by all probes behind it, for each rule that continues from it.
    wanted: dict[Edge, list[set[Presence]]] = defaultdict(list)
    found: dict[Edge, tuple[Presence, ...]] = {}
    for rule in reversed(ruleset.paths):
        before = known.get(rule.edge, frozenset([rule.start]))
        own = _own_names(rule, members[rule.store])
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
    """Store of an intermediate result -> the level from which on it has all rows of a batch."""
    levels = {rule.out: rule.level for rule in ruleset.probe_rules}
    arrivals = {arrival_edge(r.id) for r in ruleset.relations}
    found: dict[StoreId, int] = {}
    for insert in ruleset.store_rules:
        if insert.edge not in arrivals:
            found[insert.store] = max(found.get(insert.store, 0), levels[insert.edge] + 1)
    return found


def _own_names(rule: ProbeRule, members: tuple[Label, ...]) -> Mapping[Label, Label]:
    """A member of the store that is probed -> the label that it fills."""
    return dict(zip(members, rule.members, strict=True))


def _known_before(
    wanted: Iterable[Presence],
    before: frozenset[Label],
    rule: ProbeRule,
    own: Mapping[Label, Label],
) -> set[Presence]:
    """Filters of ``wanted`` behind ``rule`` whose keys are known in the labels ``before``."""
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
    """Attributes that ``rule`` makes equal to known ones -> the known one; the first of several.

    Only equalities of one key type count: values equal in one type need not be equal in another.
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
