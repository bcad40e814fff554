"""Tag program of a ruleset: the predicates that each probe and each output of it tests.

A *tag* is a predicate that a query has on one of its labels and does not share with the label's
relation: queries whose filters differ read one store. A probe is sent the tuples that some query
downstream of it wants, and an output takes the tuples that its query wants. Downstream of a probe,
queries with equal predicates on the labels joined so far are one *choice*.

Only conditions that can't raise an error are tags; others remain residuals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock

import numpy as np

from anabranch_contract.plans.ruleset import OutputRule, Ruleset
from anabranch_contract.queries.expressions import Column, Expr, columns, is_total, substitute
from anabranch_contract.queries.joins import Label, Stream
from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.tags.predicates import PredicateIndex

#: Name of the column with the numbers of rows' sets, before the generation of the indexes.
TAGS = "#tags"
#: Unused predicates of all indexes, relative to used ones, from which new indexes are begun.
_WASTE = 3
_FEW = 1024
#: Least number of batches between two replacements of full indexes.
LASTING = 256


@dataclass(frozen=True, slots=True)
class Choices:
    """Alternatives of predicates: a tuple passes if it satisfies all predicates of one of them.

    Attributes:
        labels: the labels with predicates.
        predicates: shape (choices, labels): predicate of the label, or -1.
        orders: the same shape: per label, the numbers of the choices by their predicates.
    """

    labels: tuple[Label, ...]
    predicates: I32
    orders: I32

    @property
    def flat(self) -> tuple[I32, I32]:
        """Predicates and orders as flat arrays, as the kernels take them."""
        return self.predicates.reshape(-1), self.orders.reshape(-1)


@dataclass(frozen=True, slots=True)
class RoundChoices:
    """The choices that tuples must satisfy to be sent in a round, as tables for
    ``index.choosing.send``.

    Attributes:
        rules, labels, predicates, orders: the kernel's tables; addresses in ``labels`` are filled
            in per call.
        indexes: the predicate indexes. ``index_of``: per row of ``labels``, its number.
    """

    rules: Ints
    labels: Ints
    predicates: I32
    orders: I32
    indexes: tuple[PredicateIndex, ...]
    index_of: Ints


@dataclass(slots=True)
class RoundChoicesBuilder:
    """Collects :class:`RoundChoices`, row by row of ``rules``."""

    rules: list[tuple[int, int, int, int]] = field(default_factory=list)
    labels: list[tuple[int, int, int, int]] = field(default_factory=list)
    predicates: list[I32] = field(default_factory=list)
    orders: list[I32] = field(default_factory=list)
    indexes: list[PredicateIndex] = field(default_factory=list)

    def add(
        self, places: Sequence[tuple[int, int, PredicateIndex]], predicates: I32, orders: I32
    ) -> None:
        """Add the choices of one rule: row set, column and index of each label."""
        first, begun = len(self.labels), self.rules[-1][3] if self.rules else 0
        for rows, column, index in places:
            self.labels.append((rows, column, 0, 0))
            self.indexes.append(index)
        flat = predicates.reshape(-1)
        self.predicates.append(flat)
        self.orders.append(orders.reshape(-1))
        self.rules.append((first, len(self.labels), begun, begun + len(flat)))

    def made(self) -> RoundChoices | None:
        """The collected choices; None if no rule has any."""
        if not self.labels:
            return None
        distinct = list({id(index): index for index in self.indexes}.values())
        numbers = {id(index): n for n, index in enumerate(distinct)}
        return RoundChoices(
            np.array(self.rules, np.int64),
            np.array(self.labels, np.int64),
            np.concatenate(self.predicates),
            np.concatenate(self.orders),
            tuple(distinct),
            np.array([numbers[id(index)] for index in self.indexes], np.int64),
        )


@dataclass(frozen=True, slots=True)
class TaggedRule:
    """An output rule with tags.

    Attributes:
        tested: the rule without the conditions that tags test. ``whole``: with all conditions.
    """

    tested: OutputRule
    whole: OutputRule


@dataclass(frozen=True, slots=True)
class TaggedOutputs:
    """The output rules of one edge, some with tags.

    Attributes:
        untagged: rules without tags. ``choices``: the distinct predicates of the others.
        rules: per choice, its rules.
    """

    untagged: tuple[OutputRule, ...]
    choices: Choices
    rules: tuple[tuple[TaggedRule, ...], ...]


@dataclass(frozen=True, slots=True)
class TagProgram:
    """The tags of one ruleset.

    Attributes:
        name: the column with the numbers of rows' sets.
        indexes: stream -> its predicates.
        inputs: outgoing edge of a probe -> choices of the tuples sent to it; absent: all are sent.
        residuals: outgoing edge of a probe -> its residuals that no tag tests; absent: all of them.
        outputs: edge -> its output rules; absent: none has tags.
    """

    name: str = TAGS
    indexes: Mapping[str, PredicateIndex] = field(default_factory=dict)
    inputs: Mapping[str, Choices] = field(default_factory=dict)
    residuals: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    outputs: Mapping[str, TaggedOutputs] = field(default_factory=dict)


#: Number of conditions whose compiled forms are cached.
_CACHED = 1 << 16
#: Predicates of a query by label.
_Predicates = Mapping[Label, int]


class _Generation:
    """Predicate indexes, one per stream, for the sets of rows; replaced together when full."""

    def __init__(self, number: int) -> None:
        self.name = f"{TAGS}{number}"
        self._lock = Lock()
        self._found: dict[str, PredicateIndex] = {}
        self._columns: dict[str, object] = {}

    def serves(self, streams: Iterable[Stream], needed: int) -> bool:
        """Whether the generation can be used for a ruleset: its streams have the same columns,
        every index has space, and enough of the predicates are ``needed``.
        """
        with self._lock:
            known = sum(map(len, self._found.values()))
            full = any(index.overflowed for index in self._found.values())
            same = all(self._columns.get(s.name, s.columns) == s.columns for s in streams)
            return same and not full and known <= _FEW + _WASTE * needed

    def of(self, stream: Stream) -> PredicateIndex:
        """The index of a stream."""
        with self._lock:
            if stream.name not in self._found:
                self._found[stream.name] = PredicateIndex()
                self._columns[stream.name] = stream.columns
            return self._found[stream.name]


#: A list with the newest generation of this process.
_NEWEST = [_Generation(0)]
_BEGINNING = Lock()


def _generation(streams: Iterable[Stream], needed: int) -> _Generation:
    """The newest generation, or a new one if that does not serve."""
    with _BEGINNING:
        if not _NEWEST[-1].serves(streams, needed):
            _NEWEST.append(_Generation(int(_NEWEST.pop().name[len(TAGS) :]) + 1))
        return _NEWEST[-1]


@dataclass(slots=True)
class _Kept:
    """The newest tag program of a ruleset, and the number of batches that have used it."""

    program: TagProgram
    batches: int = 0


def tag_program(ruleset: Ruleset) -> TagProgram:
    """The tag program of ``ruleset`` for one batch; its predicates are in the indexes of this
    process. Full indexes are replaced now and then, which drops the sets of expired rows.
    """
    kept = _kept(ruleset)
    kept.batches += 1
    full = any(index.overflowed for index in kept.program.indexes.values())
    if full and kept.batches > LASTING:
        kept.program, kept.batches = _made(ruleset), 0
    return kept.program


@per_ruleset
def _kept(ruleset: Ruleset) -> _Kept:
    return _Kept(_made(ruleset))


def _made(ruleset: Ruleset) -> TagProgram:
    layout = Layout(ruleset, {})
    local = {e for e in _residuals(ruleset) if _local_to(e) is not None}
    if not local:
        return TagProgram()
    return _TagCompiler(layout, _generation(ruleset.streams, len(local))).program()


def _residuals(ruleset: Ruleset) -> Iterable[Expr]:
    for rules in (ruleset.output_rules, ruleset.probe_rules):
        for rule in rules:
            yield from rule.residuals


@lru_cache(_CACHED)
def _local_to(condition: Expr) -> str | None:
    """The label of a residual that can be a tag, since it reads one label and fails on no row; None
    for others. Cached, as few conditions change from ruleset to ruleset.
    """
    labels = {column.alias for column in columns(condition)}
    return labels.pop() if len(labels) == 1 and is_total(condition) else None


@lru_cache(_CACHED)
def _predicate(conditions: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The predicate of the rows of any label with these conditions; cached."""
    ordered = sorted(conditions, key=str)
    return tuple(substitute(e, lambda c: Column("", c.name, c.type)) for e in ordered)


