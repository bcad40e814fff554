"""An immutable hash index over key vectors, and sketches of the number of distinct keys.

The index is the sorted array of hashes with their row numbers, and a directory: bucket ``b`` has
the hashes whose top ``k`` bits are ``b``, and begins at ``starts[b]``. With about as many buckets
as entries, a probe finds its lower bound after half a step on average. A Bloom filter
(:mod:`filters`) rejects most probes without a match. All arrays are plain and independent of their
position in memory, so a segment maps them from its file; ``matching`` probes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from anabranch_runtime.columns.arrays import U64
from anabranch_runtime.index.filters import build_filter
from anabranch_runtime.index.gather import address
from anabranch_runtime.index.keys import KeyVector
from anabranch_runtime.index.sorting import sort_entries

U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class HashIndex:
    """An index from the hash of a key to the rows with that hash.

    Attributes:
        hashes: sorted hashes, one for each row whose key has no NULL part.
        rows: the row of each hash; ascending among equal hashes.
        starts: ``2**k + 1`` positions: first entry of each bucket (top ``k`` bits), and the end.
        unique: whether all hashes are distinct.
        filter: Bloom filter of the hashes; empty for a small index.
    """

    hashes: U64
    rows: U32
    starts: U32
    unique: bool
    filter: U64

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def words(self) -> tuple[int, ...]:
        """The index as a row of the kernels' table of segments; valid while the index lives."""
        shift = 65 - (len(self.starts) - 1).bit_length()
        hashes, rows, starts = (address(a) for a in (self.hashes, self.rows, self.starts))
        screen = address(self.filter) if len(self.filter) else 0
        return hashes, rows, starts, shift, len(self), screen, len(self.filter)


def build_index(keys: KeyVector) -> HashIndex:
    """Build the index of the rows of ``keys`` that have no NULL part."""
    if keys.valid is None:
        return _indexed(keys.hashes, np.arange(len(keys.hashes), dtype=np.uint32))
    present = np.flatnonzero(keys.valid)
    return _indexed(keys.hashes[present], present.astype(np.uint32))


def merge_indexes(parts: Sequence[tuple[HashIndex, int]]) -> HashIndex:
    """Merge hash indexes (each with its number of rows) into one over their concatenated rows."""
    bases = np.cumsum([0, *(rows for _, rows in parts)])
    return _indexed(
        np.concatenate([index.hashes for index, _ in parts]),
        np.concatenate(
            [index.rows + np.uint32(base) for (index, _), base in zip(parts, bases, strict=False)]
        ),
    )


def _indexed(hashes: U64, rows: U32) -> HashIndex:
    """Build the hash index with these entries; ``rows`` must ascend among equal hashes."""
    bits = max(1, (len(hashes) - 1).bit_length()) if len(hashes) else 1
    starts = np.zeros(2**bits + 1, np.uint32)
    ordered, numbers, unique, done = sort_entries(hashes, rows, bits, starts)
    if not done:
        order = np.argsort(hashes, kind="stable")
        ordered, numbers = hashes[order], rows[order]
        unique = not bool((ordered[1:] == ordered[:-1]).any())
    return HashIndex(ordered, numbers, starts, unique, build_filter(ordered))


def distinct_sketch(keys: KeyVector | U64, k: int = 256) -> U64:
    """Return the ``k`` smallest distinct hashes, ascending; all of them if there are fewer.

    The k-minimum-values sketch (Bar-Yossef et al., RANDOM 2002; Beyer et al., SIGMOD 2007): it does
    not depend on order and repetition, so sketches of parts merge into the sketch of their union.

    >>> distinct_sketch(np.array([9, 3, 9, 4], dtype=np.uint64), k=2).tolist()
    [3, 4]
    """
    hashes = keys.hashes if isinstance(keys, KeyVector) else keys
    if isinstance(keys, KeyVector) and keys.valid is not None:
        hashes = hashes[keys.valid]
    candidates = 8 * k
    while candidates < len(hashes):
        bound = np.partition(hashes, candidates)[candidates]
        least = distinct(hashes[hashes <= bound])
        if len(least) >= k:
            return least[:k]
        candidates *= 16
    return distinct(hashes)[:k]


def distinct(hashes: U64) -> U64:
    """Return the distinct hashes, ascending; ``np.unique`` would build a hash table first."""
    ordered = np.sort(hashes)
    if len(ordered) < 2:
        return ordered
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def merge_sketches(sketches: Iterable[U64], k: int = 256) -> U64:
    """Merge sketches of sets into the sketch of their union; ``k``: at most each sketch's ``k``."""
    parts = [np.empty(0, dtype=np.uint64), *sketches]
    return distinct(np.concatenate(parts))[:k]


def estimate_distinct(sketch: U64, k: int = 256) -> float:
    """Estimate the number of distinct hashes in a sketched set: exact below ``k``, else unbiased.

    With ``k`` hashes uniform on the unit interval below ``u``, the estimate is ``(k - 1) / u``;
    its relative error is about ``1 / sqrt(k - 2)``.
    """
    if len(sketch) < k:
        return float(len(sketch))
    return (k - 1) / ((float(sketch[k - 1]) + 1.0) / 2.0**64)
