"""Partitions of stored rows: the home of their hash or, for hot values, one of several.

A row of a store belongs to the *home* partition of its partition attribute's hash. While a value is
hot (``StoreSpec.hot``) its new rows are *spread* over several partitions, one on each of several
hosts; a row's arrival time picks its partition. A store keeps one entry per value with spread rows,
listing every partition that may hold them.

*Invariant.* A row is in one partition: its home, or one in :attr:`Dealt.partitions` of its hash. A
probe of the home and these partitions (:meth:`DealtRows.by_partition`) therefore reaches every row
with its key, each once. The invariant holds because rows are written by the same entries
(:meth:`DealtRows.written`), and an entry never loses partitions. An entry is dropped with the last
segment that may hold one of its spread rows (:func:`forget_cold`). Rows never change partition: a
merge combines segments of one partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from anabranch_contract.codec import Row
from anabranch_runtime.columns.arrays import U64, Bools, Ints
from anabranch_runtime.index.keys import mix, partition_of


class Dealt(Row, frozen=True):
    """A key value with rows spread over partitions besides its home.

    Attributes:
        hash: hash of the key value.
        partitions: partitions besides the home that may hold rows of the value; sorted.
        now: partitions over which new rows are spread; empty: new rows are stored in the home.
        first, last: first and last batch whose rows may have been spread. While new rows are
            spread, ``last`` is the last batch of the former ruleset.
    """

    hash: int
    partitions: tuple[int, ...]
    now: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class DealtRows:
    """The values of a store with spread rows, as arrays; a value's number is its index in them.

    Attributes:
        hashes: hashes of the values, ascending.
        partitions: shape (values, partitions): whether the partition may have rows of the value.
        targets: one row per value: target partitions of new rows, padded.
        counts: number of valid entries in each row of ``targets``.
    """

    hashes: U64
    partitions: Bools
    targets: Ints
    counts: Ints

    def numbers(self, hashes: U64) -> Ints:
        """Return the index of each hash in the arrays; -1 for a value without spread rows."""
        at = np.searchsorted(self.hashes, hashes)
        at[at == len(self.hashes)] = 0
        return np.where(self.hashes[at] == hashes, at, -1)

    def by_partition(self, hashes: U64, homes: Ints) -> list[Bools]:
        """Return partition -> mask of ``hashes`` maybe stored in it; ``homes``: their homes."""
        numbers = self.numbers(hashes)
        dealt = numbers >= 0
        return [
            (homes == p) | (dealt & self.partitions[numbers, p])
            for p in range(self.partitions.shape[1])
        ]

    def by_host(self, hashes: U64, owners: Ints, hosts: int) -> list[Bools]:
        """Return host -> mask of ``hashes`` maybe spread to it; ``owners``: partition -> host."""
        numbers = self.numbers(hashes)
        dealt = numbers >= 0
        found: list[Bools] = []
        for host in range(hosts):
            there: Bools = np.logical_or.reduce(self.partitions[:, owners == host], axis=1)
            found.append(dealt & there[numbers])
        return found

    def written(self, hashes: U64, homes: Ints, arrived: Callable[[], Ints]) -> Ints:
        """Choose the partition of each new row, as a function of the row, so that all tasks agree.

        Args:
            homes: home partition of each row. ``arrived``: returns the rows' arrival numbers.
        """
        numbers = self.numbers(hashes)
        hit = np.flatnonzero((numbers >= 0) & (self.counts[numbers] > 0))
        if not len(hit):
            return homes
        which = numbers[hit]
        turns = mix(arrived()[hit].view(np.uint64)) % self.counts[which].astype(np.uint64)
        found = homes.copy()
        found[hit] = self.targets[which, turns.astype(np.int64)]
        return found


@lru_cache(maxsize=1024)
def dealt_rows(entries: tuple[Dealt, ...], partitions: int) -> DealtRows:
    """Convert the entries of a store with ``partitions`` partitions to arrays."""
    known = sorted(entries)
    hashes = np.array([one.hash for one in known], np.uint64)
    may = np.zeros((len(known), partitions), np.bool_)
    may[np.arange(len(known)), partition_of(hashes, partitions)] = True
    targets = np.zeros((len(known), max(len(one.now) for one in known) or 1), np.int64)
    for number, one in enumerate(known):
        may[number, list(one.partitions)] = True
        targets[number, : len(one.now)] = one.now
    return DealtRows(hashes, may, targets, np.array([len(one.now) for one in known], np.int64))
