"""Maintained tables in the state: rounds of joined rows, and checkpoints of the tables.

A *round* has the joined rows of one batch. A table (the post-join part of a query) is updated by
the rounds one after the other, while further batches run. A *checkpoint* has the contents of some
tables after some round. So a table is restored from its last checkpoint and later rounds, and equal
rounds result in equal versions. Rounds that all checkpoints include are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anabranch_contract.protocol.activations import Activation, LeftRows
from anabranch_runtime.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Round:
    """Joined rows of a batch, and the other inputs of the tables' versions after it.

    Attributes:
        rows: the rows; ``Segment.store`` is the join (a query, or a part of an outer join).
        feeds: join whose rows several queries share -> these queries.
        clocks: outer join with a stream -> watermark of this partner, in microseconds; joins
            without an entry have no clock.
        missing: query -> counts of its withheld results as of the batch, if any were ever withheld.
        now: the latest time of this and earlier batches, in microseconds since 1970; 0 if no view
            gains or loses rows just by the passing of time.
    """

    batch: int
    rows: tuple[Segment, ...]
    feeds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    clocks: dict[str, int] = field(default_factory=dict)
    missing: dict[str, Activation] = field(default_factory=dict)
    now: int = 0


@dataclass(frozen=True, slots=True)
class HeldTable:
    """The last checkpoint of a maintained table.

    Attributes:
        pack: the checkpoint's pack. ``next``: first round that the checkpoint does not include.
    """

    pack: str
    next: int


@dataclass(frozen=True, slots=True)
class TableCounts:
    """Counts of a maintained table's output.

    Attributes:
        shown: number of present rows; of an outer join without a view, rows emitted so far.
        version: the last version with changes; -1: none. ``written``: number of changes written.
        left: of an outer join, counts of its left rows that can get no more partners.
    """

    shown: int = 0
    version: int = -1
    written: int = 0
    left: LeftRows | None = None


@dataclass(frozen=True, slots=True)
class TableCost:
    """Measured cost of a table since the start of the run, which the state does not keep.

    Attributes: as in ``TableReport``.
    """

    added: int = 0
    seconds: float = 0.0
    bytes: int = 0
    common: str = ""


@dataclass(frozen=True, slots=True)
class TablesState:
    """All maintained tables of a pipeline.

    Attributes:
        rounds: rounds that some checkpoint does not include, in order.
        checkpoints: the checkpoints that ``held`` names.
        held: query -> its last checkpoint, as long as its table is maintained.
        counts: query -> output counts of its table, also of ended queries.
        now: the latest time of a batch so far, if a round has needed it (``Round.now``).
    """

    rounds: tuple[Round, ...] = ()
    checkpoints: tuple[Segment, ...] = ()
    held: dict[str, HeldTable] = field(default_factory=dict)
    counts: dict[str, TableCounts] = field(default_factory=dict)
    now: int = 0

    @property
    def segments(self) -> Iterator[Segment]:
        """Segments of rounds and checkpoints of tables, whose packs are needed."""
        yield from self.checkpoints
        for one in self.rounds:
            yield from one.rows

    @property
    def bytes(self) -> int:
        """Bytes of the rounds and checkpoints of tables."""
        return sum(segment.bytes for segment in self.segments)
