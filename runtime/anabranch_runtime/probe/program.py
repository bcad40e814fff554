"""Probe rules of a ruleset as tables for the kernel that executes them in rounds (``rounds``).

A rule belongs to the program if its key's parts are columns of integers or strings. The program is
the same for all batches, so it is computed once per ruleset, of parts for its probe trees. Parts of
trees that the last ruleset has, too, are taken from there.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import cast

import numpy as np
import pyarrow as pa

from anabranch_contract.plans.ruleset import FillStep, KeyPart, ProbeRule, Ruleset, TimeBound
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import Label, StreamName
from anabranch_runtime.columns.arrays import I32, Bools, Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.per_ruleset import alike
from anabranch_runtime.index.rounds import BOUNDS, KEYS, LOOKUP, ORDERS
from anabranch_runtime.storage.segment import SIGMA, TAU, IndexKey
from anabranch_runtime.tags.choices import Choices
from anabranch_runtime.tags.predicates import PredicateIndex
from anabranch_runtime.tags.program import RoundChoices, TaggedRule, TagProgram
from anabranch_runtime.tags.trees import CompiledTrees, RuleTree

#: Label -> (index of its row set in a partial result, prefix of its columns): ``Partial.place``.
Place = dict[Label, tuple[int, str]]
#: Probed relation or MIR, store and index of a look-up, and the steps that fill gaps.
_Lookup = tuple[str, str, IndexKey, tuple[FillStep, ...]]
_NONE = np.zeros(0, np.int32)
#: Number of unused columns or look-ups that a family may number whatever the number of used ones.
_SPARE = 64
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


class _Family:
    """Numbers that probe programs of successive rulesets have in common, and the newest one's
    parts.

    Attributes:
        names: column -> number. ``lookups``: look-up -> number.
        indexes: identity of a predicate index -> number and index.
    """

    def __init__(self, tags: str, derived: tuple[tuple[StreamName, str, Expr], ...]) -> None:
        self._tags, self._derived = tags, derived
        self.names: dict[str, int] = {SIGMA: 0}
        self.lookups: dict[_Lookup, int] = {}
        self.indexes: dict[int, tuple[int, PredicateIndex]] = {}
        self.parts: CompiledTrees[_ProgramPart] = CompiledTrees()

    def serves(self, ruleset: Ruleset, tags: TagProgram) -> bool:
        """Whether parts compiled for the last ruleset fit this one, given its tag program."""
        return self._tags == tags.name and self._derived == ruleset.derived

    def wastes(self, made: ProbeProgram) -> bool:
        """Whether many numbers are of columns or look-ups that ``made`` does not use."""
        columns = set[int]().union(*made.read.values())
        numbered = max(
            len(self.names) - 2 * len(columns), len(self.lookups) - 2 * len(made.lookups)
        )
        return numbered > _SPARE

    def numbered(self, index: PredicateIndex) -> int:
        """Return the number of a predicate index."""
        return self.indexes.setdefault(id(index), (len(self.indexes), index))[0]


#: List with the newest family in this process, if any.
_NEWEST: list[_Family] = []
_MAKING = Lock()


def program(ruleset: Ruleset, tags: TagProgram) -> ProbeProgram:
    """Return the probe program of ``ruleset``, given its tag program."""
    for one, made in tags.derived:
        if alike(one, ruleset):
            return cast("ProbeProgram", made)
    found = _made(ruleset, tags)
    tags.derived[:] = [(ruleset, found)]
    return found


def _made(ruleset: Ruleset, tags: TagProgram) -> ProbeProgram:
    # Lock: tasks in threads of one process use one family.
    with _MAKING:
        if not _NEWEST or not _NEWEST[0].serves(ruleset, tags):
            _NEWEST[:] = [_Family(tags.name, ruleset.derived)]
        family = _NEWEST[0]
        compiler = _Compiler(Layout(ruleset, {}), tags, family)
        made = _joined(family.parts.of(ruleset, compiler.part), family)
        if family.wastes(made):
            _NEWEST.clear()
        return made


@dataclass(frozen=True, slots=True)
class _PartChoices:
    """Choices of a part's rules or outputs, as :class:`RoundChoices`; indexes by number."""

    rules: Ints
    labels: Ints
    predicates: I32
    indexes: Ints


