"""Counts of the look-ups that a batch's probes make in stores, per store and index.

A probe with too many matches is repeated in smaller pieces (``pieces``), so its counts are kept
only once it has finished.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.columns.arrays import I32, Bools
from anabranch_runtime.index.matching import Marks


@dataclass(slots=True)
class LookupCounts:
    """Counts of the look-ups of one partial result in one store by one index.

    Attributes:
        tuples: number of tuples of the partial result.
        marks: per tuple, 1 if it has a match.
    """

    tuples: int
    marks: Marks
    matches: int = 0
    by_batch: int = 0
    by_partition: int = 0
    by_time: int = 0
    filtered: int = 0
    looked: int = 0

    def kept(self, marks: Marks, positions: I32, mask: Bools | None) -> None:
        """Mark the tuples that have a match: those in ``marks`` if ``mask`` is None, as no pair was
        rejected; else the tuples at ``positions`` whose pairs ``mask`` accepts."""
        if mask is None or mask.all():
            self.marks |= marks
        else:
            self.marks[positions] = 1

    @property
    def reads(self) -> Reads:
        """The counts of look-ups as a record of the protocol."""
        return Reads(
            self.tuples,
            int(np.count_nonzero(self.marks.view(np.bool_))),
            self.matches,
            self.by_batch,
            self.by_partition,
            self.by_time,
            self.filtered,
            self.looked,
        )


@dataclass(slots=True)
class ReadMeters:
    """Counts of the look-ups of one batch in one task.

    Attributes:
        found: store -> index -> counts of finished probes.
    """

    found: dict[str, dict[str, Reads]] = field(default_factory=lambda: defaultdict(dict))
    _open: list[tuple[str, str, LookupCounts]] = field(default_factory=list)

    def begin(self, store: str, index: str, tuples: int) -> LookupCounts:
        """Return counts of look-ups for a new probe of ``store``, to be kept or forgotten."""
        made = LookupCounts(tuples, np.zeros(tuples, np.uint8))
        self._open.append((store, index, made))
        return made

    def keep(self) -> None:
        """Add the pending counts of look-ups, once the probe has finished."""
        for store, index, one in self._open:
            by_index = self.found[store]
            by_index[index] = by_index.get(index, Reads()) + one.reads
        self._open.clear()

    def forget(self) -> None:
        """Drop the pending counts of look-ups, because the probe will be repeated."""
        self._open.clear()
