"""Tags in one batch and task: sets of predicates of tables' rows, and the tuples that pass tags.
The sets of a table's rows are computed when the table is first read, and kept with the table in
memory only: they are computed again for a merged segment, or after a start (ADR 0074)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from anabranch_contract.plans.ruleset import OutputRule, ProbeRule
from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import I32, U64, Bools, Ints, fixed, ranged
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.choosing import (
    PairTest,
    choose,
    satisfied,
    send,
    wanted_pairs,
    words_of,
)
from anabranch_runtime.index.gather import NOWHERE
from anabranch_runtime.index.rounds import RULE
from anabranch_runtime.storage.partial import Partial, Renamed, RowSet, Table, Tables
from anabranch_runtime.tags.arrival_sets import Moment
from anabranch_runtime.tags.choices import Choices, pair_test, table_of
from anabranch_runtime.tags.predicates import PredicateIndex, TaggedTable
from anabranch_runtime.tags.program import (
    RoundChoices,
    TaggedOutputs,
    TagProgram,
    tag_program,
)

#: Maximum number of pairs of tuple and choice that are tested in one call.
_PAIRS = 1 << 22
#: Number of a probe's tuples up to which all results are kept, since a test would take longer.
FEW_TESTED = 256


@dataclass(frozen=True, slots=True)
class ChosenTuples:
    """Tuples, grouped by the choices whose tags they satisfy.

    Attributes:
        tuples: the tuples.
        positions, ends: positions in ``tuples`` by choice, and where each choice's positions end.
        outputs: the output rules by choice.
        exact: whether all tuples are known to satisfy their choices: no predicate set is unknown.
    """

    tuples: Partial
    positions: I32
    ends: Ints
    outputs: TaggedOutputs
    exact: bool

    def timely(self) -> Iterator[tuple[int, OutputRule, int]]:
        """Yield the output rules that have tuples within their time bounds: the choice, the rule
        without the conditions that tags test, and the number of these tuples."""
        times = self.outputs.times
        counts = times.counts(self.tuples, self.positions, self.ends)
        some = np.flatnonzero(counts)
        numbers = zip(
            some.tolist(), times.choices[some].tolist(), counts[some].tolist(), strict=True
        )
        return ((choice, times.rules[rule], count) for rule, choice, count in numbers)

    def part(self, choice: int) -> Partial:
        """Return the tuples of a choice."""
        begin = self.ends[choice - 1] if choice else 0
        return self.tuples.take(self.positions[begin : self.ends[choice]])

    def parts(self) -> Iterator[tuple[Partial, OutputRule]]:
        """Yield each output rule with the tuples that satisfy its choice."""
        begin = 0
        for end, rules in zip(self.ends.tolist(), self.outputs.rules, strict=True):
            if end > begin:
                some = self.tuples.take(self.positions[begin:end])
                for rule in rules:
                    yield some, rule.tested if self.exact else rule.whole
            begin = end


@dataclass(slots=True)
class Tags:
    """The tags of one batch in one task.

    Attributes:
        complete: whether tables have all columns of their streams (on a single host). If not, tags
            select only starting tuples, and residuals are checked as if there were no tags.
        moment: the batch.
    """

    layout: Layout
    complete: bool
    moment: Moment
    program: TagProgram = field(init=False)
    #: Kind of a table (``NumberedTables``) -> (column of sets, prefix of the columns, index).
    _kinds: dict[str, tuple[tuple[str, str, PredicateIndex], ...]] = field(default_factory=dict)
    #: Tables, with a column of predicate sets, that :meth:`column` has prepared already.
    _prepared: set[tuple[Tables, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.program = tag_program(self.layout.ruleset)

    def prepare(self, table: Table, kind: str) -> None:
        """Compute the predicate sets of a table's rows where they are missing."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = self._columns(kind)
        for name, prefix, index in found:
            self._prepare(table, name, prefix, index)

    def _columns(self, kind: str) -> tuple[tuple[str, str, PredicateIndex], ...]:
        indexes, name = self.program.indexes, self.program.name
        if kind in indexes:
            return ((name, "", indexes[kind]),)
        spec = self.layout.stores.get(kind.removeprefix("joined "))
        found = []
        for member in () if spec is None or spec.is_base else spec.members:
            index = indexes.get(self.layout.stream(member))
            if index is not None:
                found.append((f"{member}.{name}", f"{member}.", index))
        return tuple(found)

    def sent(
        self, edges: Ints, which: I32, rows: I32, choices: RoundChoices, places: Ints
    ) -> tuple[I32, Ints]:
        """Select the tuples that a round's edges send: their positions, and the table of edges."""
        # Few of many rules have tuples; only their rows of the tables are prepared.
        numbers = np.zeros(len(choices.rules), np.int64)
        numbers[edges[:, RULE]] = 1
        used = np.flatnonzero(numbers)
        numbers[used] = np.arange(len(used))
        rules = choices.rules[used]
        count = rules[:, 1] - rules[:, 0]
        there = ranged(rules[:, 0], count)
        rules[:, 1] = np.cumsum(count)
        rules[:, 0] = rules[:, 1] - count
        labels = choices.labels[there]
        read, index_of = np.unique(choices.index_of[there], return_inverse=True)
        views = [choices.indexes[index].met.view for index in read.tolist()]
        addresses = np.array([view.addresses for view in views], np.int64).reshape(-1, 2)
        labels[:, 2:] = addresses[index_of]
        edges = edges.copy()
        edges[:, RULE] = numbers[edges[:, RULE]]
        positions, edges = send(edges, which, rows, rules, labels, choices.predicates, places)
        edges[:, RULE] = used[edges[:, RULE]]
        return positions, edges

    def passing(self, partial: Partial, rule: ProbeRule) -> Partial:
        """Return the tuples of ``partial`` that pass the tags of a query downstream of ``rule``."""
        choices = self.program.inputs.get(rule.out)
        if choices is None or not (self.complete or len(partial.place) == 1):
            return partial
        name = ("tags", id(choices))
        found: Partial | None = partial.lookups.get(name)
        if found is None:
            mask: Bools = np.asarray(self._held(partial, choices).any(axis=1))
            found = partial.lookups[name] = partial.where(mask)
        return found

    def tested(self, partial: Partial, rule: ProbeRule) -> WantedResults | None:
        """Return a test, by tags, of ``partial``'s results by ``rule``; None: all are kept."""
        choices = self.program.results.get(rule.out)
        if choices is None or not self.complete or partial.length <= FEW_TESTED:
            return None
        held = words_of(self._held(partial, replace(choices, labels=_among(choices, partial))))
        return WantedResults(self, choices, held, [x for x in choices.labels if x in rule.members])

    def divided(self, partial: Partial, edge: str) -> Iterator[tuple[Partial, OutputRule]]:
        """Yield an edge's output rules, each with the tuples of ``partial`` that pass its tags."""
        for rule in self.untagged(edge):
            yield partial, rule
        for chosen in self.chosen(partial, edge):
            yield from chosen.parts()

    def chosen(self, partial: Partial, edge: str) -> Iterator[ChosenTuples]:
        """Yield the tuples that outputs with tags choose, in pieces."""
        outputs = self.program.outputs.get(edge)
        # An edge has tuples of several labels; an output may be for a label that is not this one.
        if (
            outputs is None
            or not self.complete
            or not partial.place.keys() >= set(outputs.choices.labels)
        ):
            return
        choices = outputs.choices
        most = max(1, _PAIRS // len(choices.group.predicates))
        for first in range(0, partial.length, most):
            piece = partial.cut(first, first + most)
            positions, ends = choose(self._held(piece, choices))
            exact = not any(self._index(label).overflowed for label in choices.labels)
            # Tuples have no bits of unchosen choices, so chosen ones begin where the last ones end.
            yield ChosenTuples(piece, positions, ends[choices.chosen + 1], outputs, exact)

    def untagged(self, edge: str) -> Sequence[OutputRule]:
        """Return the output rules of an edge that have no tags."""
        outputs = self.program.outputs.get(edge) if self.complete else None
        return self.layout.outputs.get(edge, ()) if outputs is None else outputs.untagged

    def _held(self, partial: Partial, choices: Choices) -> U64:
        """Return the bits of choices that tuples satisfy by the tested labels: (tuples, words)."""
        sets = np.empty((len(choices.labels), partial.length), np.int32)
        for j, label in enumerate(choices.labels):
            at, member = partial.place[label]
            rows = partial.sets[at].settled()
            sets[j] = fixed(rows.column(self.column(label, member, rows.tables)), np.int32)
        translated = choices.translated(choices.labels)
        views = [one.view(own) for one, own in zip(translated, sets, strict=True)]
        found: U64 = satisfied(table_of(views), choices.mask, sets)
        return found

    def column(self, label: Label, member: str, tables: Tables) -> str:
        """Return the name of the column with predicate set numbers of ``label``'s rows, after
        computing it in all tables.

        Args:
            member: prefix of the label's columns; empty in rows of a base store.
        """
        prefix = f"{member}." if member else ""
        name = f"{prefix}{self.program.name}"
        if (tables, name) not in self._prepared:
            index = self._index(label)
            for table in tables.members:
                self._prepare(table, name, prefix, index)
            self._prepared.add((tables, name))
        return name

    def _prepare(self, table: Table, name: str, prefix: str, index: PredicateIndex) -> None:
        if isinstance(table, Renamed):
            name, prefix, table = f"{table.member}.{name}", f"{table.member}.", table.table
        tagged = cast("TaggedTable", table)
        made = tagged.derived.get(name)
        if made is None or made.version < len(index):
            index.prepare(tagged, name, prefix, self.moment)

    def _index(self, label: Label) -> PredicateIndex:
        return self.program.indexes[self.layout.stream(label)]


@dataclass(frozen=True, slots=True)
class WantedResults:
    """A test of pairs of a probing tuple and a stored row: whether their tags fit some query.

    Attributes:
        held: bits of the choices that each probing tuple satisfies, as words
            (``index.choosing.words_of``). ``labels``: the stored row's labels that have predicates.
    """

    tags: Tags
    choices: Choices
    held: tuple[Ints, I32, U64]
    labels: Sequence[Label]

    def of(self, tables: Tables, is_base: bool) -> PairTest:
        """Return the test, by tags, of pairs with stored rows in ``tables``."""
        names = [self.tags.column(x, "" if is_base else str(x), tables) for x in self.labels]
        columns = np.stack([tables.places(name).first for name in names])
        translated = self.choices.translated(self.labels)
        return pair_test(self.held, len(self.choices.mask), columns, translated)

    def among(self, positions: I32, rows: RowSet, is_base: bool) -> I32:
        """Return the indexes of wanted pairs: tuple ``positions[i]`` and row ``rows[i]``."""
        test = self.of(rows.tables, is_base)
        which = NOWHERE if rows.which is None else rows.which
        while True:
            found, lacking = wanted_pairs(*test.arguments, positions, which, rows.rows)
            if not len(lacking):
                return found
            test = test.completed(lacking)


def _among(choices: Choices, partial: Partial) -> tuple[Label, ...]:
    return tuple(label for label in choices.labels if label in partial.place)