@dataclass(frozen=True, slots=True)
class _ProgramPart:
    """The part of a probe program for one tree; see :class:`ProbeProgram`.

    Rules and rows of tables are numbered in the part, columns and look-ups in the family.

    Attributes:
        reads: kind of tables and column of each read.
        children, outputs: as there; ``child_counts``, ``output_counts``: per rule, their number.
        masks: per rule, whether it is in ``delivers``, ``checked``, ``untagged`` and
            ``RoundOutputs.delivers``.
    """

    rules: Sequence[ProbeRule]
    places: Sequence[Place]
    kinds: Sequence[tuple[str, ...]]
    table: Ints
    keys: Ints
    orders: Ints
    bounds: Ints
    reads: frozenset[tuple[str, int]]
    children: Ints
    child_counts: Sequence[int]
    others: Sequence[tuple[ProbeRule, ...]]
    masks: Bools
    choices: _PartChoices
    outputs: _PartChoices
    output_counts: Sequence[int]
    output_rules: Sequence[tuple[int, tuple[TaggedRule, ...]]]


def _joined(parts: Sequence[_ProgramPart], family: _Family) -> ProbeProgram:
    """Return the probe program of the parts for all trees."""
    parts = [part for part in parts if part.rules]
    sizes = [len(part.rules) for part in parts]
    rules = tuple(itertools.chain.from_iterable(part.rules for part in parts))
    table = _stacked([part.table for part in parts], 8)
    for first, tables in ((KEYS, "keys"), (BOUNDS, "bounds"), (ORDERS, "orders")):
        lengths = [len(getattr(part, tables)) for part in parts]
        table[:, first : first + 2] += _before(lengths, sizes)[:, None]
    used, firsts, table[:, LOOKUP] = np.unique(
        table[:, LOOKUP], return_index=True, return_inverse=True
    )
    indexes = [index for _, _, index, _ in family.lookups]
    kinds = tuple(itertools.chain.from_iterable(part.kinds for part in parts))
    lookups = [
        StoreLookup(rules[first], kinds[first][-1], indexes[number], indexes[number].name)
        for number, first in zip(used.tolist(), firsts.tolist(), strict=True)
    ]
    read: dict[str, set[int]] = defaultdict(set)
    for kind, column in frozenset[tuple[str, int]]().union(*(part.reads for part in parts)):
        read[kind].add(column)
    children = _flat([part.children for part in parts])
    children += _before(sizes, [len(part.children) for part in parts])
    child_counts = itertools.chain.from_iterable(part.child_counts for part in parts)
    masks = np.concatenate([np.zeros((0, 4), np.bool_), *(part.masks for part in parts)])
    delivers, checked, untagged, beyond = np.ascontiguousarray(masks.T)
    outputs = _choices([part.outputs for part in parts], family)
    return ProbeProgram(
        rules,
        {str(rule.out): number for number, rule in enumerate(rules)},
        tuple(itertools.chain.from_iterable(part.places for part in parts)),
        kinds,
        table,
        _stacked([part.keys for part in parts], 3),
        _stacked([part.orders for part in parts], 2),
        _stacked([part.bounds for part in parts], 5),
        tuple(lookups),
        tuple(family.names),
        {kind: tuple(sorted(columns)) for kind, columns in read.items()},
        children,
        np.cumsum([0, *child_counts]),
        tuple(itertools.chain.from_iterable(part.others for part in parts)),
        delivers,
        checked,
        untagged,
        _choices([part.choices for part in parts], family),
        None if outputs is None else _outputs(outputs, parts, sizes, beyond),
    )


