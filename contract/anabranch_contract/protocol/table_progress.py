"""Versions and rows of a table, as the runtime reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The rows of a table.

    Attributes:
        version: version that queries look up; 0: the first has not been read whole.
        reading: version that is being read; 0: none.
        read_at: seconds since 1970 at which ``version`` had been read whole; None: it has not.
        rows: stored rows of the version that is looked up; None: they can't be counted.
    """

    version: int = 0
    reading: int = 0
    read_at: float | None = None
    rows: int | None = None
