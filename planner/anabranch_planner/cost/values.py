"""Join estimates per key value: the effect of skew on a join and on each substream.

Source: PMJoin, section 4: rates per value instead of one selectivity. Let ``C`` be the key class of
an attribute of ``r``. Let ``q_j(v)`` be the relative frequency of the value ``v`` among the rows of
``j``, and ``p_r(v)`` that among the arriving tuples of ``r``. Among the combinations over ``X``
that tuples of ``r`` complete, ``v`` has the weight

    w_X(v) = p_r(v) * product of q_j(v) over the other aliases j of X that C joins.

The cost model's totals are divided in proportion to these weights, so the substreams of a start
together send as much as the start. Frequent values are measured (``FrequentValues``). The other
rows of a relation are spread evenly over its other distinct values. Smaller value sets are
contained in larger ones, as everywhere in the cost model.

NULL equals no value, not even NULL. Rows with NULL are neither frequent nor part of the evenly
spread rest, so the weights add up to less than 1. Probe orders send tuples of ``r`` with a NULL key
up to the step that joins by ``C``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_contract.queries.mirs import Mir, MirId
from anabranch_planner.cost.statistics.statistics import Statistics

Shares = NDArray[np.float64]
Hashes = NDArray[np.uint64]
#: A relation, and the name of an attribute of it.
Column = tuple["RelationId", str]


class ValueShares:
    """Relative frequencies of key values, in stored rows and in arriving tuples.

    Args:
        statistics: provides the measured frequent values.
        distinct: number of distinct values of a column, at least 1.
    """

    def __init__(
        self, statistics: Statistics, distinct: Callable[[RelationId, str], float]
    ) -> None:
        self._statistics = statistics
        self._distinct = distinct
        self._listed: dict[Column, _Listed] = {}
        self._frequent: dict[frozenset[Column], Hashes] = {}
        self._known: dict[tuple[Column, bool, bytes], tuple[Shares, float]] = {}

    def are_known(self, column: Column) -> bool:
        """Whether frequent values of ``column`` have been measured."""
        return self._statistics.frequent(*column) is not None

    def frequent(self, columns: Sequence[Column]) -> Hashes:
        """The hashes of all values that are frequent in one of ``columns``; ascending."""
        key = frozenset(columns)
        found = self._frequent.get(key)
        if found is None:
            found = self._frequent[key] = union([self._of(column).hashes for column in key])
        return found

    def texts(self, columns: Sequence[Column]) -> dict[int, str]:
        """Hash -> key value as text, for each value that is frequent in one of ``columns``."""
        known = (self._statistics.frequent(*column) for column in columns)
        pairs = (zip(k.hashes, k.texts, strict=True) for k in known if k is not None)
        return {value: text for some in pairs for value, text in some if text}

    def arriving(self, column: Column) -> dict[int, float]:
        """Hash of each frequent value of ``column`` -> its fraction of the arriving tuples."""
        known = self._statistics.frequent(*column)
        return {} if known is None else dict(zip(known.hashes, known.arriving, strict=True))

    def weights(
        self, columns: Sequence[Column], hashes: Hashes, *, first_arrives: bool = False
    ) -> Shares:
        """Fraction of the cross product of ``columns`` with the same value in all columns: one
        entry per hash of ``hashes``, then one for all other values together.

        Args:
            hashes: ascending, including all hashes of :meth:`frequent`.
            first_arrives: whether the first column counts arriving tuples instead of stored rows.
        """
        return combined(
            [
                self.shares_of(column, hashes, arriving=first_arrives and not number)
                for number, column in enumerate(columns)
            ]
        )

    def nulls(self, columns: Sequence[Column], *, first_arrives: bool = False) -> float:
        """Fraction of rows with NULL, which :meth:`weights` omits; 0 for several columns."""
        if len(columns) > 1:
            return 0.0
        known = self._of(columns[0])
        return known.null_arriving if first_arrives else known.null_stored

    def selectivity(self, columns: Sequence[Column]) -> float:
        """Selectivity: share of the cross product of ``columns`` with one value in all of them."""
        return min(float(self.weights(columns, self.frequent(columns)).sum()), 1.0)

    def shares(self, mir: Mir, attribute: AttrRef, start: Label | None, hashes: Hashes) -> Shares:
        """Fraction of the combinations over ``mir`` that ``start`` completes (None: of all) with
        each of ``hashes`` as the value of ``attribute``."""
        columns, arrives = _beginning_with(mir, attribute, start)
        every = union([hashes, self.frequent(columns)])
        weights = self.weights(columns, every, first_arrives=arrives)
        total = float(weights.sum()) + self.nulls(columns, first_arrives=arrives)
        found: Shares = weights[np.searchsorted(every, hashes)] / max(total, 1e-300)
        return found

    def shares_of(self, column: Column, hashes: Hashes, *, arriving: bool) -> tuple[Shares, float]:
        """Frequency of each of ``hashes`` in ``column``, then of all other values together; and the
        number of these other values."""
        key = column, arriving, hashes.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._read(column, hashes, arriving=arriving)
        return found

    def _read(self, column: Column, hashes: Hashes, *, arriving: bool) -> tuple[Shares, float]:
        """Frequencies of key values in a column, from measurements; see :meth:`shares_of`."""
        known = self._of(column)
        listed = known.arriving if arriving else known.stored
        nulls = known.null_arriving if arriving else known.null_stored
        left = max(1.0 - float(listed.sum()) - nulls, 0.0)
        # Values that are not frequent in this column are taken to be equally frequent.
        few = max(self._distinct(*column) - len(listed), 1.0)
        named = len(hashes) - len(listed)
        found = np.full(len(hashes) + 1, left / few)
        found[np.searchsorted(hashes, known.hashes)] = listed
        found[-1] = max(left - left / few * named, 0.0)
        return found, max(few - named, 1.0)

    def _of(self, column: Column) -> _Listed:
        found = self._listed.get(column)
        if found is None:
            found = self._listed[column] = _listed(self._statistics.frequent(*column))
        return found


def union(some: Sequence[Hashes]) -> Hashes:
    """Sorted distinct elements of several arrays; twice as fast as :func:`np.unique`."""
    every = np.sort(np.concatenate([np.empty(0, np.uint64), *some]))
    first = np.ones(len(every), np.bool_)
    np.not_equal(every[1:], every[:-1], out=first[1:])
    return every[first]


def combined(columns: Sequence[tuple[Shares, float]]) -> Shares:
    """Fraction of a cross product with the same value in all columns, per value, from the
    frequencies in each column (:meth:`ValueShares.shares_of`)."""
    product = columns[0][0].copy()
    for shares, _ in columns[1:]:
        product *= shares
    # Two values outside ``hashes`` are equal with probability 1 / (the greater number of them).
    for count in sorted(others for _, others in columns)[1:]:
        product[-1] /= count
    return product


class _Listed(NamedTuple):
    """Measured frequencies of a column's frequent values (by ascending hash), and of NULL."""

    hashes: Hashes
    arriving: Shares
    stored: Shares
    null_arriving: float = 0.0
    null_stored: float = 0.0


