"""The input of a batch as ranges of files, entries and rows.

Rations are set per batch (``semantics.md``, "Rations"). The results can be recomputed from the
input, the batch of each row, and the ledger of rations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from anabranch_contract.codec import Row

#: The version of :class:`BatchReads` that this release writes.
VERSION = 1


class Unit(StrEnum):
    """The unit in which a range of a stream's input is counted: rows, bytes of a file, entries of a
    Redis Stream, or offsets of a Kafka partition."""

    ROWS = "rows"
    BYTES = "bytes"
    ENTRIES = "entries"
    OFFSETS = "offsets"


class ReadRange(Row, frozen=True):
    """A part of a stream's input that a batch has read.

    Attributes:
        source: the path of a file, the key of a Redis Stream, ``<topic>/<partition>``, or
            ``<source>/<number>`` for a batch that an ingest query has landed on disk.
        first, last: ``ROWS``: row numbers from 0, ``last`` exclusive. ``BYTES``: the lines that
            begin at byte offsets from ``first``, ``last`` exclusive. ``OFFSETS``: the committed
            messages at offsets from ``first``, ``last`` exclusive. ``ENTRIES``: entry ids,
            ``first`` exclusive, ``last`` inclusive. ``last`` None: to the end.
    """

    stream: str
    source: str
    unit: Unit
    first: int | str
    last: int | str | None

    def joined(self, following: ReadRange) -> ReadRange | None:
        """Return both ranges of input as one if ``following`` begins where this ends, else None."""
        one, other = (self.stream, self.source), (following.stream, following.source)
        if one != other or self.last is None or self.last != following.first:
            return None
        return ReadRange(self.stream, self.source, self.unit, self.first, following.last)


@dataclass(frozen=True, slots=True)
class BatchReads:
    """The input that a batch has read, and the event-time limits for rejecting its rows.

    Attributes:
        ranges: in reading order, adjacent ranges merged; without unreadable input.
        before: stream -> number of tuples read by earlier batches, rejected ones included.
        watermarks: stream -> microseconds; a row with a lower event time was late.
        newest_allowed: stream -> microseconds; rows with a greater event time were rejected.
    """

    batch: int
    ranges: tuple[ReadRange, ...]
    before: dict[str, int] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    newest_allowed: dict[str, int] = field(default_factory=dict)
    version: int = VERSION
