"""Positions in a PostgreSQL server's log at which landed batches end."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from anabranch_runtime.sources.ingest.landing import Landed


@dataclass(frozen=True, slots=True)
class Position:
    """The end of a landed batch in the PostgreSQL server's log.

    Attributes:
        lsn: end of the last transaction that has landed completely.
        system: id of the server's data. ``table``: id of the table.
        xid, done: the transaction after ``lsn``, and how many of its changes have landed; 0: none.
        committed: time of the batch's first commit (of a copy: its start), microseconds since 1970.
        copied: whether the batch is a copy of the table.
        lost: why changes before the position are missing; empty: none are.
    """

    lsn: int
    system: str
    table: int
    xid: int = 0
    done: int = 0
    committed: int = 0
    copied: bool = False
    lost: str = ""

    @staticmethod
    def of(landed: Landed) -> Position:
        """Return the position in PostgreSQL's log of a landed batch."""
        return Position(**json.loads(landed.offsets))

    @property
    def text(self) -> str:
        """The position as text: the offsets of a landed batch (:class:`Landed`)."""
        return json.dumps(asdict(self))
