"""The steps of a ruleset, identified by their sub-joins instead of names of edges.

The probe rules on a path from an arriving tuple name the labels that they fill, and the keys. These
keys, closed under equality, are the key classes of the sub-join that the path has reached, and
determine the sub-join's canonical id.

The runtime counts tuples on every edge. If all tuples that arrive for a label take a step, on one
edge or on one per substream, these edges' counts add up. If only some substreams take the step, or
a look-ahead filter has dropped tuples before it, the counts belong to a :class:`StepPart`, whose
selectivity may differ from that of all tuples.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch_contract.codec import Row
from anabranch_contract.plans.ruleset import (
    Edge,
    Presence,
    ProbeRule,
    Ruleset,
    StoreId,
    Substreams,
    substream_counts,
)
from anabranch_contract.queries.joins import AttrRef, KeyClass, Label, RelationId
from anabranch_contract.queries.mirs import MirId, canonical


class StepPart(Row, frozen=True):
    """The tuples that a step's counts cover, if not all: some substreams, or filtered tuples.

    Attributes:
        start: label of the arriving tuples that are split into substreams; empty: no split.
        function: :func:`function_digest` of this split.
        substreams: numbers of the substreams that take the step, ascending.
        sifted: whether a look-ahead filter before the step (``ProbeRule.ahead``) dropped tuples.
    """

    start: Label = Label("")
    function: str = ""
    substreams: tuple[int, ...] = ()
    sifted: bool = False

    def __str__(self) -> str:
        """Text about the counted tuples for people; empty if all tuples are counted."""
        numbers = ", ".join(map(str, self.substreams))
        word = "substream" if len(self.substreams) == 1 else "substreams"
        named = [f"{word} {numbers} of {self.start}"] if numbers else []
        return ", ".join([*named, *(["after a look-ahead"] if self.sifted else [])])


#: The counts cover all tuples.
WHOLE = StepPart()


class SubJoinStep(NamedTuple):
    """A step (a partial result probes a store), and the tuples that its counts cover.

    Attributes:
        joined: the sub-join after the step.
        head, target: the labels joined before the step, and the probed store's labels; sorted.
    """

    joined: MirId
    head: tuple[Label, ...]
    target: tuple[Label, ...]
    part: StepPart = WHOLE

    @property
    def whole(self) -> SubJoinStep:
        """The same step, counted over all tuples."""
        return self._replace(part=WHOLE)

    def __str__(self) -> str:
        names = f"{', '.join(self.head)} to {', '.join(self.target)}"
        return f"{names} ({self.part})" if self.part != WHOLE else names


class CountedStep(NamedTuple):
    """The step whose probes send their matches over one edge.

    Attributes:
        asked: outgoing edge of the earlier probe with a look-ahead filter on this probe's store and
            key, and the number of filters of that probe; None: there is no such probe.
    """

    step: SubJoinStep
    asked: tuple[Edge, int] | None = None


class _Reached(NamedTuple):
    """Tuples on an edge: their labels, and the key classes that they satisfy."""

    labels: frozenset[Label]
    classes: tuple[KeyClass, ...]


@dataclass(slots=True)
class StepMemo:
    """The steps of the last ruleset. A later ruleset has most of its rules, as the same objects.

    Attributes:
        arrivals: label -> its arriving tuples.
        steps: identities of a rule and of the tuples before it -> both, the tuples after it, step.
    """

    arrivals: dict[Label, _Reached] = field(default_factory=dict)
    steps: dict[tuple[int, int], tuple[ProbeRule, _Reached, _Reached, SubJoinStep]] = field(
        default_factory=dict
    )


def steps_of(ruleset: Ruleset, memo: StepMemo | None = None) -> dict[str, SubJoinStep]:
    """Map the outgoing edge of each probe to its step, as if all tuples were counted.

    Args:
        memo: steps of the last ruleset; this one replaces them.
    """
    return _steps_of(ruleset, ruleset.paths, memo or StepMemo())


def _steps_of(
    ruleset: Ruleset, paths: Iterable[ProbeRule], memo: StepMemo
) -> dict[str, SubJoinStep]:
    relation_of: dict[Label, RelationId] = {
        label: relation for query in ruleset.queries for _, label, relation in query.members
    }
    made = StepMemo()
    reached: dict[Edge, _Reached] = {}
    found: dict[str, SubJoinStep] = {}
    for rule in paths:
        before = reached.get(rule.edge)
        if before is None:
            start = rule.start
            before = memo.arrivals.get(start) or _Reached(frozenset({start}), ())
            before = made.arrivals.setdefault(start, before)
        key = id(rule), id(before)
        known = memo.steps.get(key)
        if known is None:
            classes = _closed(before.classes, _equalities(rule))
            after = _Reached(before.labels | frozenset(rule.members), classes)
            joined = canonical(classes, relation_of, after.labels).id
            step = SubJoinStep(joined, tuple(sorted(before.labels)), tuple(sorted(rule.members)))
            known = rule, before, after, step
        made.steps[key] = known
        _, _, reached[rule.out], found[rule.out] = known
    memo.arrivals, memo.steps = made.arrivals, made.steps
    return found


def counted_steps(ruleset: Ruleset, memo: StepMemo | None = None) -> dict[str, CountedStep]:
    """Map the outgoing edge of each probe to its step and the tuples that its counts cover;
    ``memo`` as in :func:`steps_of`.
    """
    paths = ruleset.paths
    steps = _steps_of(ruleset, paths, memo or StepMemo())
    if not ruleset.substreams and not any(rule.ahead for rule in paths):
        return {edge: CountedStep(step) for edge, step in steps.items()}
    takers, counts = ruleset.takers, substream_counts(ruleset.substreams)
    digests = {one.start: function_digest(one) for one in ruleset.substreams}
    sifted: dict[Edge, bool] = {}
    for rule in paths:
        sifted[rule.out] = bool(rule.ahead) or sifted.get(rule.edge, False)
    taken: dict[tuple[Label, SubJoinStep, bool], set[int]] = defaultdict(set)
    divided = [rule for rule in paths if rule.start in counts]
    for rule in divided:
        numbers = takers[rule.out] or range(counts[rule.start])
        taken[rule.start, steps[rule.out], sifted[rule.out]].update(numbers)
    parts = {edge: StepPart(sifted=True) if some else WHOLE for edge, some in sifted.items()}
    for rule in divided:
        some = taken[rule.start, steps[rule.out], sifted[rule.out]]
        if len(some) < counts[rule.start]:
            numbers = takers[rule.out]
            parts[rule.out] = StepPart(rule.start, digests[rule.start], numbers, sifted[rule.out])
    asked = _asked(ruleset)
    return {
        rule.out: CountedStep(steps[rule.out]._replace(part=parts[rule.out]), asked[rule.out])
        for rule in paths
    }


def function_digest(function: Substreams) -> str:
    """Return a digest of ``function``'s split of tuples into substreams."""
    told = function.start, function.attribute, function.type, function.groups, function.others
    return hashlib.blake2b(repr(told).encode(), digest_size=4).hexdigest()


