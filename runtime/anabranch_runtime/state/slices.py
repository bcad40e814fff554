"""Progress of the backfill of an MIR store, and one batch's slice of it.

A backfill computes the combinations of a store's *gaps*: batches before the store opened that no
container covers. It goes once through the stored rows of one member, its *sources*: segments as
they were when it began. Segments never change, so a position among them stays valid through merges;
the files are kept until they have been gone through.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch_contract.plans.ruleset import BackfillRule
from anabranch_runtime.state.coverage import Interval, Tile
from anabranch_runtime.storage.segment import Merge, Segment


@dataclass(frozen=True, slots=True)
class Throttle:
    """Limits of a batch's part of a backfill.

    Attributes:
        share: greatest addition to a batch's time, as a part of it.
        floor: seconds that it may take however short the batch is.
        first: rows of the start member in the first slice.
        least, most: rows of any slice.
    """

    share: float = 0.25
    floor: float = 0.05
    first: int = 4096
    least: int = 16
    most: int = 1 << 20

    def rows(self, rows: int, taken: float, rest: float) -> int:
        """The next slice's rows, after one of ``rows`` took ``taken`` seconds of a batch that took
        ``rest`` besides.

        >>> Throttle().rows(1000, taken=0.5, rest=1.0), Throttle().rows(1000, taken=0.01, rest=1.0)
        (500, 2000)
        """
        wanted = max(self.share * rest, self.floor)
        factor = min(max(wanted / max(taken, 1e-9), 0.25), 2.0)
        return min(max(int(rows * factor), self.least), self.most)


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Rows ``first`` to ``last`` (excluded) of a base segment.

    Attributes:
        store: the store that the segment was in.
        interval: batches whose rows count; rows of others are skipped.
    """

    store: str
    segment: Segment
    interval: Interval
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill that has begun.

    Attributes:
        rule: its rule, the same from beginning to end.
        gaps: batches that the store covers once it is done.
        sources: remaining rows of the start member.
        total: rows at the beginning.
        rows: size of the next slice.
        segments: computed so far; unread before the end.
        failed: reason for giving up: an expression that can't be evaluated for some stored row. The
            gaps are still answered by the parts, which may never meet that row.
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
        """The part of the start member's rows that has been gone through."""
        left = sum(s.rows for s in self.sources)
        return 1.0 - left / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class Slice:
    """One batch's part of a backfill.

    Attributes:
        store: the MIR store. ``gaps``: see :class:`Backfill`.
        sources: the start member's rows that it takes.
        fill: per step of ``rule``, the tiles of its probe: earlier batches only.
        merges: segments of the backfill that become one; task ``i`` of ``n`` takes every ``n``-th.
    """

    store: str
    rule: BackfillRule
    gaps: tuple[Interval, ...]
    sources: tuple[SegmentRows, ...]
    fill: tuple[tuple[Tile, ...], ...]
    merges: tuple[Merge, ...] = ()

    @property
    def rows(self) -> int:
        """Rows that the slice looks at."""
        return sum(s.rows for s in self.sources)


def cut(
    sources: tuple[SegmentRows, ...], rows: int
) -> tuple[tuple[SegmentRows, ...], tuple[SegmentRows, ...]]:
    """The first ``rows`` rows of ``sources``, and the rest."""
    taken: list[SegmentRows] = []
    for at, source in enumerate(sources):
        if source.rows > rows:
            middle = source.first + rows
            taken += [replace(source, last=middle)] if rows else []
            return tuple(taken), (replace(source, first=middle), *sources[at + 1 :])
        taken.append(source)
        rows -= source.rows
    return tuple(taken), ()
