"""Progress of the backfill of a materialized join (MIR), and one batch's slice of it.

A backfill computes the join's rows for *gaps*: batches before its store opened that no older store
of this join covers. It reads each stored row of one member, the start, once, from its *sources*:
the segments that existed when the backfill began. Segments never change, so a position in the
sources stays valid through merges. Files of the sources are kept until they have been read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anabranch_contract.plans.ruleset import BackfillRule
from anabranch_runtime.state.coverage import Interval, Tile
from anabranch_runtime.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Throttle:
    """Limits of the time and rows that one batch spends on a backfill.

    Attributes:
        share: maximum time for the backfill, as a fraction of the time of the batch's other work.
        floor: seconds that the backfill may take in any batch, however short.
        first: rows of the start member in the first slice: few, as their number of matches is
            unknown; later slices grow up to fourfold each.
        least, most: minimum and maximum rows of a slice.
    """

    share: float = 0.25
    floor: float = 0.05
    first: int = 256
    least: int = 16
    most: int = 1 << 20

    def rows(self, rows: int, taken: float, rest: float) -> int:
        """Choose the next slice's number of rows, after a slice of ``rows`` rows took ``taken``
        seconds in a batch whose other work took ``rest`` seconds.

        >>> Throttle().rows(1000, taken=0.5, rest=1.0), Throttle().rows(1000, taken=0.01, rest=1.0)
        (500, 4000)
        """
        wanted = max(self.share * rest, self.floor)
        factor = min(max(wanted / max(taken, 1e-9), 0.25), 4.0)
        return min(max(int(rows * factor), self.least), self.most)


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Rows ``first`` to ``last`` (excluded) of a segment of a base store.

    Attributes:
        store: the segment's store when it was selected.
        interval: batches whose rows are read; rows of other batches are skipped.
    """

    store: str
    segment: Segment
    interval: Interval
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Number of rows in the range of the segment."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Backfill:
    """A running or failed backfill of a materialized join.

    Attributes:
        rule: probes that compute the join from rows of one member, the start; never changes.
        gaps: batches that the store covers once the backfill is complete.
        sources: remaining stored rows of the start member.
        total: number of rows of the start member at the beginning.
        rows: number of rows in the next slice.
        segments: segments computed so far; no probe reads them before the end.
        failed: reason of a failure: an expression that can't be evaluated for some stored row. Then
            probes continue to join the inputs for the gaps, and may never read this row.
    """

    rule: BackfillRule
    gaps: tuple[Interval, ...]
    sources: tuple[SegmentRows, ...]
    total: int
    rows: int
    segments: tuple[Segment, ...] = ()
    failed: str = ""

    @property
    def done(self) -> float:
        """Fraction of the start member's rows that the backfill has processed."""
        left = sum(s.rows for s in self.sources)
        return 1.0 - left / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class Slice:
    """One batch's part of a backfill.

    Attributes:
        store: the materialized join's store. ``gaps``: see :class:`Backfill`.
        sources: the start member's rows of this slice.
        fill: per probe of ``rule``, the stores and (earlier) batches that it reads.
    """

    store: str
    rule: BackfillRule
    gaps: tuple[Interval, ...]
    sources: tuple[SegmentRows, ...]
    fill: tuple[tuple[Tile, ...], ...]

    @property
    def rows(self) -> int:
        """Number of the start member's rows in the backfill's slice."""
        return sum(s.rows for s in self.sources)


@dataclass(slots=True)
class SliceReport:
    """One task's results of a slice of a backfill.

    Attributes:
        segments: written segments.
        failed: reason why the backfill fails; empty: it does not.
    """

    segments: list[Segment] = field(default_factory=list)
    failed: str = ""


def cut(
    sources: tuple[SegmentRows, ...], rows: int
) -> tuple[tuple[SegmentRows, ...], tuple[SegmentRows, ...]]:
    """Split the ``sources`` of a backfill in two: the first ``rows`` rows, and the rest."""
    taken: list[SegmentRows] = []
    for at, source in enumerate(sources):
        if source.rows > rows:
            middle = source.first + rows
            taken += [replace(source, last=middle)] if rows else []
            return tuple(taken), (replace(source, first=middle), *sources[at + 1 :])
        taken.append(source)
        rows -= source.rows
    return tuple(taken), ()
