"""Versions of a table's rows: intervals of batches of arrival.

A batch brings rows of one version only, the newest that is being read. So a version is an interval
of batches, and tuples look up the rows of one interval: when a version has been read whole, the
next batch looks up its interval instead of the former one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TableVersions:
    """The version that tuples look up, and the one that is being read.

    Attributes:
        number: version that is looked up; 0: the first has not been read whole.
        first: least batch of its rows. ``until``: batch before which they end; None: they go on.
        coming: version that is being read; 0: none.
        since: least batch of the rows of ``coming``.
        read_at: seconds since 1970 at which ``number`` had been read whole; None: it has not.
    """

    number: int = 0
    first: int = 0
    until: int | None = None
    coming: int = 0
    since: int = 0
    read_at: float | None = None

    def begun(self, version: int, batch: int) -> TableVersions:
        """With ``version`` being read from ``batch`` on, in the place of one not yet whole.

        >>> TableVersions(1).begun(2, 7)
        TableVersions(number=1, first=0, until=7, coming=2, since=7, read_at=None)
        """
        if version <= max(self.number, self.coming):
            return self
        ends = batch if self.until is None and version > 1 else self.until
        return replace(self, until=ends, coming=version, since=batch)

    def read_whole(self, version: int, now: float) -> TableVersions:
        """With ``version`` looked up from the next batch on, ``now`` being seconds since 1970.

        >>> TableVersions(1).begun(2, 7).begun(3, 9).read_whole(3, 5.0)
        TableVersions(number=3, first=9, until=None, coming=0, since=0, read_at=5.0)
        """
        if version != self.coming:
            return self
        first = self.since if version > 1 else 0
        return TableVersions(version, first, read_at=now)

    @property
    def interval(self) -> tuple[int, int | None]:
        """Batches whose rows are looked up: the first, and the one before which they end."""
        return self.first, self.until

    def is_outdated(self, first: int, last: int) -> bool:
        """Whether rows of the batches from ``first`` to ``last`` are looked up never again."""
        dropped = self.until is not None and first >= self.until and last < self.since
        return last < self.first or dropped

    def side(self, batch: int) -> int:
        """Number of the version's interval that ``batch`` is in, from 0; rows are merged within
        one.
        """
        bounds = (self.first, self.first if self.until is None else self.until, self.since)
        return sum(batch >= bound for bound in bounds)
