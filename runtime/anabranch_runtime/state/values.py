"""Frequent values of keys between batches: counts of at most :data:`MOST` values that merge.

A task counts the values that the state has (:class:`KnownValues`) exactly, and reports other values
that are frequent in its share of a batch, with a bound for all that it does not report
(``index.frequent``). The state keeps this true::

    count(v) <= tuples that had v <= count(v) + under(v)    of each value v that it counts
                tuples that had v <= missed                 of any other

In every batch ``missed`` grows by the sum of the tasks' bounds; a value that is let go may have had
``count(v) + under(v)``, so it is at least that; the ``under`` of an entering value is the former
``missed`` plus the bounds of the tasks that have not reported it. This is SpaceSaving (Metwally,
Agrawal, El Abbadi, 2005) with exact counts of known values. The same holds for *recent* counts,
which halve with every :data:`HALF_LIFE` batches that bring tuples. So the error is stated, for any
split of the tuples into tasks and batches; a count depends on them only in the batch in which its
value is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_runtime.columns.arrays import U64, Ints
from anabranch_runtime.state.measures import KnownValues, pack, unpack

#: Values of a key that are kept, the share of tuples from which a value is worth it, and from which
#: it stays so: less, because letting go of a value that comes back adds to the error.
MOST, WORTH, STAYS = 64, 0.002, 0.001
#: Batches with tuples after which a tuple counts half. Two epochs of the default length: plans are
#: made per epoch, so a change shows in the next and rules in the third.
HALF_LIFE = 8
_FADED = 0.5 ** (1 / HALF_LIFE)
#: Figures of a value: tuples that had it, all and recent ones; recent tuples of the relation since
#: it was found; and by how much both counts may be too low.
COUNT, RECENT, SPAN, UNDER, UNDER_RECENT = range(5)
_FADING = np.array([[1.0], [_FADED], [_FADED], [1.0], [_FADED]])
#: A value has to be more frequent than the rarest that is kept by this factor to take its place.
_BETTER = 1.25


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """The counts of a key's values by one task in one batch.

    Attributes:
        tuples: that the task had, those with a NULL key too; ``nulls``: how many of them these are.
        counts: of the values that were known, in the order in which they were given.
        fresh: hashes of others that are frequent; ``fresh_counts``: of each. ``texts``: for people.
        rest: no value that is in neither list had more tuples.
    """

    tuples: int
    nulls: int
    counts: Ints
    fresh: U64
    fresh_counts: Ints
    texts: tuple[str, ...]
    rest: int


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The counts of a key's frequent values so far (see the module's text).

    Attributes:
        tuples: of the relation since the key is counted. ``recent``: with fading.
        missed, missed_recent: upper bounds of the counts of any other value.
        hashes: of the values, packed (``measures.pack``), in the order in which they were found;
            ``texts``: for people.
        figures: of the values, packed doubles, a row each (:data:`COUNT` and so on).
        nulls, recent_nulls: of ``tuples`` and ``recent`` those with a NULL key.
    """

    tuples: int = 0
    recent: float = 0.0
    missed: int = 0
    missed_recent: float = 0.0
    hashes: str = ""
    figures: str = ""
    texts: tuple[str, ...] = ()
    nulls: int = 0
    recent_nulls: float = 0.0

    def merge(self, parts: Sequence[ValueCounts]) -> KeyValues:
        """With the counts of a batch's tasks; each had this value's ``known``."""
        tuples = sum(part.tuples for part in parts)
        if not tuples:
            return self
        nulls = sum(part.nulls for part in parts)
        rest = sum(part.rest for part in parts)
        figures = self.figures
        if self.texts:
            rows = _rows(figures) * _FADING
            rows[:SPAN] += parts[0].counts if len(parts) == 1 else sum(p.counts for p in parts)
            rows[SPAN] += tuples
            figures = _packed(rows)
        now = KeyValues(
            self.tuples + tuples,
            self.recent * _FADED + tuples,
            self.missed + rest,
            self.missed_recent * _FADED + rest,
            self.hashes,
            figures,
            self.texts,
            self.nulls + nulls,
            self.recent_nulls * _FADED + nulls,
        )
        if any(len(part.fresh) for part in parts):
            return _admitted(now, parts, tuples, rest)
        return now

    @property
    def known(self) -> KnownValues:
        """Known values and thresholds for the tasks of the next batch."""
        # A count of 1 is no news once a value with it would not be kept.
        least = 1 if self.recent * WORTH < 1 else 2
        if len(self.texts) < MOST:
            return KnownValues(self.hashes, WORTH, least)
        rarest = float(_worth(_rows(self.figures), self.tuples).min())
        return KnownValues(self.hashes, max(WORTH, _BETTER * rarest), least)

    def published(self) -> FrequentValues:
        """As the control plane reads it."""
        counts, recents = _rows(self.figures)[:SPAN]
        hashes = unpack(self.hashes)
        order = np.lexsort((hashes, -counts, -recents))
        total, recent = max(self.tuples, 1), max(self.recent, 1.0)
        error = max(self.missed / total, self.missed_recent / recent)
        return FrequentValues(
            tuple(hashes[order].tolist()),
            tuple(self.texts[place] for place in order.tolist()),
            tuple((recents[order] / recent).round(_DIGITS).tolist()),
            tuple((counts[order] / total).round(_DIGITS).tolist()),
            min(round(error + _ROUNDED, _DIGITS), 1.0) if error else 0.0,
            round(self.recent_nulls / recent, _DIGITS),
            round(self.nulls / total, _DIGITS),
        )