def _outputs(
    choices: RoundChoices, parts: Sequence[_ProgramPart], sizes: Sequence[int], delivers: Bools
) -> RoundOutputs:
    first = np.cumsum([0, *sizes])[:-1].tolist()
    counts = itertools.chain.from_iterable(part.output_counts for part in parts)
    rules = [
        (begin + number, some)
        for begin, part in zip(first, parts, strict=True)
        for number, some in part.output_rules
    ]
    return RoundOutputs(choices, np.cumsum([0, *counts]), tuple(rules), delivers)


def _choices(parts: Sequence[_PartChoices], family: _Family) -> RoundChoices | None:
    """Return the choices of all parts; None if no rule or output has any."""
    labels = _stacked([part.labels for part in parts], 4)
    if not len(labels):
        return None
    rules, sizes = _stacked([part.rules for part in parts], 4), [len(part.rules) for part in parts]
    rules[:, :2] += _before([len(part.labels) for part in parts], sizes)[:, None]
    rules[:, 2:] += _before([len(part.predicates) for part in parts], sizes)[:, None]
    return RoundChoices(
        rules,
        labels,
        np.concatenate([part.predicates for part in parts]),
        tuple(index for _, index in family.indexes.values()),
        _flat([part.indexes for part in parts]),
    )


def _before(lengths: Sequence[int], repeats: Sequence[int]) -> Ints:
    """Return the sum of the lengths before each part, as often as ``repeats`` gives for it."""
    found: Ints = np.repeat(np.cumsum([0, *lengths])[:-1], repeats)
    return found


def _stacked(tables: Sequence[Ints], width: int) -> Ints:
    """Return the rows of all tables, which have ``width`` columns."""
    return np.concatenate([np.zeros((0, width), np.int64), *tables])


def _flat(values: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *values])


@dataclass(slots=True)
class _Choosing:
    """Collects the choices of a part's rules or outputs."""

    rules: list[tuple[int, int, int, int]] = field(default_factory=list)
    labels: list[tuple[int, int, int, int]] = field(default_factory=list)
    predicates: list[I32] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)

    def add(self, places: Sequence[tuple[int, int, int]], predicates: I32) -> None:
        """Add choices; ``places``: row set, column and number of the index of each label."""
        first, begun = len(self.labels), self.rules[-1][3] if self.rules else 0
        for rows, column, index in places:
            self.labels.append((rows, column, 0, 0))
            self.indexes.append(index)
        flat = predicates.reshape(-1)
        self.predicates.append(flat)
        self.rules.append((first, len(self.labels), begun, begun + len(flat)))

    def made(self) -> _PartChoices:
        """Return the collected choices."""
        return _PartChoices(
            _rows(self.rules, 4),
            _rows(self.labels, 4),
            np.concatenate([_NONE, *self.predicates]),
            np.array(self.indexes, np.int64),
        )


def _rows(values: Sequence[tuple[int, ...]], width: int) -> Ints:
    return np.array(values, np.int64).reshape(-1, width)


class _Compiler:
    """Compiles the parts of one ruleset's program."""

    def __init__(self, layout: Layout, tags: TagProgram, family: _Family) -> None:
        self.layout, self.tags, self.family = layout, tags, family
        #: Type of a key's part, stream and attribute -> whether the kernel can read the column.
        self._plain: dict[tuple[str, str, str], bool] = {}

    def part(self, tree: RuleTree) -> _ProgramPart:
        """Return the part of the program for a probe tree."""
        part = _PartCompiler(self)
        for rule in tree.rules:
            if all(map(self._is_plain, rule.key)) and not self._has_many_choices(rule):
                part.add(rule)
        return part.made()

    def _has_many_choices(self, rule: ProbeRule) -> bool:
        """Whether the probe tree of ``rule`` has more choices than a round can test."""
        tags, outputs = self.tags, self.tags.outputs.get(rule.out)
        found = [tags.inputs.get(rule.out), tags.results.get(rule.out)]
        found.append(None if outputs is None else outputs.choices)
        return any(one is not None and len(one.group.predicates) > FEW_CHOICES for one in found)

    def _is_plain(self, part: KeyPart) -> bool:
        """Whether the kernel of rounds can read the columns of a key part on both sides."""
        layout = self.layout
        for end in (part.probe, part.build):
            key = part.type, layout.stream(end.label), end.attribute
            known = self._plain.get(key)
            if known is None:
                known = self._plain[key] = layout.derived(
                    end.label, end.attribute
                ) is None and arrow_type(
                    dict(layout.streams[key[1]].columns)[end.attribute]
                ) in _PLAIN.get(part.type, frozenset())
            if not known:
                return False
        return True


