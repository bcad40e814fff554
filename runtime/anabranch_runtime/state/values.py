"""Frequent values of keys between batches: counts of at most :data:`MOST` values that merge.

A task counts the values that the state has (:class:`KnownValues`) exactly, and reports other values
that are frequent in its share of a batch, with a bound for all that it does not report
(``index.frequent``). For every value ``v`` the state keeps this true::

    count(v) <= tuples that had v <= count(v) + missed        (count(v) = 0 where it has none)

because ``missed`` grows by what a value that is not counted can have had at most: the sum of the
tasks' bounds, or the count of the most frequent value that has been let go, if that is more. A
value that enters misses what came before it entered, which is within ``missed`` too. The same
holds for the *recent* counts, which halve with every :data:`HALF_LIFE` batches that bring tuples.
So the error is stated, whatever tasks and batches tuples came in; a value's own growth depends on
them only in the batch in which it is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_runtime.state.measures import KnownValues, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from anabranch_runtime.columns.arrays import U64, Ints

#: Values of a key that are kept, the share of tuples from which a value is worth it, and from which
#: it stays so: less, because letting go of a value that comes back adds to the error.
MOST, WORTH, STAYS = 64, 0.002, 0.001
#: Batches (of those that bring tuples) after which a tuple counts half. Two epochs of the default
#: length: plans are made per epoch, so what has changed shows in the next and rules in the third.
HALF_LIFE = 8
_FADED = 0.5 ** (1 / HALF_LIFE)
#: A value has to be more frequent than the rarest that is kept by this factor to take its place.
_BETTER = 1.25


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """The counts of a key's values by one task in one batch.

    Attributes:
        tuples: that the task had, those with a NULL key too.
        counts: of the values that were known, in the order in which they were given.
        fresh: hashes of others that are frequent; ``fresh_counts``: of each. ``texts``: for people.
        rest: no value that is in neither list had more tuples.
    """

    tuples: int
    counts: Ints
    fresh: U64
    fresh_counts: Ints
    texts: tuple[str, ...]
    rest: int


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The counts of a key's frequent values so far (see the module's text).

    Attributes:
        tuples: of the relation since the key is counted. ``recent``: those that have not faded.
        missed, missed_recent: by how much a count may be too low.
        hashes: of the values, packed (``measures.pack``), in the order in which they were found;
            ``texts``: for people, ``counts`` and ``recents``: of each, packed as well.
        spans: of each, the tuples since it was found that have not faded, packed.
    """

    tuples: int = 0
    recent: float = 0.0
    missed: int = 0
    missed_recent: float = 0.0
    hashes: str = ""
    counts: str = ""
    recents: str = ""
    spans: str = ""
    texts: tuple[str, ...] = ()

    def merge(self, parts: Sequence[ValueCounts]) -> KeyValues:
        """With what the tasks of one batch have counted, all of which were given its values."""
        tuples = sum(part.tuples for part in parts)
        if not tuples:
            return self
        came = parts[0].counts if len(parts) == 1 else np.sum([p.counts for p in parts], axis=0)
        rest = sum(part.rest for part in parts)
        now = KeyValues(
            self.tuples + tuples,
            self.recent * _FADED + tuples,
            self.missed + rest,
            self.missed_recent * _FADED + rest,
            self.hashes,
            _packed(_ints(self.counts) + came) if self.texts else "",
            _packed(_floats(self.recents) * _FADED + came) if self.texts else "",
            _packed(_floats(self.spans) * _FADED + tuples) if self.texts else "",
            self.texts,
        )
        if any(len(part.fresh) for part in parts):
            return _admitted(self, now, parts, rest)
        return now

    @property
    def known(self) -> KnownValues:
        """What tasks are told of it."""
        # What a single tuple has is no news any more once it would not be kept.
        least = 1 if self.recent * WORTH < 1 else 2
        if len(self.texts) < MOST:
            return KnownValues(self.hashes, WORTH, least)
        recents, spans = _floats(self.recents), _floats(self.spans)
        rarest = float(_worth(_ints(self.counts) / self.tuples, recents, spans).min())
        return KnownValues(self.hashes, max(WORTH, _BETTER * rarest), least)

    def published(self) -> FrequentValues:
        """As the control plane reads it."""
        counts, recents = _ints(self.counts), _floats(self.recents)
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
        )


#: Digits of published shares, and what rounding to so many may take off, twice.
_DIGITS, _ROUNDED = 6, 1e-6


def _admitted(
    before: KeyValues, now: KeyValues, parts: Sequence[ValueCounts], rest: int
) -> KeyValues:
    """``now`` with the fresh values of ``parts``, less those that are not worth keeping.

    ``before`` is the state before the batch, ``rest`` the sum of the tasks' bounds.
    """
    reported = np.concatenate([part.fresh for part in parts])
    fresh, first, which = np.unique(reported, return_index=True, return_inverse=True)
    came, covered = np.zeros(len(fresh), np.int64), np.zeros(len(fresh), np.int64)
    np.add.at(came, which, np.concatenate([part.fresh_counts for part in parts]))
    np.add.at(covered, which, np.repeat([p.rest for p in parts], [len(p.fresh) for p in parts]))
    names = [text for part in parts for text in part.texts]
    hashes = np.concatenate([unpack(now.hashes), fresh])
    counts = np.concatenate([_ints(now.counts), came])
    recents = np.concatenate([_floats(now.recents), came])
    spans = np.concatenate([_floats(now.spans), np.full(len(fresh), now.tuples - before.tuples)])
    texts = [*now.texts, *(names[place] for place in first.tolist())]
    stored = counts / now.tuples
    rank = np.lexsort((hashes, -_worth(stored, recents, spans)))
    wanted = np.repeat([STAYS, WORTH], [len(now.texts), len(fresh)])
    frequent = np.maximum(stored, recents / spans) >= wanted
    kept = np.sort(rank[frequent[rank]][:MOST])
    gone = np.ones(len(hashes), np.bool_)
    gone[kept] = False
    # What a value that goes has had beside its count: in this batch where a task did not report it.
    unseen = np.concatenate([np.zeros(len(now.texts), np.int64), rest - covered])
    missed = int((counts + unseen)[gone].max(initial=0))
    missed_recent = float((recents + unseen)[gone].max(initial=0.0))
    return KeyValues(
        now.tuples,
        now.recent,
        before.missed + max(rest, missed),
        before.missed_recent * _FADED + max(rest, missed_recent),
        pack(hashes[kept]),
        _packed(counts[kept]),
        _packed(recents[kept]),
        _packed(spans[kept]),
        tuple(texts[place] for place in kept.tolist()),
    )


def _worth(
    stored: NDArray[np.float64], recents: NDArray[np.float64], spans: NDArray[np.float64]
) -> NDArray[np.float64]:
    """By what values are ranked: their share since they were found, as far as it is no chance (one
    standard deviation), and half their share of all tuples: what has become frequent displaces what
    was so, but only once that has faded.
    """
    return (recents - np.sqrt(recents)) / spans + stored / 2


def _packed(numbers: NDArray[np.int64] | NDArray[np.float64]) -> str:
    return pack(numbers.view(np.uint64))


def _ints(text: str) -> Ints:
    return unpack(text).view(np.int64)


def _floats(text: str) -> NDArray[np.float64]:
    return unpack(text).view(np.float64)
