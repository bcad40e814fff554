"""The state of the sources of streams: waiting rows, unread pieces, failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from anabranch_contract.body import Body
from anabranch_contract.codec import Message
from anabranch_contract.protocol.table_progress import TableProgress


class SourceState(StrEnum):
    """The state of a stream's source: not opened yet; being read; failed, and tried again later; or
    not read because no runtime is running."""

    NOT_TRIED = "not tried"
    READING = "reading"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SourceStatus(Message):
    """The runtime's report of a stream's source.

    Attributes:
        registration: the stream's registration; a report with a different one is out of date.
        error: reason why the source can't be read.
        since: Unix time at which the source entered this state.
        behind: unread bytes of a database's replication log; None: unknown, or no database.
        new_columns: columns that were added to the database's table and that the stream lacks.
    """

    registration: str
    state: SourceState = SourceState.NOT_TRIED
    error: str | None = None
    since: float = 0.0
    behind: int | None = None
    new_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnreadPiece(Body):
    """A part of a stream's input that could not be read.

    Attributes:
        source: path of the file, key of the Redis Stream, or ``<topic>/<partition>``.
        unit: unit of ``first`` and ``last``: ``rows`` or ``bytes`` of a file, ``entries`` by their
            ids, or ``offsets`` of a partition.
        first: first row, byte or offset of the piece; of entries, the id before the piece.
        last: end of the piece, exclusive; of entries, the last id; None: to the end of the file.
        rows: the number of rows; None: unknown.
        entries: number of lost entries of a Redis Stream or messages of a topic; None: unknown.
        code: code of the reason.
        reason: why it could not be read, as a sentence.
        batch: the first batch that should have read it, or a part of it.
    """

    source: str
    unit: str
    first: int | str
    last: int | str | None
    rows: int | None
    entries: int | None
    code: str
    reason: str
    batch: int

    def joined(self, after: UnreadPiece) -> UnreadPiece | None:
        """Return this piece and ``after`` as one, if ``after`` is the next part of the same file
        and could not be read for the same reason; else None."""
        same = (self.source, self.unit, self.code) == (after.source, after.unit, after.code)
        follows = self.last is not None and self.last == after.first
        if self.unit in ("entries", "offsets") or not (same and follows):
            return None
        known = self.rows is not None and after.rows is not None
        rows = (self.rows or 0) + (after.rows or 0) if known else None
        return replace(self, last=after.last, rows=rows)


@dataclass(frozen=True, slots=True)
class Unread(Body):
    """The parts of a stream's input that were not read and never will be.

    Attributes:
        pieces: number of pieces: parts of files, or ranges of entries or offsets.
        lost: number of lost entries of a Redis Stream or messages of a topic as far as known, or of
            lost parts of files.
        last: the newest pieces, at most 20, oldest first.
    """

    pieces: int = 0
    lost: int = 0
    last: tuple[UnreadPiece, ...] = ()

    def and_also(self, more: Sequence[UnreadPiece]) -> Unread:
        """Return this record with further unread pieces, ``more``. A piece that continues a
        recorded piece of the same file is merged with it."""
        pieces, lost, last = self.pieces, self.lost, list(self.last)
        for piece in more:
            longer = ((i, known.joined(piece)) for i, known in enumerate(last))
            at, found = next(((i, p) for i, p in longer if p is not None), (-1, None))
            if found is not None:
                last[at] = found
                continue
            pieces += 1
            lost += piece.entries or 0 if piece.unit in ("entries", "offsets") else 1
            last.append(piece)
        return Unread(pieces, lost, tuple(last[-RECORDED:]))


#: Number of unread pieces recorded per stream.
RECORDED = 20


@dataclass(frozen=True, slots=True)
class SnapshotProgress(Body):
    """Progress of reading the rows that a table has at first, before its later changes.

    Attributes:
        rows: number of rows of the table.
        read: number of the table's rows that are in the batches planned so far.
    """

    rows: int
    read: int


@dataclass(frozen=True, slots=True)
class StreamIntake:
    """The state of one stream's input.

    Attributes:
        waiting: estimated number of rows that have arrived and have not been read yet.
        seconds: seconds for which the oldest of these rows has waited.
        lost: as in ``unread``.
        error: reason why the stream can't be read at present; None: it is being read.
        unread: the recorded pieces that could not be read.
        snapshot: progress of reading a snapshot; None: no snapshot is being read.
    """

    waiting: int = 0
    seconds: float = 0.0
    lost: int = 0
    error: str | None = None
    unread: Unread = Unread()
    snapshot: SnapshotProgress | None = None


@dataclass(frozen=True, slots=True)
class InputProgress:
    """State of the runtime's input from all streams.

    Attributes:
        intake: stream -> state of its input, for streams that the runtime reads itself or that
            can't be read.
        row_limit: maximum number of rows of these streams in the next batch; None: no limit.
        exhausted: whether every recorded source has been read to its end.
        sites: the sites of the last batch's executors; empty if tasks share a state directory.
        latest_since: stream with ``latest`` -> first batch from which on its tuples replace
            earlier tuples of their key.
        tables: table -> its versions and its number of rows.
    """

    intake: dict[str, StreamIntake] = field(default_factory=dict)
    row_limit: int | None = None
    exhausted: bool = False
    sites: tuple[str, ...] = ()
    latest_since: dict[str, int] = field(default_factory=dict)
    tables: dict[str, TableProgress] = field(default_factory=dict)
