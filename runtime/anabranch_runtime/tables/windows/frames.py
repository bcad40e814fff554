"""Sorted rows of partitions, and their window frames as ranges of row numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch_contract.queries.views import Excluded, Frame, FrameUnit
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.tables.windows import kernels


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows of a view with window functions, sorted within their partitions.

    Attributes:
        starts, ends: first row of each row's partition, and the row after the partition's last row.
        first_peers, end_peers: the same for the row's peers (rows with equal sort keys).
        keys: ascending words of the first sort key, without its word that marks NULL.
        known: whether that key is not NULL.
    """

    starts: Ints
    ends: Ints
    first_peers: Ints
    end_peers: Ints
    keys: Ints
    known: Bools

    @classmethod
    def of(cls, partitions: Ints, sorts: Ints) -> SortedRows:
        """Make sorted rows from the rows' ascending ``partitions``, and the words of sort keys."""
        count = len(partitions)
        first = np.ones(count, np.bool_)
        first[1:] = partitions[1:] != partitions[:-1]
        other = first.copy()
        other[1:] |= (sorts[1:] != sorts[:-1]).any(axis=1)
        nothing = sorts.shape[1] < 2
        keys = np.zeros(count, np.int64) if nothing else np.ascontiguousarray(sorts[:, 1])
        known = np.zeros(count, np.bool_) if nothing else sorts[:, 0] == 0
        return cls(*_runs(first), *_runs(other), keys, known)

    def frames(self, frame: Frame) -> tuple[Ints, Ints]:
        """Return the pieces of each row's window frame, in order: the first row of each piece, and
        the row after its last one, as matrices with a line per piece (both equal: an empty piece).
        """
        first, end = self._whole(frame)
        if frame.excluded is Excluded.NOTHING:
            return first[None], end[None]
        here = np.arange(len(first))
        # First excluded row at or before the current row, and end of the excluded rows.
        out, back = (here, here + 1)
        if frame.excluded is not Excluded.ROW:
            out, back = self.first_peers, self.end_peers
        out, back = np.clip(out, first, end), np.clip(back, first, end)
        if frame.excluded is not Excluded.TIES:
            return np.stack([first, back]), np.stack([out, end])
        own, after = np.clip(here, first, end), np.clip(here + 1, first, end)
        return np.stack([first, own, back]), np.stack([out, after, end])

    def _whole(self, frame: Frame) -> tuple[Ints, Ints]:
        """Return the limits of window frames without exclusions."""
        if frame.unit is FrameUnit.ROWS:
            here = np.arange(len(self.starts))
            first = self.starts if frame.start is None else here + frame.start
            end = self.ends if frame.end is None else here + frame.end + 1
        elif frame.unit is FrameUnit.GROUPS:
            first, end = self._groups(frame.start, frame.end)
        else:
            first = self._limit(frame.start, self.starts, self.first_peers, beyond=False)
            end = self._limit(frame.end, self.ends, self.end_peers, beyond=True)
        first = np.clip(first, self.starts, self.ends)
        return first, np.maximum(np.minimum(end, self.ends), first)

    def _groups(self, start: int | None, end: int | None) -> tuple[Ints, Ints]:
        """Return the limits of window frames of type GROUPS (groups of peers)."""
        begins = np.flatnonzero(self.first_peers == np.arange(len(self.starts)))
        limits = np.append(begins, len(self.starts))
        own = np.searchsorted(begins, self.first_peers)

        def moved(by: int) -> Ints:
            return limits[np.clip(own + by, 0, len(begins))]

        first = self.starts if start is None else moved(start)
        return first, self.ends if end is None else moved(end + 1)

    def _limit(self, limit: int | None, open_: Ints, peers: Ints, *, beyond: bool) -> Ints:
        if limit is None:
            return open_
        if limit == 0:
            return peers
        # Rows with NULL are at one end of the partition; the frame of such a row is its peers.
        changes = np.ones(len(peers), np.bool_)
        changes[1:] = (self.starts[1:] != self.starts[:-1]) | (self.known[1:] != self.known[:-1])
        starts, ends = _runs(changes)
        out = np.empty(len(peers), np.int64)
        kernels.limits(starts, ends, self.keys, limit, beyond, out)
        return np.where(self.known, out, peers)


def _runs(first: Bools) -> tuple[Ints, Ints]:
    """Return the limits of the run in which each row is; ``first`` marks first rows of runs."""
    at = np.flatnonzero(first)
    lengths = np.diff(at, append=len(first))
    return np.repeat(at, lengths), np.repeat(at + lengths, lengths)