#: Digits of published shares, and greatest loss by rounding, twice.
_DIGITS, _ROUNDED = 6, 1e-6


def _admitted(now: KeyValues, parts: Sequence[ValueCounts], tuples: int, rest: int) -> KeyValues:
    """``now`` with the fresh values of ``parts`` worth keeping.

    ``now`` already includes the batch's ``tuples`` and ``rest``, the sum of the tasks' bounds.
    """
    reported = np.concatenate([part.fresh for part in parts])
    fresh, first, which = np.unique(reported, return_index=True, return_inverse=True)
    came, covered = np.zeros(len(fresh)), np.zeros(len(fresh))
    np.add.at(came, which, np.concatenate([part.fresh_counts for part in parts]))
    np.add.at(covered, which, np.repeat([p.rest for p in parts], [len(p.fresh) for p in parts]))
    names = [text for part in parts for text in part.texts]
    texts = [*now.texts, *(names[place] for place in first.tolist())]
    hashes = np.concatenate([unpack(now.hashes), fresh])
    entering = np.empty((len(_FADING), len(fresh)))
    entering[COUNT] = entering[RECENT] = came
    entering[SPAN] = tuples
    entering[UNDER], entering[UNDER_RECENT] = now.missed - covered, now.missed_recent - covered
    rows = np.concatenate([_rows(now.figures), entering], axis=1)
    rank = np.lexsort((hashes, -_worth(rows, now.tuples)))
    wanted = np.repeat([STAYS, WORTH], [len(now.texts), len(fresh)])
    frequent = np.maximum(rows[COUNT] / now.tuples, rows[RECENT] / rows[SPAN]) >= wanted
    kept = np.sort(rank[frequent[rank]][:MOST])
    gone = np.ones(len(hashes), np.bool_)
    gone[kept] = False
    missed = float((rows[RECENT] + rows[UNDER_RECENT])[gone].max(initial=0))
    return replace(
        now,
        missed=max(now.missed, int((rows[COUNT] + rows[UNDER])[gone].max(initial=0))),
        missed_recent=max(now.missed_recent, missed),
        hashes=pack(hashes[kept]),
        figures=_packed(rows[:, kept]),
        texts=tuple(texts[place] for place in kept.tolist()),
    )


def _worth(rows: NDArray[np.float64], tuples: int) -> NDArray[np.float64]:
    """Rank of the values: lower bound (one standard deviation) of their share since they were
    found, plus half their share of all ``tuples``.

    A newly frequent value displaces a formerly frequent one only once that has faded.
    """
    recents = rows[RECENT]
    ranked: NDArray[np.float64] = (recents - np.sqrt(recents)) / rows[SPAN]
    ranked += rows[COUNT] / (2 * tuples)
    return ranked


def _packed(rows: NDArray[np.float64]) -> str:
    return pack(np.ascontiguousarray(rows).view(np.uint64))


def _rows(text: str) -> NDArray[np.float64]:
    return unpack(text).view(np.float64).reshape(len(_FADING), -1)
