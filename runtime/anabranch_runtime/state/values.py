"""Frequent values (heavy hitters) of keys: mergeable counts of at most :data:`MOST` per key.

A task counts the values that the state has (:class:`KnownValues`) exactly. It also reports other
values that are frequent in its share of a batch, with an upper bound for unreported values
(``index.frequent``). The state maintains this invariant::

    count(v) <= tuples that had v <= count(v) + under(v)    of each value v that it counts
                tuples that had v <= missed                 of any other

In every batch ``missed`` grows by the sum of the tasks' bounds. A dropped value may have had
``count(v) + under(v)`` tuples, so ``missed`` is raised to at least this number. The ``under`` of a
new value is the former ``missed`` plus the bounds of the tasks that have not reported it. This is
SpaceSaving (Metwally, Agrawal, El Abbadi, 2005) with exact counts of known values. The invariant
also holds for *recent* counts, which halve every :data:`HALF_LIFE` batches with tuples. So the
error is known for any split of the tuples into tasks and batches. The split affects a count only in
the batch in which its value is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_runtime.columns.arrays import U64, Ints
from anabranch_runtime.state.measures import KnownValues, pack, unpack

#: Maximum number of kept values per key; least share of tuples for a new value, and for a kept one.
#: The latter is smaller, since a value that is dropped and found again has a larger error.
MOST, WORTH, STAYS = 64, 0.002, 0.001
#: Half-life of recent counts in (non-empty) batches: two epochs of default length, so a change
#: affects the next epoch's plan and dominates plans from the third epoch on.
HALF_LIFE = 8
_FADED = 0.5 ** (1 / HALF_LIFE)
#: Rows of ``KeyValues.figures``: number of tuples with the value, of all and of recent tuples;
#: number of recent tuples of the relation since the value was found; error of the first two.
COUNT, RECENT, SPAN, UNDER, UNDER_RECENT = range(5)
_FADING = np.array([[1.0], [_FADED], [_FADED], [1.0], [_FADED]])
#: A value replaces the rarest kept value only if it is more frequent by this factor.
_BETTER = 1.25


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """The counts of a key's frequent values by one task in one batch.

    Attributes:
        tuples: number of the task's tuples. ``nulls``: tuples with a NULL key among them.
        counts: counts of the known values, in the order of ``KnownValues.hashes``.
        fresh: hashes of other frequent values, with ``fresh_counts`` and readable ``texts``.
        rest: upper bound of the count of every other value.
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
    """The counts of a key's frequent values so far (see the module docstring).

    Attributes:
        tuples: number of the relation's tuples since counting began. ``recent``: decayed.
        missed, missed_recent: upper bounds of the counts of each value not in ``hashes``.
        hashes: hashes of the values, packed (``measures.pack``), in the order in which they were
            found. ``texts``: the values in readable form.
        figures: packed doubles: a row per count (:data:`COUNT` and so on), a column per value.
        nulls, recent_nulls: the part of ``tuples`` and ``recent`` with a NULL key.
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
        """Add the counts of a batch's tasks, which have all counted :attr:`known` exactly."""
        tuples = sum(part.tuples for part in parts)
        if not tuples:
            return self
        nulls = sum(part.nulls for part in parts)
        rest = sum(part.rest for part in parts)
        rows = _rows(self.figures) * _FADING
        if self.texts:
            rows[:SPAN] += parts[0].counts if len(parts) == 1 else sum(p.counts for p in parts)
            rows[SPAN] += tuples
        now = KeyValues(
            self.tuples + tuples,
            self.recent * _FADED + tuples,
            self.missed + rest,
            self.missed_recent * _FADED + rest,
            self.hashes,
            "",
            self.texts,
            self.nulls + nulls,
            self.recent_nulls * _FADED + nulls,
        )
        if any(len(part.fresh) for part in parts):
            return _admitted(now, rows, parts, tuples)
        return replace(now, figures=_packed(rows))

    @property
    def known(self) -> KnownValues:
        """Values to count exactly in the next batch, and thresholds for reporting others."""
        # If a value with one tuple would not be kept, tasks need not report values with one tuple.
        least = 1 if self.recent * WORTH < 1 else 2
        if len(self.texts) < MOST:
            return KnownValues(self.hashes, WORTH, least)
        rarest = float(_worth(_rows(self.figures), self.tuples).min())
        return KnownValues(self.hashes, max(WORTH, _BETTER * rarest), least)

    def published(self) -> FrequentValues:
        """Convert to the record of frequent values that is published to the service."""
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


#: Decimal digits of published shares, and the error that rounding twice may cause.
_DIGITS, _ROUNDED = 6, 1e-6


def _admitted(
    now: KeyValues, rows: NDArray[np.float64], parts: Sequence[ValueCounts], tuples: int
) -> KeyValues:
    """Add the frequent ones of the values that tasks newly report in ``parts`` to the counts
    ``now``.

    ``now`` already includes the batch's ``tuples`` and the tasks' bounds; ``rows`` are the figures
    of the values in ``now``.
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
    rows = np.concatenate([rows, entering], axis=1)
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
    """Return the frequent values' scores: lower bound (one standard deviation) of the share in
    recent tuples since the value was found, plus half of the share in all ``tuples``.

    A newly frequent value replaces a formerly frequent one only after the latter has decayed.
    """
    recents = rows[RECENT]
    ranked: NDArray[np.float64] = (recents - np.sqrt(recents)) / rows[SPAN]
    ranked += rows[COUNT] / (2 * tuples)
    return ranked


def _packed(rows: NDArray[np.float64]) -> str:
    return pack(np.ascontiguousarray(rows).view(np.uint64))


def _rows(text: str) -> NDArray[np.float64]:
    return unpack(text).view(np.float64).reshape(len(_FADING), -1)
