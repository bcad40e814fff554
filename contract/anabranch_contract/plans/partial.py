"""Stores of intermediate results that keep only rows with certain values of a key (PMJoin's plans
per substream, applied to stores).

Substreams may take different probe orders, and possibly only some of them probe an intermediate
result. Suppose that the key attribute that splits the substreams is also a probe attribute of the
store. Then a tuple matches only stored combinations with its own value of this attribute, and
combinations with values of other substreams need not be kept (``StoreSpec.kept``). A store may keep
more values than are probed, never fewer: a probe rule is valid only if the store keeps the values
of all tuples that may take the rule. Tuples with other values need not maintain the store. Values
are represented by their hashes: of two values with equal hashes, either both are kept or none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ruleset import (
    Edge,
    KeptValues,
    ProbeRule,
    Ruleset,
    StoreId,
    Substreams,
)
from anabranch_contract.queries.joins import AttrRef, Label

#: An attribute and the key type in which it is compared.
_Typed = tuple[AttrRef, str]


class ValueSet(NamedTuple):
    """A set of hashes of key values: ``hashes`` if ``listed``, else all other hashes.

    >>> some, others = ValueSet(frozenset({1, 2})), ValueSet(frozenset({2, 3}), listed=False)
    >>> some.union(others), others.has(some), others.has(ValueSet(frozenset({5})))
    (ValueSet(hashes=frozenset({3}), listed=False), False, True)
    """

    hashes: frozenset[int]
    listed: bool = True

    def union(self, other: ValueSet) -> ValueSet:
        """Return the union of two sets of key values' hashes."""
        if self.listed and other.listed:
            return ValueSet(self.hashes | other.hashes)
        if self.listed:
            return ValueSet(other.hashes - self.hashes, listed=False)
        if other.listed:
            return ValueSet(self.hashes - other.hashes, listed=False)
        return ValueSet(self.hashes & other.hashes, listed=False)

    def has(self, other: ValueSet) -> bool:
        """Whether this set of key values' hashes contains all of ``other``."""
        return self.union(other) == self

    def is_apart_from(self, other: ValueSet) -> bool:
        """Whether two sets of key values' hashes are disjoint."""
        if self.listed and other.listed:
            return not self.hashes & other.hashes
        if self.listed or other.listed:
            some, rest = (self, other) if self.listed else (other, self)
            return some.hashes <= rest.hashes
        return False

    @property
    def is_all(self) -> bool:
        """Whether the set contains every possible hash of a key value."""
        return not self.listed and not self.hashes


def values_of(function: Substreams, numbers: Iterable[int]) -> ValueSet:
    """Return the key values of the substreams ``numbers``, or a superset of these: for a substream
    that is a range of hashes, all values outside the listed groups."""
    own = set(numbers)
    groups = list(enumerate(function.groups, function.others))
    if all(number >= function.others for number in own):
        return ValueSet(frozenset(h for n, group in groups if n in own for h in group))
    return ValueSet(
        frozenset(h for n, group in groups if n not in own for h in group), listed=False
    )


def kept_values(kept: KeptValues) -> ValueSet:
    """Return the set of hashes of the values that a store keeps."""
    return ValueSet(frozenset(kept.hashes), kept.listed)


def covers(kept: KeptValues | None, wanted: KeptValues | None) -> bool:
    """Whether a store that keeps the values ``kept`` has the values ``wanted`` (None: all)."""
    if kept is None or wanted is None:
        return kept is None
    same = (kept.attribute, kept.type) == (wanted.attribute, wanted.type)
    return same and kept_values(kept).has(kept_values(wanted))


