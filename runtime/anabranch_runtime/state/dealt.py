"""Where rows of hot values are: in the home partition of their hash, or where they were dealt to.

A row of a store belongs to the *home* partition of its partition attribute's hash. While a value is
hot (``StoreSpec.hot``) its new rows are *dealt* to several partitions, one on each of several
hosts: each row to one of them, by when it arrived. A store remembers each value that has ever been
dealt and of which rows may still be there, with all partitions that have been given any.

*Invariant.* A row is in one partition: its home, or one that :attr:`Dealt.partitions` has of its
hash. So a probe that asks the home and these (:meth:`DealtRows.by_partition`) asks wherever a row
with its key may be, and finds none twice. It holds because rows are written by the same entries
(:meth:`DealtRows.written`), an entry only ever gains partitions, and it goes when the last segment
has gone that may have a row dealt by it (:func:`forget_cold`). Rows never move, so nothing else
touches it: a merge is of segments of one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from anabranch_contract.codec import Row
from anabranch_runtime.columns.arrays import U64, Bools, Ints
from anabranch_runtime.index.keys import mix, partition_of
from anabranch_runtime.storage.segment import Segment


class Dealt(Row, frozen=True):
    """A value of which rows have been dealt.

    Attributes:
        hash: of the value.
        partitions: that may have rows of it besides its home; sorted.
        now: those that new rows are dealt to; empty: they go home.
        first, last: the first and the last batch whose rows may have been dealt. While new ones
            are, ``last`` is the batch before the present rules.
    """

    hash: int
    partitions: tuple[int, ...]
    now: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class DealtRows:
    """The dealt values of a store, for many rows and probes at once.

    Attributes:
        hashes: ascending. ``partitions``: number of the value x partition: whether it may have
            rows of the value, homes included.
        targets: number of the value x some partitions: those that new rows are dealt to, as many
            as ``counts`` says of each.
    """

    hashes: U64
    partitions: Bools
    targets: Ints
    counts: Ints

    def numbers(self, hashes: U64) -> Ints:
        """The number of each hash's value; -1 where it has not been dealt."""
        at = np.searchsorted(self.hashes, hashes)
        at[at == len(self.hashes)] = 0
        return np.where(self.hashes[at] == hashes, at, -1)

    def by_partition(self, hashes: U64, homes: Ints) -> list[Bools]:
        """Per partition, which of ``hashes`` it may have rows of; ``homes``: their partitions."""
        numbers = self.numbers(hashes)
        dealt = numbers >= 0
        return [
            (homes == p) | (dealt & self.partitions[numbers, p])
            for p in range(self.partitions.shape[1])
        ]

    def by_host(self, hashes: U64, owners: Ints, hosts: int) -> list[Bools]:
        """Per host, which of ``hashes`` have been dealt and may be there; ``owners``: the host of
        each partition.
        """
        numbers = self.numbers(hashes)
        dealt = numbers >= 0
        found: list[Bools] = []
        for host in range(hosts):
            there: Bools = np.logical_or.reduce(self.partitions[:, owners == host], axis=1)
            found.append(dealt & there[numbers])
        return found

    def written(self, hashes: U64, homes: Ints, arrived: Callable[[], Ints]) -> Ints:
        """The partition that each new row is written to.

        It follows from the row, so that who sends it and who writes it say the same.

        Args:
            homes: their partitions, were none dealt. ``arrived``: when each has arrived.
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
    """``entries`` of a store with so many ``partitions``, for many rows at once."""
    known = sorted(entries)
    hashes = np.array([one.hash for one in known], np.uint64)
    may = np.zeros((len(known), partitions), np.bool_)
    may[np.arange(len(known)), partition_of(hashes, partitions)] = True
    targets = np.zeros((len(known), max(len(one.now) for one in known) or 1), np.int64)
    for number, one in enumerate(known):
        may[number, list(one.partitions)] = True
        targets[number, : len(one.now)] = one.now
    return DealtRows(hashes, may, targets, np.array([len(one.now) for one in known], np.int64))


def forget_cold(entries: tuple[Dealt, ...], segments: Iterable[Segment]) -> tuple[Dealt, ...]:
    """``entries`` less those of values that are no longer dealt, and of which no segment can have
    dealt rows: ``segments`` are all that are kept of the store.
    """
    cold = [one for one in entries if not one.now]
    if not cold:
        return entries
    left = {
        one.hash
        for segment in segments
        for one in cold
        if segment.partition in one.partitions
        and segment.first_batch <= one.last
        and segment.last_batch >= one.first
    }
    return tuple(one for one in entries if one.now or one.hash in left)