@dataclass(slots=True)
class _PartCompiler:
    compiler: _Compiler
    rules: list[ProbeRule] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    kinds: list[tuple[str, ...]] = field(default_factory=list)
    lines: list[tuple[int, ...]] = field(default_factory=list)
    keys: list[tuple[int, int, int]] = field(default_factory=list)
    orders: list[tuple[int, int]] = field(default_factory=list)
    bounds: list[tuple[int, ...]] = field(default_factory=list)
    reads: set[tuple[str, int]] = field(default_factory=set)
    checked: list[tuple[bool, bool]] = field(default_factory=list)
    choices: _Choosing = field(default_factory=_Choosing)
    outputs: _Choosing = field(default_factory=_Choosing)
    output_counts: list[int] = field(default_factory=list)
    output_rules: list[tuple[int, tuple[TaggedRule, ...]]] = field(default_factory=list)
    #: Edge -> place of each label, and kind of each row set, in the tuples on it.
    _tuples: dict[str, tuple[Place, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, rule: ProbeRule) -> None:
        """Add the probe rule ``rule``."""
        layout, family = self.compiler.layout, self.compiler.family
        before, kinds = self._input(rule)
        place, kinds = self._output(rule)
        exact = len(rule.key) == 1 and rule.key[0].type != "string"
        first_key, first_bound, first_order = len(self.keys), len(self.bounds), len(self.orders)
        self._read(kinds[0], SIGMA)
        names = tuple(_built(layout, rule, part) for part in rule.key)
        for part, name in zip(rule.key, names, strict=True):
            column = self._column(before, kinds, part.probe.label, part.probe.attribute)
            built = -1 if exact else self._read(kinds[-1], name)
            self.keys.append((before[part.probe.label][0], column, built))
        bounded = [self._bound(rule, bound, before, kinds) for bound in rule.bounds]
        index = IndexKey(names, tuple(part.type for part in rule.key))
        lookup = rule.mir, rule.store, index, tuple(rule.fill)
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
                family.lookups.setdefault(lookup, len(family.lookups)),
                int(exact),
            )
        )
        residuals = self.compiler.tags.residuals.get(rule.out, rule.residuals)
        unbounded = not all(bounded)
        self.checked.append((bool(rule.residuals) or unbounded, bool(residuals) or unbounded))
        self._choose(rule, before, place, kinds)

    def made(self) -> _ProgramPart:
        """Return the part with the added rules."""
        layout, tagged = self.compiler.layout, self.compiler.tags.outputs
        numbers = {str(rule.out): number for number, rule in enumerate(self.rules)}
        children: list[list[int]] = []
        others: list[tuple[ProbeRule, ...]] = []
        masks: list[tuple[bool, ...]] = []
        for rule, checked in zip(self.rules, self.checked, strict=True):
            edge, following = rule.out, layout.probes.get(rule.out, ())
            # The next rules run in the same call, unless they look ahead or await a later level.
            fit = [
                r for r in following if r.out in numbers and not r.ahead and r.level <= rule.level
            ]
            children.append([numbers[r.out] for r in fit])
            others.append(tuple(r for r in following if r not in fit))
            inserts, outputs = layout.inserts.get(edge), layout.outputs.get(edge)
            beyond = bool(others[-1]) or bool(inserts)
            left = tagged[edge].untagged if edge in tagged else outputs
            masks.append((beyond or bool(outputs), *checked, beyond or bool(left)))
        return _ProgramPart(
            self.rules,
            self.places,
            self.kinds,
            _rows(self.lines, 8),
            _rows(self.keys, 3),
            _rows(self.orders, 2),
            _rows(self.bounds, 5),
            frozenset(self.reads),
            np.array([c for own in children for c in own], np.int64),
            list(map(len, children)),
            others,
            np.array(masks, np.bool_).reshape(-1, 4),
            self.choices.made(),
            self.outputs.made(),
            self.output_counts,
            self.output_rules,
        )

    def _choose(self, rule: ProbeRule, before: Place, place: Place, kinds: tuple[str, ...]) -> None:
        """Add the tags that tuples need to be sent by ``rule``, and the tags of its outputs."""
        tags = self.compiler.tags
        choices = tags.inputs.get(rule.out)
        if choices is None:
            self.choices.add((), _NONE)
        else:
            self.choices.add(self._located(choices, before, kinds[:-1]), choices.predicates)
        outputs = tags.outputs.get(rule.out)
        if outputs is not None:
            places = self._located(outputs.choices, place, kinds)
            for predicates, rules in zip(outputs.choices.predicates, outputs.rules, strict=True):
                self.outputs.add(places, predicates)
                self.output_rules.append((len(self.rules) - 1, rules))
        self.output_counts.append(0 if outputs is None else len(outputs.rules))

    def _located(
        self, choices: Choices, place: Place, kinds: tuple[str, ...]
    ) -> list[tuple[int, int, int]]:
        """Return row set, column and number of the predicate index of each label of ``choices``."""
        tags, layout, family = self.compiler.tags, self.compiler.layout, self.compiler.family
        return [
            (
                place[x][0],
                self._column(place, kinds, x, tags.name),
                family.numbered(tags.indexes[layout.stream(x)]),
            )
            for x in choices.labels
        ]

    def _bound(
        self, rule: ProbeRule, bound: TimeBound, before: Place, kinds: tuple[str, ...]
    ) -> bool:
        """Add a time bound of ``rule``; return False if it is not between input and match."""
        later = bound.later in rule.members
        if later == (bound.earlier in rule.members):
            return False
        member, partner = (bound.later, bound.earlier) if later else (bound.earlier, bound.later)
        column = self._column(before, kinds, partner, TAU)
        at = rule.members.index(member)
        self.bounds.append((before[partner][0], column, bound.micros, int(later), at))
        return True

    def _column(self, place: Place, kinds: tuple[str, ...], label: Label, name: str) -> int:
        """Return the number of a column of ``label``, read from the label's row set."""
        at, member = place[label]
        if member:
            name = f"{name}:{member}" if name == TAU else f"{member}.{name}"
        return self._read(kinds[at], name)

    def _read(self, kind: str, name: str) -> int:
        """Return the number of a column to be read from tables of ``kind``."""
        names = self.compiler.family.names
        column = names.setdefault(name, len(names))
        self.reads.add((kind, column))
        return column

    def _input(self, rule: ProbeRule) -> tuple[Place, tuple[str, ...]]:
        """Return place per label, and kind per row set, of tuples on the edge into ``rule``."""
        layout = self.compiler.layout
        before = layout.rules.get(rule.edge)
        if before is None:
            return {rule.start: (0, "")}, (layout.stream(rule.start),)
        return self._output(before)

    def _output(self, rule: ProbeRule) -> tuple[Place, tuple[str, ...]]:
        """Return place per label, and kind per row set, of the results of ``rule``."""
        known = self._tuples.get(rule.out)
        if known is None:
            layout = self.compiler.layout
            place, kinds = self._input(rule)
            at, members = len(kinds), rule.members
            if layout.is_base(rule.mir):
                kind, added = str(layout.stream(members[0])), {members[0]: (at, "")}
            else:
                kind, added = f"joined {rule.store}", {m: (at, str(m)) for m in members}
            known = self._tuples[rule.out] = {**place, **added}, (*kinds, kind)
        return known


def _built(layout: Layout, rule: ProbeRule, part: KeyPart) -> str:
    """Return the name of a key attribute's column in the stores that ``rule`` probes."""
    end = part.build
    return end.attribute if layout.is_base(rule.mir) else f"{end.label}.{end.attribute}"
