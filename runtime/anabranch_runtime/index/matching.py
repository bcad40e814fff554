"""Matches of probes with stored rows by key: one call looks up many probes in many hash indexes.

>>> from anabranch_runtime.index.hash_index import build_index
>>> from anabranch_runtime.index.keys import key_vector
>>> import pyarrow as pa
>>> stored = build_index(key_vector([pa.array([5, 6, 5, None])], ["bigint"]))
>>> probes = in_order(key_vector([pa.array([6, 7, 5])], ["bigint"]).hashes)
>>> found = match(probes, described([stored]))
>>> sorted(zip(found.positions.tolist(), found.rows.tolist()))
[(0, 1), (2, 0), (2, 2)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import I32, U64, Ints
from anabranch_runtime.index import kernels, prefetch
from anabranch_runtime.index.choosing import PairTest, match_wanted
from anabranch_runtime.index.gather import pick
from anabranch_runtime.index.hash_index import HashIndex

Marks = NDArray[np.uint8]


#: Value of ``most`` without a limit on the number of pairs.
ANY = (1 << 63) - 1
_NO_COLUMNS = np.zeros((0, 1), np.int64)
_NO_MARKS = np.zeros(0, np.uint8)


class TooManyPairs(Exception):
    """A call of :func:`match` has more pairs than its limit ``most``."""


@dataclass(frozen=True, slots=True)
class Probes:
    """Probes in the order of their hashes, and the position of each in the partial result."""

    hashes: U64
    order: I32

    def __len__(self) -> int:
        return len(self.hashes)

    def where(self, mask: NDArray[np.bool_]) -> Probes:
        """Return the probes where ``mask``, in the order of the probes, is True."""
        return Probes(self.hashes[mask], self.order[mask])


@dataclass(frozen=True, slots=True)
class Constraint:
    """Limits of a value in the stored rows that match a probe, such as the event time.

    Attributes:
        columns: per index, the address of the value's int64 column; 0: no limit.
        low, high: least and greatest allowed value per position of the partial result.
    """

    columns: Ints
    low: Ints
    high: Ints


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches as pairs (position in the partial result, stored row), ordered by hash index.

    Attributes:
        found: number of pairs per index.
        counted: number of pairs per index that satisfy the counting constraints.
        held: number of look-ups avoided thanks to filters or empty indexes.
    """

    positions: I32
    rows: I32
    found: Ints
    counted: Ints
    held: int


def in_order(hashes: U64, positions: Ints | None = None) -> Probes:
    """Sort probes by hash; ``positions``: positions of the probes to take (None: all).

    The position of each probe replaces the low bits of its hash, so that single words are sorted
    and not pairs. Hashes that differ only in these bits may be in any order, which does no harm.
    """
    chosen = hashes if positions is None else hashes[positions]
    bits = np.uint64(max(1, len(chosen) - 1).bit_length())
    packed = (chosen >> bits << bits) | np.arange(len(chosen), dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int32)
    ordered = pick(chosen, order)
    return Probes(ordered, order if positions is None else positions[order].astype(np.int32))


def described(indexes: Sequence[HashIndex]) -> Ints:
    """Return the indexes as an argument of :func:`match`; it is valid while the indexes live."""
    return np.array([index.words for index in indexes], np.int64).reshape(-1, kernels.WORDS + 1)


def match(
    probes: Probes,
    indexes: Ints,
    constraints: Sequence[Constraint] = (),
    counting: int | None = None,
    most: int = ANY,
    marks: Marks = _NO_MARKS,
    test: PairTest | None = None,
) -> Matches:
    """Find all pairs (probe, stored row) of equal hashes that satisfy ``constraints``. The first
    ``counting`` constraints (None: all) decide which pairs are counted. ``marks`` (one entry per
    position of the partial result, or empty) is set to 1 at positions of counted pairs. Pairs that
    fail ``test`` are only counted.

    Raises:
        TooManyPairs: there are more pairs than ``most``, and more than probes.
    """
    columns = lows = highs = _NO_COLUMNS
    if len(constraints) == 1:
        one = constraints[0]
        columns, lows, highs = (x.reshape(1, -1) for x in (one.columns, one.low, one.high))
    elif constraints:
        columns = np.stack([c.columns for c in constraints])
        lows = np.stack([c.low for c in constraints])
        highs = np.stack([c.high for c in constraints])
    arrival = len(constraints) if counting is None else counting
    if prefetch.is_enabled():
        prefetch.for_probes(probes.hashes, indexes, columns)
    given = probes.hashes, probes.order, indexes, columns, lows, highs, arrival, most, marks
    if test is None:
        positions, rows, found, counted, held, stopped = kernels.match(*given)
    else:
        while True:
            positions, rows, found, counted, held, stopped, lacking = match_wanted(
                *given, *test.arguments
            )
            if not len(lacking):
                break
            test = test.completed(lacking)
    if stopped:
        raise TooManyPairs
    return Matches(positions, rows, found, counted, held)


def mark_present(probes: Probes, indexes: Ints, marks: Marks) -> None:
    """Set ``marks`` (one entry per position of the partial result) to 1 for each of ``probes``
    whose hash is in one of the indexes. Positions already marked are skipped."""
    left = np.flatnonzero(marks[probes.order] == 0).astype(np.int32)
    if not len(left) or not len(indexes):
        return
    if prefetch.is_enabled():
        wanted = probes.hashes if len(left) == len(probes) else probes.hashes[left]
        prefetch.for_probes(wanted, indexes, _NO_COLUMNS)
    kernels.mark_present(probes.hashes, probes.order, indexes, marks, left, len(left))
