"""Counts of a batch's probes: per edge, and of lookups in stores per call of the matching kernel.

A probe with too many matches is tried again in smaller pieces (``pieces``), so its counts hold only
once it has finished.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.columns.arrays import Bools
from anabranch_runtime.index.matching import Marks

I32 = NDArray[np.int32]


@dataclass(slots=True)
class EdgeMeter:
    """Running counts of one edge; see ``EdgeStatistics``."""

    probes: int = 0
    matches: int = 0
    seconds: float = 0.0
    pairs: int = 0
    hits: int = 0
    found: int = 0
    calls: int = 0
    looked: int = 0
    made: int = 0
    sent: int = 0
    sent_bytes: int = 0
    asked: int = 0
    dropped: int = 0

    @property
    def counts(self) -> EdgeStatistics:
        """The counts so far."""
        return EdgeStatistics(**asdict(self))


@dataclass(slots=True)
class LookupCounts:
    """The lookups of one partial result in one store by one index.

    Attributes:
        tuples: of the partial result.
        marks: per tuple 1 where it has found a match.
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
        """Take over which tuples have found a match: ``marks``, unless some of the pairs found (now
        at ``positions``) are none, by ``mask``.
        """
        if mask is None or mask.all():
            self.marks |= marks
        else:
            self.marks[positions] = 1

    @property
    def reads(self) -> Reads:
        """The counts."""
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
    """The counts of one batch in one task.

    Attributes:
        found: store -> index -> counts.
    """

    found: dict[str, dict[str, Reads]] = field(default_factory=lambda: defaultdict(dict))
    _open: list[tuple[str, str, LookupCounts]] = field(default_factory=list)

    def begin(self, store: str, index: str, tuples: int) -> LookupCounts:
        """The counts of a probe of ``store`` that begins."""
        made = LookupCounts(tuples, np.zeros(tuples, np.uint8))
        self._open.append((store, index, made))
        return made

    def keep(self) -> None:
        """Add up the counts since the last finished probe."""
        for store, index, one in self._open:
            by_index = self.found[store]
            by_index[index] = by_index.get(index, Reads()) + one.reads
        self._open.clear()

    def forget(self) -> None:
        """Drop it: the probe comes again."""
        self._open.clear()