def _asked(ruleset: Ruleset) -> dict[Edge, tuple[Edge, int] | None]:
    """Map each probe's outgoing edge to its look-ahead filter (:attr:`CountedStep.asked`)."""
    pending: dict[Edge, dict[_Question, tuple[Edge, int]]] = {}
    found: dict[Edge, tuple[Edge, int] | None] = {}
    for rule in ruleset.paths:
        known = pending.get(rule.edge, {})
        found[rule.out] = known.get(_question(rule))
        asking = (rule.out, len(rule.ahead))
        pending[rule.out] = known | {_question(one): asking for one in rule.ahead}
    return found


#: The look-up of a probe or look-ahead filter: a store, and the key attributes with types.
_Question = tuple["StoreId", frozenset[tuple[str, str]]]


def _question(asked: Presence | ProbeRule) -> _Question:
    return asked.store, frozenset((k.build.attribute, k.type) for k in asked.key)


def _equalities(rule: ProbeRule) -> list[tuple[AttrRef, AttrRef, str]]:
    """Return the equalities of a probe rule, between attributes of the query's labels.

    Equalities within an intermediate result come from base probes that can replace its probe.
    """
    only = rule.members[0] if len(rule.members) == 1 else None
    found = [
        (k.probe, k.build if only is None else AttrRef(only, k.build.attribute), k.type)
        for k in rule.key
    ]
    for fill in rule.fill:
        found += [(k.probe, AttrRef(fill.label, k.build.attribute), k.type) for k in fill.key]
    return found


def _closed(
    classes: Sequence[KeyClass], equalities: Iterable[tuple[AttrRef, AttrRef, str]]
) -> tuple[KeyClass, ...]:
    """Return the key classes of a sub-join merged by further equalities."""
    groups = [(c.type, set(c.members)) for c in classes]
    for left, right, kind in equalities:
        touched = [g for g in groups if left in g[1] or right in g[1]]
        groups = [g for g in groups if g not in touched]
        groups.append((kind, {left, right}.union(*(members for _, members in touched))))
    found = [KeyClass(kind, tuple(sorted(members))) for kind, members in groups]
    return tuple(sorted(found, key=lambda c: c.members))


def orders_digest(ruleset: Ruleset) -> str:
    """Return a digest of the probe orders. It is equal for two rulesets exactly if equal tuples
    take equal probes and end in equal stores and queries, i.e. the rulesets do the same work."""
    functions = {
        one.start: (one.attribute, one.type, one.groups, one.others) for one in ruleset.substreams
    }
    paths: dict[Edge, str] = {}
    for rule in ruleset.paths:
        step = rule.start, rule.store, rule.members, rule.key, rule.ahead, rule.substreams
        told = functions[rule.start] if rule.substreams else ()
        paths[rule.out] = _digest((paths.get(rule.edge, rule.edge), step, told))
    ends = [
        *(("query", o.query, paths.get(o.edge, o.edge)) for o in ruleset.output_rules),
        *(("store", s.store, paths.get(s.edge, s.edge)) for s in ruleset.store_rules),
    ]
    return _digest(sorted(ends))


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()
