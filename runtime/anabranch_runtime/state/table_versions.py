"""Versions of a table's rows: intervals of batches in which the rows arrived.

A batch reads rows of one version only, the newest one. So a version is an interval of batches, and
look-ups are restricted to the rows of one interval. Once a version has been read completely, the
next batch looks up its interval instead of the former one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TableVersions:
    """The current version of a table, which tuples look up, and the version that is being read.

    Attributes:
        number: current version; 0 until the first version has been read completely.
        first: first batch with its rows. ``until``: batch after its last one; None: no end yet.
        coming: version that is being read; 0: none.
        since: first batch of the rows of ``coming``.
        read_at: time at which ``number`` had been read, seconds since 1970; None: not yet.
    """

    number: int = 0
    first: int = 0
    until: int | None = None
    coming: int = 0
    since: int = 0
    read_at: float | None = None

    def begun(self, version: int, batch: int) -> TableVersions:
        """Begin to read ``version`` in ``batch``; it replaces ``coming``.

        >>> TableVersions(1).begun(2, 7)
        TableVersions(number=1, first=0, until=7, coming=2, since=7, read_at=None)

        Rows of the first version may have come with the stream's first batch:

        >>> TableVersions().begun(1, 1)
        TableVersions(number=0, first=0, until=None, coming=1, since=0, read_at=None)
        """
        if version <= max(self.number, self.coming):
            return self
        ends = batch if self.until is None and version > 1 else self.until
        return replace(self, until=ends, coming=version, since=batch if version > 1 else 0)

    def read_whole(self, version: int, now: float) -> TableVersions:
        """Make ``version`` the current one, read completely at ``now`` (seconds since 1970).

        >>> TableVersions(1).begun(2, 7).begun(3, 9).read_whole(3, 5.0)
        TableVersions(number=3, first=9, until=None, coming=0, since=0, read_at=5.0)
        """
        if version != self.coming:
            return self
        first = self.since if version > 1 else 0
        return TableVersions(version, first, read_at=now)

    @property
    def interval(self) -> tuple[int, int | None]:
        """Batches with looked-up rows: the first, and the one after the last (None: no end yet)."""
        return self.first, self.until

    def is_outdated(self, first: int, last: int) -> bool:
        """Whether no tuple looks up the table's rows of batches ``first`` to ``last`` any more."""
        dropped = self.until is not None and first >= self.until and last < self.since
        return last < self.first or dropped

    def side(self, batch: int) -> int:
        """Return a number for ``batch``'s version; only segments of one version are merged."""
        bounds = (self.first, self.first if self.until is None else self.until, self.since)
        return sum(batch >= bound for bound in bounds)
