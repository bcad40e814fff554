"""Counts of a store's reads: probes, and the segments they read (``docs/statistics.md``)."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.body import Body
from anabranch_contract.protocol.counts import Summed


@dataclass(frozen=True, slots=True)
class Reads(Body, Summed):
    """Read counts of a store, or of one of its indexes, over a period of time.

    A tuple that probes a store has one outcome per segment: one of the counts from ``by_batch`` to
    ``looked``. The first three outcomes cost nothing; ``filtered`` costs a filter test, ``looked``
    an index look-up. A tuple without a key has no outcomes.

    Attributes:
        probes: tuples that probed.
        found: tuples with a match: a row of the key, of requested batches, that arrived earlier.
        matches: number of matches found.
        by_batch: segments skipped because they have no rows of the requested batches. This and the
            following counts are summed over the tuples.
        by_partition: segments skipped because they belong to another partition than the key.
        by_time: segments skipped because their event times match no tuple of the probe call.
        filtered: segments skipped because their filter excludes the key, or they have no keys.
        looked: segments read.

    >>> some = Reads(probes=4, found=1, matches=2, by_time=4, filtered=6, looked=2)
    >>> some.hit_rate, some.read_amplification, some.filtered_share, some.passed_share
    (0.25, 0.5, 0.75, 0.3333333333333333)
    >>> (some + some).probes, Reads().hit_rate
    (8, None)
    """

    probes: int = 0
    found: int = 0
    matches: int = 0
    by_batch: int = 0
    by_partition: int = 0
    by_time: int = 0
    filtered: int = 0
    looked: int = 0

    @property
    def hit_rate(self) -> float | None:
        """The share of tuples probing the store that found a match."""
        return _share(self.found, self.probes)

    @property
    def read_amplification(self) -> float | None:
        """Segments of the store that were read per tuple that probes."""
        return _share(self.looked, self.probes)

    @property
    def filtered_share(self) -> float | None:
        """The share of filter tests, one per segment and tuple, that excluded the segment."""
        return _share(self.filtered, self.filtered + self.looked)

    @property
    def passed_share(self) -> float | None:
        """The share of segments skipped without a filter test."""
        passed = self.by_batch + self.by_partition + self.by_time
        return _share(passed, passed + self.filtered + self.looked)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
