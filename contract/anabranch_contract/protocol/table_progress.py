"""The runtime's report of a table: its versions and number of rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableProgress:
    """Versions and number of rows of a table.

    Attributes:
        version: version that queries look up; 0: none, the first has not been read completely.
        reading: version that is being read at present; 0: none.
        read_at: seconds since 1970 at which ``version`` had been read completely; None: never.
        rows: number of stored rows of ``version``; None: they can't be counted.
    """

    version: int = 0
    reading: int = 0
    read_at: float | None = None
    rows: int | None = None