@dataclass(slots=True)
class _TagCompiler:
    layout: Layout
    generation: _Generation
    #: Stream -> index, of the streams with tags.
    indexes: dict[str, PredicateIndex] = field(default_factory=dict)
    inputs: dict[str, Choices] = field(default_factory=dict)
    residuals: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    outputs: dict[str, TaggedOutputs] = field(default_factory=dict)

    def program(self) -> TagProgram:
        layout = self.layout
        arriving = [edge for edge in layout.probes if edge not in layout.rules]
        for edge in dict.fromkeys([*arriving, *layout.outputs]):
            if edge not in layout.rules:
                self._below(edge, (), ())
        return TagProgram(
            self.generation.name, self.indexes, self.inputs, self.residuals, self.outputs
        )

    def _below(
        self,
        edge: str,
        labels: tuple[Label, ...],
        applied: tuple[Expr, ...],
    ) -> list[_Predicates] | None:
        """Predicates by label, per query downstream of ``edge``; None if all tuples are needed, as
        an intermediate result downstream has no filter. ``applied``: residuals checked upstream.
        """
        layout = self.layout
        needed = self._tag_outputs(edge, applied)
        all_wanted = edge in layout.rules and bool(layout.inserts.get(edge))
        for child in layout.probes.get(edge, ()):
            before = labels or (child.start,)
            made = (*before, *child.members)
            found = self._below(child.out, made, (*applied, *child.residuals))
            if found is None:
                all_wanted = True
                continue
            needed += found
            choices = self._choices(found, before)
            if choices is not None:
                self.inputs[child.out] = choices
            # Its outputs and the probes below test them.
            left = tuple(e for e in child.residuals if _local_to(e) is None)
            if len(left) < len(child.residuals):
                self.residuals[child.out] = left
        return None if all_wanted else needed

    def _tag_outputs(self, edge: str, applied: Sequence[Expr]) -> list[_Predicates]:
        """Set the tagged outputs of ``edge``; returns the predicates by label of each of its
        queries."""
        untagged, needed = list[OutputRule](), list[_Predicates]()
        rules: dict[tuple[tuple[Label, int], ...], list[TaggedRule]] = defaultdict(list)
        for output in self.layout.outputs.get(edge, ()):
            whole = replace(output, residuals=tuple(dict.fromkeys((*output.residuals, *applied))))
            wanted = self._tags(whole.residuals)
            needed.append(wanted)
            if not wanted:
                untagged.append(output)
                continue
            left = tuple(e for e in output.residuals if _local_to(e) is None)
            rules[tuple(sorted(wanted.items()))].append(
                TaggedRule(replace(output, residuals=left), whole)
            )
        if rules:
            choices = _choices([dict(key) for key in rules])
            order = [
                tuple((x, n) for x, n in zip(choices.labels, row, strict=True) if n >= 0)
                for row in choices.predicates.tolist()
            ]
            self.outputs[edge] = TaggedOutputs(
                tuple(untagged), choices, tuple(tuple(rules[key]) for key in order)
            )
        return needed

    def _tags(self, residuals: Iterable[Expr]) -> _Predicates:
        """Label -> predicate of one query."""
        found: dict[str, list[Expr]] = defaultdict(list)
        for condition in residuals:
            label = _local_to(condition)
            if label is not None:
                found[label].append(condition)
        return {Label(label): self._number(Label(label), some) for label, some in found.items()}

    def _number(self, label: Label, conditions: Sequence[Expr]) -> int:
        stream = self.layout.stream(label)
        if stream not in self.indexes:
            self.indexes[stream] = self.generation.of(self.layout.streams[stream])
        return self.indexes[stream].number(_predicate(tuple(conditions)))

    def _choices(self, needed: Sequence[_Predicates], labels: Sequence[Label]) -> Choices | None:
        """Choices on ``labels`` of the queries; None if one of them wants all tuples."""
        some = [{label: w[label] for label in labels if label in w} for w in needed]
        return None if not all(some) else _choices(some)


def _choices(needed: Sequence[_Predicates]) -> Choices:
    labels = tuple(sorted({label for one in needed for label in one}))
    distinct = {tuple(one.get(label, -1) for label in labels) for one in needed}
    predicates = np.array(sorted(distinct), np.int32)
    return Choices(labels, predicates, np.argsort(predicates, axis=0, kind="stable").astype("i4"))
