"""Limit on the rows of snapshots in the next batch, which keeps the latency of live streams low.

Design. A row of a live stream waits for the end of the running batch, then for the end of its own.
So a batch with many rows of a snapshot should take ``SLOWDOWN`` times as long as a batch with few.
Both times are measured: while a snapshot is read, every ``PROBE``-th batch has few rows of it. Few
rather than none, so that its time includes the fixed cost of opening files. If this cost were
attributed to the rows, each row would seem dearer the fewer are read, and ever fewer would be read.
A line fitted to all batches (``back_pressure``) would not do: live batches of some dozen rows do
not reveal the fixed cost, since their sizes follow from their durations.

The fixed time is the median of the last batches with few rows. The seconds per row are the time
beyond it per row: the median over the last batches with many rows, weighted by their rows, so that
a single batch delayed by merges or other programs has no effect. The first batches of a snapshot
have few rows, as their cost is unknown; then the limit grows by at most ``GROWTH`` from batch to
batch.

``1 - 1 / SLOWDOWN`` of the time of batches with many rows is spent on these rows. The limit on all
rows of a batch (``back_pressure``) holds as well. All functions are pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median_low

#: Time of a batch with many rows of a snapshot, as a multiple of the time of one with few rows.
SLOWDOWN = 2.0
#: Every ``PROBE``-th batch has few rows of a snapshot: ``FEW`` of the others' number.
PROBE, FEW = 6, 1 / 64
#: Rows of a snapshot in its first batches, and least number in a batch with many.
FIRST_ROWS, LEAST_ROWS = 1_000, 100
#: Number of first batches that are not measured: a query is activated, and libraries are loaded.
FIRST = 3
#: Greatest factor by which the limit grows from one batch to the next, and shrinks.
GROWTH, SHRINKAGE = 4.0, 2.0
#: Number of remembered batches with few snapshot rows, and with many.
FEWS, MANIES = 5, 6


@dataclass(frozen=True, slots=True)
class SnapshotPace:
    """Limit on the rows of snapshots, with the measurements of the last batches.

    Attributes:
        rows: maximum number of rows of snapshots in a batch with many of them.
        few: seconds of the last batches with few or no rows of snapshots, oldest first.
        many: (rows of snapshots, seconds) of the last batches with many, oldest first.
        since: number of batches with many rows since the last one with few.
        pause: number of batches without rows of snapshots since the last one with some.
        first: number of the first batches of a snapshot so far, at most :data:`FIRST`.
    """

    rows: int = FIRST_ROWS
    few: tuple[float, ...] = ()
    many: tuple[tuple[int, float], ...] = ()
    since: int = 0
    pause: int = 0
    first: int = 0

    @property
    def limit(self) -> int:
        """Maximum number of rows of snapshots in the next batch."""
        is_probe = self.since >= PROBE - 1
        return max(int(self.rows * FEW), 1) if is_probe else self.rows


def observed(pace: SnapshotPace, rows: int, seconds: float) -> SnapshotPace:
    """Return the pace after a batch of ``seconds`` with ``rows`` of snapshots."""
    if rows > 0 and pace.first < FIRST:
        return replace(pace, first=pace.first + 1, pause=0)
    if rows <= max(pace.rows * FEW, 1) or not pace.few:
        few, pause = (*pace.few, seconds)[-FEWS:], 0 if rows else pace.pause + 1
        if pause < FEWS:
            return replace(pace, few=few, since=0, pause=pause)
        # The next rows are another snapshot's.
        return SnapshotPace(few=few, pause=pause)
    many = (*pace.many, (rows, seconds))[-MANIES:]
    fixed = median_low(pace.few)
    room, per_row = (SLOWDOWN - 1) * fixed, _median(many, fixed)
    high = pace.rows * GROWTH if rows >= pace.rows / 2 else pace.rows
    wanted = room / per_row if per_row > 0 else high
    best = max(round(min(max(wanted, pace.rows / SHRINKAGE), high)), LEAST_ROWS)
    return replace(pace, rows=best, many=many, since=pace.since + 1, pause=0)


def _median(many: tuple[tuple[int, float], ...], fixed: float) -> float:
    """Return the median of seconds per snapshot row beyond ``fixed``, weighted by batches' rows."""
    left = sum(rows for rows, _ in many) / 2
    found = sorted(((seconds - fixed) / rows, rows) for rows, seconds in many)
    for per_row, rows in found:
        left -= rows
        if left <= 0:
            return per_row
    return found[-1][0]