def _listed(known: FrequentValues | None) -> _Listed:
    if known is None:
        return _Listed(np.empty(0, np.uint64), np.empty(0), np.empty(0))
    hashes = np.array(known.hashes, np.uint64)
    order = np.argsort(hashes)
    arriving, stored = (np.array(one, np.float64)[order] for one in (known.arriving, known.stored))
    return _Listed(hashes[order], arriving, stored, known.null_arriving, known.null_stored)


class SubstreamShares:
    """Estimated shares of the substreams into which a relation's arriving tuples are split."""

    def __init__(self, values: ValueShares, substreams: Sequence[Substreams]) -> None:
        self._values = values
        self._functions = {one.start: one for one in substreams}
        self._groups = {one.start: _groups(one) for one in substreams}
        self._known: dict[tuple[MirId, Label], list[float]] = {}

    def count(self, start: Label) -> int:
        """Number of substreams into which tuples of ``start`` are split; 1 if they are not."""
        found = self._functions.get(start)
        return 1 if found is None else found.count

    def of(self, mir: Mir, start: Label, substream: int) -> float:
        """The share of ``substream`` in the rows of ``mir`` that tuples of ``start`` complete.

        1 if tuples of ``start`` are not split, or there is no such substream.
        """
        function = self._functions.get(start)
        if function is None or substream >= function.count:
            return 1.0
        found = self._known.get((mir.id, start))
        if found is None:
            found = self._known[mir.id, start] = self._divided(mir, function)
        return found[substream]

    def _divided(self, mir: Mir, function: Substreams) -> list[float]:
        """Shares of the substreams of ``function`` in rows of ``mir``; they add up to 1."""
        columns = joined_columns(mir, AttrRef(function.start, function.attribute))
        grouped, numbers = self._groups[function.start]
        hashes = union([self._values.frequent(columns), grouped])
        weights = self._values.weights(columns, hashes, first_arrives=True)
        own = weights[np.searchsorted(hashes, grouped)]
        listed = np.bincount(numbers, own, len(function.groups))
        left = max(float(weights.sum() - listed.sum()), 0.0)
        found = [left / function.others] * function.others + listed.tolist()
        # Tuples with a NULL key belong to the first substream.
        found[0] += self._values.nulls(columns, first_arrives=True)
        total = sum(found)
        # If nothing matches, the substreams are given equal shares.
        return [share / total if total > 0 else 1 / len(found) for share in found]


def _groups(function: Substreams) -> tuple[Hashes, NDArray[np.int64]]:
    """Hashes of the key values that a split of tuples lists, and the substream of each value."""
    sizes = [len(group) for group in function.groups]
    values = np.fromiter(chain.from_iterable(function.groups), np.uint64, sum(sizes))
    return values, np.repeat(np.arange(len(sizes)), sizes)


def _beginning_with(mir: Mir, attribute: AttrRef, start: Label | None) -> tuple[list[Column], bool]:
    """Columns of ``mir`` equal to ``attribute``, one of ``start`` first if there is one; and
    whether there is one, so that the first column's values belong to arriving tuples."""
    if mir.is_base:
        return joined_columns(mir, attribute), start is not None
    equal = {m for c in mir.classes if attribute in c.members for m in c.members} | {attribute}
    own = min((m for m in equal if m.label == start), default=None)
    return joined_columns(mir, own or attribute), own is not None


def joined_columns(mir: Mir, attribute: AttrRef) -> list[Column]:
    """The column of ``attribute``, and the equal columns of other aliases of ``mir``."""
    return list(column_of_each(mir, attribute).values())


def column_of_each(mir: Mir, attribute: AttrRef) -> dict[Label, Column]:
    """Alias -> its column equal to ``attribute`` in the sub-join ``mir``; its own alias first."""
    if mir.is_base:
        return {attribute.label: (mir.relations[0], attribute.attribute)}
    relation_of = dict(zip(mir.members, mir.relations, strict=True))
    found = {attribute.label: (relation_of[attribute.label], attribute.attribute)}
    for key_class in mir.classes:
        if attribute in key_class.members:
            for member in key_class.members:
                found.setdefault(member.label, (relation_of[member.label], member.attribute))
    return found
