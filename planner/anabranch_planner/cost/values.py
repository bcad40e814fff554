"""Figures by value of a key: what skew does to a join, and to the tuples of each substream.

Source: PMJoin, section 4: rates per value instead of one selectivity. Let ``C`` be the key class of
an attribute of ``r``, and ``q_j(v)`` the share of value ``v`` among the rows of ``j``, ``p_r(v)``
that among the arriving tuples of ``r``. Of the combinations over ``X`` that tuples of ``r``
complete, those of ``v`` have the weight

    w_X(v) = p_r(v) * product of q_j(v) over the other labels j of X that C joins.

What the cost model says of all of them is divided in proportion, so the substreams of a start
together send what the start sends. Frequent values are measured (``FrequentValues``); all others of
a relation are alike: what is left of its rows, evenly over what is left of its distinct values, of
which the smaller sets are contained in the larger ones, as everywhere in the cost model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anabranch_contract.queries.joins import AttrRef

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from anabranch_contract.plans.ruleset import Substreams
    from anabranch_contract.queries.joins import Label, RelationId
    from anabranch_contract.queries.mirs import Mir, MirId
    from anabranch_planner.cost.statistics import Statistics

    Shares = NDArray[np.float64]
    Hashes = NDArray[np.uint64]

#: A relation, and an attribute of it.
Column = tuple["RelationId", str]


class Values:
    """Shares of the values of keys.

    Args:
        statistics: says which values are frequent.
        distinct: distinct values of a column, at least 1.
    """

    def __init__(
        self, statistics: Statistics, distinct: Callable[[RelationId, str], float]
    ) -> None:
        self._statistics = statistics
        self._distinct = distinct
        self._known: dict[tuple[Column, bool, bytes], tuple[Shares, float]] = {}

    def are_known(self, column: Column) -> bool:
        """Whether frequent values of ``column`` have been measured."""
        return self._statistics.frequent(*column) is not None

    def frequent(self, columns: Sequence[Column]) -> Hashes:
        """The hashes of all values that are frequent in one of ``columns``; ascending."""
        found = [self._statistics.frequent(*column) for column in columns]
        hashes = [h for known in found if known is not None for h in known.hashes]
        return np.unique(np.array(hashes, np.uint64))

    def texts(self, columns: Sequence[Column]) -> dict[int, str]:
        """Hash -> text of each value that is frequent in one of ``columns``."""
        known = (self._statistics.frequent(*column) for column in columns)
        pairs = (zip(k.hashes, k.texts, strict=True) for k in known if k is not None)
        return {value: text for some in pairs for value, text in some if text}

    def arriving(self, column: Column) -> dict[int, float]:
        """Hash -> share among the arriving tuples, of the frequent values of ``column``."""
        known = self._statistics.frequent(*column)
        return {} if known is None else dict(zip(known.hashes, known.arriving, strict=True))

    def weights(
        self, columns: Sequence[Column], hashes: Hashes, *, first_arrives: bool = False
    ) -> Shares:
        """Of the cross product of ``columns`` the share in which all have one value: for each of
        ``hashes``, and last for all other values together.

        Args:
            hashes: ascending, with all that :meth:`frequent` gives.
            first_arrives: whether the first column's shares are those of arriving tuples.
        """
        product = np.ones(len(hashes) + 1)
        others = []
        for number, column in enumerate(columns):
            shares, left = self._shares(column, hashes, arriving=first_arrives and not number)
            product *= shares
            others.append(left)
        # The rest: a value of one column is one of another's with 1 / (the greater count).
        for count in sorted(others)[1:]:
            product[-1] /= count
        return product

    def selectivity(self, columns: Sequence[Column]) -> float:
        """Of the cross product of ``columns`` the share in which all have one value."""
        return min(float(self.weights(columns, self.frequent(columns)).sum()), 1.0)

    def shares(self, mir: Mir, attribute: AttrRef, start: Label | None, hashes: Hashes) -> Shares:
        """Of the combinations over ``mir`` that ``start`` completes (None: of all) the share in
        which ``attribute`` has each of ``hashes``.
        """
        columns, arrives = _beginning_with(mir, attribute, start)
        every = np.unique(np.concatenate([hashes, self.frequent(columns)]))
        weights = self.weights(columns, every, first_arrives=arrives)
        found: Shares = weights[np.searchsorted(every, hashes)] / max(weights.sum(), 1e-300)
        return found

    def _shares(self, column: Column, hashes: Hashes, *, arriving: bool) -> tuple[Shares, float]:
        """The share of each of ``hashes``, last of all other values; and how many these are."""
        key = column, arriving, hashes.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._read(column, hashes, arriving=arriving)
        return found

    def _read(self, column: Column, hashes: Hashes, *, arriving: bool) -> tuple[Shares, float]:
        count = max(self._distinct(*column), 1.0)
        known = self._statistics.frequent(*column)
        found = np.full(len(hashes) + 1, np.nan)
        if known is not None and known.hashes:
            at = np.searchsorted(hashes, np.array(known.hashes, np.uint64))
            found[at] = known.arriving if arriving else known.stored
        listed = ~np.isnan(found)
        left = max(1.0 - float(found[listed].sum()), 0.0)
        few = max(count - np.count_nonzero(listed), 1.0)
        found[~listed] = left / few
        others = max(few - (np.count_nonzero(~listed) - 1), 1.0)
        found[-1] = max(left - left / few * (np.count_nonzero(~listed) - 1), 0.0)
        return found, others


class SubstreamShares:
    """The share of each substream in what a start sends."""

    def __init__(self, values: Values, substreams: Sequence[Substreams]) -> None:
        self._values = values
        self._functions = {one.start: one for one in substreams}
        self._known: dict[tuple[MirId, Label], Shares] = {}

    def count(self, start: Label) -> int:
        """How many substreams the tuples of ``start`` are told apart in."""
        found = self._functions.get(start)
        return 1 if found is None else found.count

    def of(self, mir: Mir, start: Label, substream: int) -> float:
        """The share of ``substream`` in the combinations over ``mir`` that ``start`` completes.

        1 where the start is not divided, or has no such substream.
        """
        function = self._functions.get(start)
        if function is None or substream >= function.count:
            return 1.0
        found = self._known.get((mir.id, start))
        if found is None:
            found = self._known[mir.id, start] = self._divided(mir, function)
        return float(found[substream])

    def _divided(self, mir: Mir, function: Substreams) -> Shares:
        columns = joined_columns(mir, AttrRef(function.start, function.attribute))
        grouped = [np.array(group, np.uint64) for group in function.groups]
        hashes = np.unique(np.concatenate([self._values.frequent(columns), *grouped]))
        weights = self._values.weights(columns, hashes, first_arrives=True)
        listed = np.array([weights[:-1][np.isin(hashes, group)].sum() for group in grouped])
        left = max(weights.sum() - listed.sum(), 0.0)
        found = np.concatenate([np.full(function.others, left / function.others), listed])
        total = found.sum()
        # Where nothing matches, nothing tells the substreams apart.
        return found / total if total > 0 else np.full(len(found), 1 / len(found))


def _beginning_with(mir: Mir, attribute: AttrRef, start: Label | None) -> tuple[list[Column], bool]:
    """The columns of ``mir`` that are equal to ``attribute``; whether the first one is that of
    ``start``, whose tuples arrive.
    """
    if mir.is_base:
        return joined_columns(mir, attribute), start is not None
    equal = {m for c in mir.classes if attribute in c.members for m in c.members} | {attribute}
    own = min((m for m in equal if m.label == start), default=None)
    return joined_columns(mir, own or attribute), own is not None


def joined_columns(mir: Mir, attribute: AttrRef) -> list[Column]:
    """The column of ``attribute``, and those of other labels of ``mir`` that are equal to it."""
    if mir.is_base:
        return [(mir.relations[0], attribute.attribute)]
    relation_of = dict(zip(mir.members, mir.relations, strict=True))
    found = {attribute.label: (relation_of[attribute.label], attribute.attribute)}
    for key_class in mir.classes:
        if attribute in key_class.members:
            for member in key_class.members:
                found.setdefault(member.label, (relation_of[member.label], member.attribute))
    return list(found.values())
