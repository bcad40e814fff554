"""Tags in one batch and task: the sets of its tables' rows, and the tuples that they let pass.

The sets of a table's rows are computed when the table is first read, and kept with it. They are not
stored: they are computed again for a merged segment, or after a start (ADR 0074).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from anabranch_contract.plans.ruleset import OutputRule, ProbeRule
from anabranch_runtime.columns.arrays import I32, Bools, Ints, fixed
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.choosing import choose, passing_any, send
from anabranch_runtime.index.predicate_sets import SetView
from anabranch_runtime.storage.partial import Partial, Renamed, Table
from anabranch_runtime.tags.predicates import PredicateIndex, TaggedTable
from anabranch_runtime.tags.program import (
    Choices,
    RoundChoices,
    TaggedOutputs,
    TagProgram,
    tag_program,
)

#: Most pairs of tuples and choices that are tested in one call.
_PAIRS = 1 << 22


@dataclass(frozen=True, slots=True)
class _Tested:
    """Arguments of a kernel that tests choices.

    Attributes:
        labels: the kernel's table of labels, with addresses in ``views``.
        sets: shape (labels, tuples): the tuples' sets.
        exact: whether no set is unknown.
    """

    labels: Ints
    views: Sequence[SetView]
    sets: I32
    exact: bool


@dataclass(slots=True)
class Tags:
    """The tags of one batch in one task.

    Attributes:
        complete: whether tables have all columns of their streams, as on a single host. Otherwise
            tags select starting tuples only, and residuals are checked as without tags.
    """

    layout: Layout
    complete: bool
    program: TagProgram = field(init=False)
    #: Kind of a table (``NumberedTables``) -> (column of sets, prefix of the columns, index).
    _kinds: dict[str, tuple[tuple[str, str, PredicateIndex], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = tag_program(self.layout.ruleset)

    def prepare(self, table: Table, kind: str) -> None:
        """Compute the sets of a table's rows, as far as they are missing."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = self._columns(kind)
        for name, prefix, index in found:
            _prepare(table, name, prefix, index)

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
        """Positions of the tuples that the edges of a round send, and the edges' new table."""
        views = [index.met.view for index in choices.indexes]
        labels = choices.labels.copy()
        addresses = np.array([view.addresses for view in views], np.int64)
        labels[:, 2:] = addresses[choices.index_of]
        predicates, orders = choices.predicates, choices.orders
        return send(edges, which, rows, choices.rules, labels, predicates, orders, places)

    def passing(self, partial: Partial, rule: ProbeRule) -> Partial:
        """The tuples of ``partial`` that some query downstream of ``rule`` wants."""
        choices = self.program.inputs.get(rule.out)
        if choices is None or not (self.complete or len(partial.place) == 1):
            return partial
        name = ("tags", id(choices))
        found: Partial | None = partial.lookups.get(name)
        if found is None:
            one = self._tested(partial, choices)
            mask: Bools = passing_any(one.labels, *choices.flat, one.sets)
            found = partial.lookups[name] = partial.where(mask)
        return found

    def divided(self, partial: Partial, edge: str) -> Iterator[tuple[Partial, OutputRule]]:
        """The output rules of an edge, each with the tuples that its tags let pass."""
        outputs = self.program.outputs.get(edge)
        if outputs is None or not self.complete:
            for rule in self.layout.outputs.get(edge, ()):
                yield partial, rule
            return
        for rule in outputs.untagged:
            yield partial, rule
        # Tuples arrive for several labels over one edge; an output takes one label's.
        if partial.place.keys() >= set(outputs.choices.labels):
            yield from self._chosen(partial, outputs)

    def untagged(self, edge: str) -> Sequence[OutputRule]:
        """The output rules of an edge that have no tags."""
        outputs = self.program.outputs.get(edge)
        return self.layout.outputs.get(edge, ()) if outputs is None else outputs.untagged

    def _chosen(
        self, partial: Partial, outputs: TaggedOutputs
    ) -> Iterator[tuple[Partial, OutputRule]]:
        choices = outputs.choices
        most = max(1, _PAIRS // len(choices.predicates))
        for first in range(0, partial.length, most):
            piece = partial.cut(first, first + most)
            one = self._tested(piece, choices)
            positions, ends = choose(one.labels, *choices.flat, one.sets)
            begin = 0
            for end, rules in zip(ends.tolist(), outputs.rules, strict=True):
                if end > begin:
                    some = piece.take(positions[begin:end])
                    for rule in rules:
                        yield some, rule.tested if one.exact else rule.whole
                begin = end

    def _tested(self, partial: Partial, choices: Choices) -> _Tested:
        name, indexes = self.program.name, list[PredicateIndex]()
        sets = np.empty((len(choices.labels), partial.length), np.int32)
        for j, label in enumerate(choices.labels):
            at, member = partial.place[label]
            index = self.program.indexes[self.layout.stream(label)]
            rows = partial.sets[at].settled()
            prefix = f"{member}." if member else ""
            for table in rows.tables.members:
                _prepare(table, f"{prefix}{name}", prefix, index)
            sets[j] = fixed(rows.column(f"{prefix}{name}"), np.int32)
            indexes.append(index)
        views = [index.met.view for index in indexes]
        labels = np.array([(0, 0, *view.addresses) for view in views], np.int64)
        return _Tested(labels, views, sets, not any(index.overflowed for index in indexes))


def _prepare(table: Table, name: str, prefix: str, index: PredicateIndex) -> None:
    if isinstance(table, Renamed):
        name, prefix, table = f"{table.member}.{name}", f"{table.member}.", table.table
    tagged = cast("TaggedTable", table)
    made = tagged.derived.get(name)
    if made is None or made.version < len(index):
        index.prepare(tagged, name, prefix)
