"""The state of the sources of streams: waiting rows, unread pieces, failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from anabranch_contract.body import Body
from anabranch_contract.codec import Message


class SourceState(StrEnum):
    """The state of a stream's source: not opened yet; read; failed, and tried again; or without a
    runtime that could read it.
    """

    NOT_TRIED = "not tried"
    READING = "reading"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SourceStatus(Message):
    """The runtime's report of a stream's source.

    Attributes:
        registration: of the stream; a report with another one is out of date.
        error: why it can't be read.
        since: Unix time since when this holds.
    """

    registration: str
    state: SourceState = SourceState.NOT_TRIED
    error: str | None = None
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class UnreadPiece(Body):
    """A part of a stream's input that could not be read.

    Attributes:
        source: path of the file, or key of the Redis Stream.
        unit: what ``first`` and ``last`` count: ``rows`` or ``bytes`` of a file (``[first, last)``;
            ``last`` None: to its end), or ``entries`` by their ids (after ``first``, up to
            ``last``).
        rows: the number of rows; None: unknown.
        entries: of a Redis Stream, the number of lost entries; None: unknown.
        code, reason: why it could not be read.
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
        """This piece and ``after`` as one; None unless that is what follows in the same file, and
        could not be read for the same reason.
        """
        same = (self.source, self.unit, self.code) == (after.source, after.unit, after.code)
        follows = self.last is not None and self.last == after.first
        if self.unit == "entries" or not (same and follows):
            return None
        known = self.rows is not None and after.rows is not None
        rows = (self.rows or 0) + (after.rows or 0) if known else None
        return replace(self, last=after.last, rows=rows)


@dataclass(frozen=True, slots=True)
class Unread(Body):
    """The part of a stream's input that was not read and never will be.

    Attributes:
        pieces: how many parts of files or ranges of entries.
        lost: known lost entries, or parts of files.
        last: the newest :data:`RECORDED` of the pieces, oldest first.
    """

    pieces: int = 0
    lost: int = 0
    last: tuple[UnreadPiece, ...] = ()

    def and_also(self, more: Sequence[UnreadPiece]) -> Unread:
        """With ``more`` pieces recorded; one that continues a piece of a file lengthens that."""
        pieces, lost, last = self.pieces, self.lost, list(self.last)
        for piece in more:
            longer = ((i, known.joined(piece)) for i, known in enumerate(last))
            at, found = next(((i, p) for i, p in longer if p is not None), (-1, None))
            if found is not None:
                last[at] = found
                continue
            pieces += 1
            lost += piece.entries or 0 if piece.unit == "entries" else 1
            last.append(piece)
        return Unread(pieces, lost, tuple(last[-RECORDED:]))


#: How many records of pieces that could not be read are kept per stream.
RECORDED = 20


@dataclass(frozen=True, slots=True)
class StreamIntake:
    """How the input of one stream stands.

    Attributes:
        waiting: rows that have arrived and were not read yet (an estimate).
        seconds: how long the oldest of them has been waiting.
        lost: as in ``unread``.
        error: why the stream is not read at present; None: it is.
        unread: what could not be read and was recorded.
    """

    waiting: int = 0
    seconds: float = 0.0
    lost: int = 0
    error: str | None = None
    unread: Unread = Unread()


@dataclass(frozen=True, slots=True)
class Intake(Message):
    """How the input of the streams stands that the runtime reads itself.

    ``planned`` is the Unix time at which the last batch was planned that brings rows of theirs.
    """

    streams: dict[str, StreamIntake] = field(default_factory=dict)
    planned: float = 0.0