@dataclass(frozen=True, slots=True)
class Ways:
    """For each edge of a ruleset: the substreams whose tuples are sent over it, and the attributes
    that are equal to the key by which the tuples are split.

    Attributes:
        functions: label of the arriving tuples (the *start*) -> their split into substreams.
        takers: edge -> numbers of the substreams whose tuples reach it; empty: all.
        equal: edge -> attributes whose value equals that of the attribute that splits the start.
    """

    functions: Mapping[Label, Substreams]
    takers: Mapping[Edge, tuple[int, ...]]
    equal: Mapping[Edge, frozenset[_Typed]]

    @staticmethod
    def of(ruleset: Ruleset) -> Ways:
        """Compute substreams and equal attributes of the edges of ``ruleset`` with split tuples."""
        functions = {one.start: one for one in ruleset.substreams}
        members = {s.id: s.members for s in ruleset.stores}
        equal: dict[Edge, frozenset[_Typed]] = {}
        for rule in ruleset.paths if functions else ():
            function = functions.get(rule.start)
            if function is not None:
                before = equal.get(rule.edge) or _alone(function)
                equal[rule.out] = before | _reached(rule, before, members[rule.store])
        return Ways(functions, ruleset.takers if functions else {}, equal)

    def found(self, rule: ProbeRule) -> tuple[KeptValues, ...]:
        """Return the key values that tuples probing by ``rule`` may have: one set for each key
        attribute that equals the splitting attribute. The probed store must keep all values of one
        of these sets. Empty: tuples may have any value."""
        function, numbers = self.functions.get(rule.start), self.takers.get(rule.out)
        if function is None or not numbers or not rule.fill:
            return ()
        values = values_of(function, numbers)
        hashes = tuple(sorted(values.hashes))
        before = self.equal.get(rule.edge) or _alone(function)
        return tuple(
            KeptValues(k.build, k.type, hashes, values.listed)
            for k in rule.key
            if (k.probe, k.type) in before
        )

    def numbers(self, start: Label) -> range:
        """Return the numbers of the substreams of ``start``; ``range(1)`` if it is not split."""
        function = self.functions.get(start)
        return range(1 if function is None else function.count)

    def needed(self, kept: KeptValues | None, start: Label, edges: Iterable[Edge]) -> set[int]:
        """Return the substreams of ``start`` whose tuples contribute rows to a store that keeps
        ``kept``.

        Args:
            edges: the edges over which tuples of ``start`` are inserted into the store.
        """
        function, numbers = self.functions.get(start), self.numbers(start)
        if function is None or kept is None:
            return set(numbers)
        key, values = (kept.attribute, kept.type), kept_values(kept)
        if not any(key in self.equal[edge] for edge in edges):
            return set(numbers)
        return {n for n in numbers if not values.is_apart_from(values_of(function, [n]))}


def _alone(function: Substreams) -> frozenset[_Typed]:
    """Return a set of the attribute by which ``function`` splits tuples, with its key type."""
    return frozenset([(AttrRef(function.start, function.attribute), function.type)])


def _reached(rule: ProbeRule, before: frozenset[_Typed], members: tuple[Label, ...]) -> set[_Typed]:
    """Return attributes of probed rows that the key of ``rule`` equates with any in ``before``."""
    own: Mapping[Label, Label] = dict(zip(members, rule.members, strict=True))
    pairs = [(k.probe, AttrRef(own[k.build.label], k.build.attribute), k.type) for k in rule.key]
    for step in rule.fill:
        pairs += [(k.probe, AttrRef(step.label, k.build.attribute), k.type) for k in step.key]
    found: set[_Typed] = set()
    grown = True
    while grown:
        grown = False
        for probe, build, kind in pairs:
            sides = {(probe, kind), (build, kind)}
            if sides & (before | found) and not sides <= before | found:
                found |= sides
                grown = True
    return found


def check_kept(ruleset: Ruleset) -> None:
    """Check that stores of intermediate results keep all values that tuples may look up, and that
    each combination that they keep is inserted exactly once.

    Raises:
        RulesetError: names the first probe or store that violates this.
    """
    ways = Ways.of(ruleset)
    stores = {s.id: s for s in ruleset.stores}
    for rule in ruleset.probe_rules:
        kept = stores[rule.store].kept
        if kept is not None and not any(covers(kept, one) for one in ways.found(rule)):
            raise _bad(f"edge {rule.out}: tuples may look for values {rule.store} does not keep")
    starts = {p.out: p.start for p in ruleset.probe_rules}
    feeding: dict[StoreId, dict[Label, list[Edge]]] = defaultdict(lambda: defaultdict(list))
    for fed in ruleset.store_rules:
        if fed.edge in starts:
            feeding[fed.store][starts[fed.edge]].append(fed.edge)
    for store in ruleset.stores:
        if len(store.members) > 1:
            for start in store.members:
                edges = feeding[store.id].pop(start, [])
                needed = ways.needed(store.kept, start, edges)
                brought = [n for e in edges for n in ways.takers.get(e) or ways.numbers(start)]
                if len(brought) > len(set(brought)) or not needed <= set(brought):
                    raise _bad(f"store {store.id} is kept up by {brought} of {start}")
            if feeding[store.id]:
                raise _bad(f"store {store.id} is kept up by {sorted(feeding[store.id])}")


def _bad(message: str) -> RulesetError:
    return RulesetError("bad-ruleset", message)
