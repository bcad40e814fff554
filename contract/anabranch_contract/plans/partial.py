"""Intermediate results of which a store keeps only some values of a key (PMJoin's idea of a plan
per substream, for stores).

Tuples that are told apart may take different orders, and only some of them may probe an
intermediate result. If the key attribute that tells them apart is one that the store is probed by,
then what they find there has their own value of it: combinations with other values are looked at by
nobody and need not be kept (``StoreSpec.kept``). What is kept may be more than what is probed for,
never less: a rule is valid only if the values of all tuples that may take it are kept.

Values stand for their hashes. Two values of one hash are kept both or neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ruleset import Kept
from anabranch_contract.queries.joins import AttrRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch_contract.plans.ruleset import Edge, ProbeRule, Ruleset, Substreams
    from anabranch_contract.queries.joins import Label

    #: An attribute and the key type in which it is compared.
    _Typed = tuple[AttrRef, str]


class Values(NamedTuple):
    """A set of hashes: those that are ``listed``, or all but those.

    >>> some, others = Values(frozenset({1, 2})), Values(frozenset({2, 3}), listed=False)
    >>> some.union(others), others.has(some), others.has(Values(frozenset({5})))
    (Values(hashes=frozenset({3}), listed=False), False, True)
    """

    hashes: frozenset[int]
    listed: bool = True

    def union(self, other: Values) -> Values:
        """What is in one of both."""
        if self.listed and other.listed:
            return Values(self.hashes | other.hashes)
        if self.listed:
            return Values(other.hashes - self.hashes, listed=False)
        if other.listed:
            return Values(self.hashes - other.hashes, listed=False)
        return Values(self.hashes & other.hashes, listed=False)

    def has(self, other: Values) -> bool:
        """Whether all of ``other`` is in it."""
        return self.union(other) == self

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return not self.listed and not self.hashes


def values_of(function: Substreams, numbers: Iterable[int]) -> Values:
    """The values of the substreams ``numbers``, and maybe more: ranges of hashes count as all
    values that are in no group.
    """
    own = set(numbers)
    groups = list(enumerate(function.groups, function.others))
    if all(number >= function.others for number in own):
        return Values(frozenset(h for n, group in groups if n in own for h in group))
    return Values(frozenset(h for n, group in groups if n not in own for h in group), listed=False)


def kept_values(kept: Kept) -> Values:
    """The values that a store keeps."""
    return Values(frozenset(kept.hashes), kept.listed)


def covers(kept: Kept | None, wanted: Kept | None) -> bool:
    """Whether a store that keeps ``kept`` has all that one with ``wanted`` has to; None: all."""
    if kept is None or wanted is None:
        return kept is None
    same = (kept.attribute, kept.type) == (wanted.attribute, wanted.type)
    return same and kept_values(kept).has(kept_values(wanted))


def probed_values(ruleset: Ruleset) -> dict[Edge, tuple[Kept, ...]]:
    """Edge of a probe of an intermediate result -> what of it the tuples that take the probe can
    find, by each attribute of the store that has their own value; edges that any tuple takes, and
    those that lead elsewhere, are left out.
    """
    functions = {one.start: one for one in ruleset.substreams}
    if not functions:
        return {}
    members = {s.id: s.members for s in ruleset.stores}
    takers = ruleset.takers
    #: Edge -> the attributes that have the value by which its tuples were told apart.
    equal: dict[Edge, frozenset[_Typed]] = {}
    found: dict[Edge, tuple[Kept, ...]] = {}
    for rule in ruleset.paths:
        function = functions.get(rule.start)
        if function is None:
            continue
        key = AttrRef(function.start, function.attribute), function.type
        before = equal.get(rule.edge, frozenset([key]))
        numbers = takers[rule.out]
        if numbers and rule.fill:
            values = values_of(function, numbers)
            hashes = tuple(sorted(values.hashes))
            found[rule.out] = tuple(
                Kept(k.build, k.type, hashes, values.listed)
                for k in rule.key
                if (k.probe, k.type) in before
            )
        equal[rule.out] = before | _reached(rule, before, members[rule.store])
    return found


def _reached(rule: ProbeRule, before: frozenset[_Typed], members: tuple[Label, ...]) -> set[_Typed]:
    """What ``rule`` makes equal to ``before``, as names of labels that it fills."""
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
    """Check that no tuple may probe a store that lacks its values.

    Raises:
        RulesetError: naming the first probe of which that does not hold.
    """
    partial = {s.id: s.kept for s in ruleset.stores if s.kept is not None}
    if not partial:
        return
    probed = probed_values(ruleset)
    for rule in ruleset.probe_rules:
        kept = partial.get(rule.store)
        if kept is not None and not any(covers(kept, one) for one in probed.get(rule.out, ())):
            raise RulesetError(
                "bad-ruleset",
                f"edge {rule.out}: tuples may look for values that {rule.store} does not keep",
            )
