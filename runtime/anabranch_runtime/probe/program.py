"""Probe rules of a ruleset as tables for the kernel that executes them in rounds (``rounds``).

A rule belongs to the program if its key's parts are columns of integers or strings. The program is
the same for all batches, so it is computed once per ruleset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from anabranch_contract.plans.ruleset import FillStep, KeyPart, ProbeRule, Ruleset
from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey
from anabranch_runtime.tags.choices import Choices
from anabranch_runtime.tags.predicates import PredicateIndex
from anabranch_runtime.tags.program import RoundChoices, RoundChoicesBuilder, TaggedRule, TagProgram

#: Label -> (index of its row set in a partial result, prefix of its columns): ``Partial.place``.
Place = dict[Label, tuple[int, str]]
_NONE = np.zeros(0, np.int32)
#: Maximum number of choices of a probe tree in rounds, which test each choice by itself.
FEW_CHOICES = 16
#: Key type -> types of columns that the kernel reads.
_PLAIN = {
    "bigint": frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.duration("us")}),
    "timestamp": frozenset({pa.timestamp("us"), pa.timestamp("us", "UTC")}),
    "date": frozenset({pa.date32()}),
    "string": frozenset({pa.string()}),
}


@dataclass(frozen=True, slots=True)
class StoreLookup:
    """A look-up in stores, shared by the probe rules with equal stores, batches and index.

    Attributes:
        rule: one of these rules. ``kind``: kind of the stores' tables (``NumberedTables``).
        index: the stores' index that it uses. ``name``: the index's name.
    """

    rule: ProbeRule
    kind: str
    index: IndexKey
    name: str


@dataclass(frozen=True, slots=True)
class RoundOutputs:
    """Outputs of a probe program that have tags, numbered in the order of their rules' edges.

    Attributes:
        choices: the tags of each output, as a choice of one alternative.
        ends: 0, and the end of each probe rule's outputs.
        rules: per output, the number of its probe rule, and its output rules.
        delivers: mask of the probe rules whose results also go to stores, to outputs without tags
            or to rules in ``ProbeProgram.others``.
    """

    choices: RoundChoices
    ends: Ints
    rules: tuple[tuple[int, tuple[TaggedRule, ...]], ...]
    delivers: Bools


@dataclass(frozen=True, slots=True)
class ProbeProgram:
    """The rules of a probe program; a rule's number is its index in ``rules``.

    Attributes:
        rules: the rules. ``numbers``: edge -> number of its rule.
        places: per rule, label -> row set in its results; the last row set has the matched rows,
            the others are the row sets of its input.
        kinds: per rule and row set, the kind of its tables (``NumberedTables``).
        table, keys, orders, bounds: arguments of ``index.rounds.match_round``.
        lookups: distinct lookups.
        names: columns read from tuples: starts' sigmas (arrival numbers), event times, keys.
        read: kind -> indexes in ``names`` of the columns read from its tables.
        children, child_ends: per rule, the numbers of the next rules that run in the same call,
            concatenated; 0, and the end of each rule's numbers.
        others: per rule, the next rules that do not run in the same call.
        delivers: mask of the rules whose results go to stores, outputs or rules in ``others``.
        checked: mask of the rules whose matches must pass residuals or further time bounds.
        untagged: like ``checked``, not counting residuals that tags test.
        choices: the tags that tuples must have to be sent; None: no rule requires any.
        outputs: the outputs with tags; None: there are none.
    """

    rules: tuple[ProbeRule, ...]
    numbers: Mapping[str, int]
    places: tuple[Place, ...]
    kinds: tuple[tuple[str, ...], ...]
    table: Ints
    keys: Ints
    orders: Ints
    bounds: Ints
    lookups: tuple[StoreLookup, ...]
    names: tuple[str, ...]
    read: Mapping[str, tuple[int, ...]]
    children: Ints
    child_ends: Ints
    others: tuple[tuple[ProbeRule, ...], ...]
    delivers: Bools
    checked: Bools
    untagged: Bools
    choices: RoundChoices | None
    outputs: RoundOutputs | None


def program(ruleset: Ruleset, tags: TagProgram) -> ProbeProgram:
    """Return the probe program of ``ruleset``, given its tag program."""
    known = _known(ruleset)
    if not known or known[0][0] is not tags:
        compiler = _Compiler(Layout(ruleset, {}), tags)
        for rule in ruleset.probe_rules:
            compiler.add(rule)
        known[:] = [(tags, compiler.program())]
    return known[0][1]


@per_ruleset
def _known(ruleset: Ruleset) -> list[tuple[TagProgram, ProbeProgram]]:
    """Return a cache for a ruleset: its newest probe program, with the tag program used."""
    return []


@dataclass(slots=True)
class _Compiler:
    layout: Layout
    tags: TagProgram
    rules: list[ProbeRule] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    kinds: list[tuple[str, ...]] = field(default_factory=list)
    lines: list[tuple[int, ...]] = field(default_factory=list)
    keys: list[tuple[int, int, int]] = field(default_factory=list)
    orders: list[tuple[int, int]] = field(default_factory=list)
    bounds: list[tuple[int, ...]] = field(default_factory=list)
    checked: list[tuple[bool, bool]] = field(default_factory=list)
    choices: RoundChoicesBuilder = field(default_factory=RoundChoicesBuilder)
    outputs: RoundChoicesBuilder = field(default_factory=RoundChoicesBuilder)
    output_rules: list[tuple[int, tuple[TaggedRule, ...]]] = field(default_factory=list)
    output_ends: list[int] = field(default_factory=lambda: [0])
    names: dict[str, int] = field(default_factory=lambda: {SIGMA: 0})
    read: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    lookups: dict[tuple[str, str, IndexKey, tuple[FillStep, ...]], int] = field(
        default_factory=dict
    )
    found: list[StoreLookup] = field(default_factory=list)
    #: Edge -> place of each label, and kind of each row set, in the tuples on it.
    _tuples: dict[str, tuple[Place, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, rule: ProbeRule) -> None:
        """Add the probe rule ``rule`` to the program if it can run in rounds."""
        layout = self.layout
        if not all(self._is_plain(part) for part in rule.key) or self._has_many_choices(rule):
            return
        before, kinds = self._input(rule)
        place, kinds = self._output(rule)
        exact = len(rule.key) == 1 and rule.key[0].type != "string"
        first_key, first_bound, first_order = len(self.keys), len(self.bounds), len(self.orders)
        self._read(kinds[0], SIGMA)
        for part in rule.key:
            column = self._column(before, kinds, part.probe.label, part.probe.attribute)
            built = -1 if exact else self._read(kinds[-1], _built(layout, rule, part))
            self.keys.append((before[part.probe.label][0], column, built))
        bounded = [self._bound(rule, n, before, kinds) for n in range(len(rule.bounds))]
        index = IndexKey(
            tuple(_built(layout, rule, part) for part in rule.key),
            tuple(part.type for part in rule.key),
        )
        lookup = (rule.mir, rule.store, index, tuple(rule.fill))
        if lookup not in self.lookups:
            self.lookups[lookup] = len(self.found)
            self.found.append(StoreLookup(rule, kinds[-1], index, index.name))
        own = layout.order(rule.start)
        for member in rule.members:
            other = layout.order(member)
            later = (other > own) - (other < own)
            self.orders.append((0 if member in rule.inclusive else 1, later))
        self.rules.append(rule)
        self.places.append(place)
        self.kinds.append(kinds)
        self.lines.append(
            (
                first_key,
                len(self.keys),
                first_bound,
                len(self.bounds),
                first_order,
                len(self.orders),
                self.lookups[lookup],
                int(exact),
            )
        )
        residuals = self.tags.residuals.get(rule.out, rule.residuals)
        unbounded = not all(bounded)
        self.checked.append((bool(rule.residuals) or unbounded, bool(residuals) or unbounded))
        self._choose(rule, before, kinds)

    def _has_many_choices(self, rule: ProbeRule) -> bool:
        """Whether the probe tree of ``rule`` has more choices than a round can test."""
        tags, outputs = self.tags, self.tags.outputs.get(rule.out)
        found = [tags.inputs.get(rule.out), tags.results.get(rule.out)]
        found.append(None if outputs is None else outputs.choices)
        return any(one is not None and len(one.group.predicates) > FEW_CHOICES for one in found)

    def _choose(self, rule: ProbeRule, place: Place, kinds: tuple[str, ...]) -> None:
        """Add the tags that results of ``rule`` need to be sent on, and the tags of its outputs."""
        choices = self.tags.inputs.get(rule.out)
        if choices is None:
            self.choices.add((), _NONE)
        else:
            self.choices.add(self._located(choices, place, kinds[:-1]), choices.predicates)
        outputs = self.tags.outputs.get(rule.out)
        if outputs is not None:
            places = self._located(outputs.choices, self._output(rule)[0], kinds)
            for predicates, rules in zip(outputs.choices.predicates, outputs.rules, strict=True):
                self.outputs.add(places, predicates)
                self.output_rules.append((len(self.rules) - 1, rules))
        self.output_ends.append(len(self.output_rules))

    def _located(
        self, choices: Choices, place: Place, kinds: tuple[str, ...]
    ) -> list[tuple[int, int, PredicateIndex]]:
        """Return row set, column and predicate index of each label of ``choices``."""
        name, indexes, layout = self.tags.name, self.tags.indexes, self.layout
        return [
            (place[x][0], self._column(place, kinds, x, name), indexes[layout.stream(x)])
            for x in choices.labels
        ]

    def _is_plain(self, part: KeyPart) -> bool:
        """Whether the kernel of rounds can read the columns of a key part on both sides."""
        layout, kinds = self.layout, _PLAIN.get(part.type, frozenset())
        for end in (part.probe, part.build):
            declared = dict(layout.streams[layout.stream(end.label)].columns)
            if layout.derived(end.label, end.attribute) is not None:
                return False
            if arrow_type(declared[end.attribute]) not in kinds:
                return False
        return True

    def _bound(self, rule: ProbeRule, n: int, before: Place, kinds: tuple[str, ...]) -> bool:
        """Add ``rule``'s ``n``-th time bound; return False if it is not between input and match."""
        bound = rule.bounds[n]
        if (bound.later in rule.members) == (bound.earlier in rule.members):
            return False
        later = bound.later in rule.members
        member, partner = (bound.later, bound.earlier) if later else (bound.earlier, bound.later)
        column = self._column(before, kinds, partner, TAU)
        at = rule.members.index(member)
        self.bounds.append((before[partner][0], column, bound.micros, int(later), at))
        return True

    def _column(self, place: Place, kinds: tuple[str, ...], label: Label, name: str) -> int:
        """Return the index in ``names`` of a column of ``label``, read from the label's row set."""
        at, member = place[label]
        if member:
            name = f"{name}:{member}" if name == TAU else f"{member}.{name}"
        return self._read(kinds[at], name)

    def _read(self, kind: str, name: str) -> int:
        """Return the index in ``names`` of a column to be read from tables of ``kind``."""
        column = self.names.setdefault(name, len(self.names))
        self.read[kind].add(column)
        return column

    def _input(self, rule: ProbeRule) -> tuple[Place, tuple[str, ...]]:
        """Return place per label, and kind per row set, of tuples on the edge into ``rule``."""
        before = self.layout.rules.get(rule.edge)
        if before is None:
            return {rule.start: (0, "")}, (self.layout.stream(rule.start),)
        return self._output(before)

    def _output(self, rule: ProbeRule) -> tuple[Place, tuple[str, ...]]:
        """Return place per label, and kind per row set, of the results of ``rule``."""
        known = self._tuples.get(rule.out)
        if known is None:
            place, kinds = self._input(rule)
            at, members = len(kinds), rule.members
            if self.layout.is_base(rule.mir):
                kind, added = str(self.layout.stream(members[0])), {members[0]: (at, "")}
            else:
                kind, added = f"joined {rule.store}", {m: (at, str(m)) for m in members}
            known = self._tuples[rule.out] = {**place, **added}, (*kinds, kind)
        return known

    def program(self) -> ProbeProgram:
        """Return the probe program of the added rules."""
        layout = self.layout
        numbers = {str(rule.out): number for number, rule in enumerate(self.rules)}
        children: list[list[int]] = []
        others: list[tuple[ProbeRule, ...]] = []
        for rule in self.rules:
            following = layout.probes.get(rule.out, ())
            # The next rules run in the same call, unless they look ahead or await a later level.
            fit = [
                r for r in following if r.out in numbers and not r.ahead and r.level <= rule.level
            ]
            children.append([numbers[r.out] for r in fit])
            others.append(tuple(r for r in following if r not in fit))
        wanted = (layout.inserts, layout.outputs)
        delivers = [
            bool(left) or any(rule.out in there for there in wanted)
            for rule, left in zip(self.rules, others, strict=True)
        ]
        return ProbeProgram(
            tuple(self.rules),
            numbers,
            tuple(self.places),
            tuple(self.kinds),
            np.array(self.lines, np.int64).reshape(-1, 8),
            np.array(self.keys, np.int64).reshape(-1, 3),
            np.array(self.orders, np.int64).reshape(-1, 2),
            np.array(self.bounds, np.int64).reshape(-1, 5),
            tuple(self.found),
            tuple(self.names),
            {kind: tuple(sorted(columns)) for kind, columns in self.read.items()},
            np.array([c for own in children for c in own], np.int64),
            np.cumsum([0, *map(len, children)]),
            tuple(others),
            np.array(delivers, np.bool_),
            np.array([one for one, _ in self.checked], np.bool_),
            np.array([one for _, one in self.checked], np.bool_),
            self.choices.made(),
            self._outputs(others),
        )

    def _outputs(self, others: Sequence[Sequence[ProbeRule]]) -> RoundOutputs | None:
        choices = self.outputs.made()
        if choices is None:
            return None
        layout, tagged = self.layout, self.tags.outputs
        beyond = [
            bool(left)
            or bool(layout.inserts.get(r.out))
            or bool(tagged[r.out].untagged if r.out in tagged else layout.outputs.get(r.out))
            for r, left in zip(self.rules, others, strict=True)
        ]
        return RoundOutputs(
            choices,
            np.array(self.output_ends),
            tuple(self.output_rules),
            np.array(beyond, np.bool_),
        )


def _built(layout: Layout, rule: ProbeRule, part: KeyPart) -> str:
    """Return the name of a key attribute's column in the stores that ``rule`` probes."""
    end = part.build
    return end.attribute if layout.is_base(rule.mir) else f"{end.label}.{end.attribute}"
