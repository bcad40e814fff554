"""A feed: one stream's input as the multiplexed source reads it, with exact offsets.

Offsets are JSON values that a feed alone understands. They are exact: the input between two of them
is fixed once it has been planned, and reading it again gives the same rows or an error. An error
concerns one piece of one feed; ``batch_input`` handles it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from anabranch_contract.connectors.sources import OnLoss
from anabranch_runtime.sources.loads import Load

if TYPE_CHECKING:  # pydantic is large, and tasks read no registrations
    from anabranch_contract.protocol.registered import StreamRecord


@dataclass(frozen=True, slots=True)
class Waiting:
    """Input that was not read yet: rows (estimated), and how long the oldest waits."""

    rows: int
    seconds: float = 0.0


#: Codes of errors that may pass -> trials after which a stream that skips unreadable input gives up
#: all the same; with other codes it gives up at once.
PATIENT = {"unreadable-file": 3.0, "unreadable": 3.0, "no-server": inf, "bad-stream": inf}


@dataclass(frozen=True, slots=True)
class PieceError:
    """Error in reading a piece.

    Attributes:
        missing: number of lost entries of a piece that has been read otherwise; None: the piece has
            not been read.
    """

    code: str
    message: str
    remedy: str = ""
    missing: int | None = None


@dataclass(frozen=True, slots=True)
class UnreadNote:
    """A task's note of a piece, by number, that it could not read."""

    piece: int
    why: PieceError


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a batch that one task reads: stream, approximate rows, and exact range.

    Attributes:
        kind: its reader (``blocks``). ``where``: arguments of the reader.
        columns: names and SQL types, where they are not known otherwise.
        feed: the id of its feed; empty for a recording.
        source: the file or key that it is a part of; ``unit``, ``first``, ``last``: which part
            (``UnreadPiece``).
        before: the offset within ``source`` at which it begins, as its feed has it.
        gone: why it can't be read and never will be, where planning knows that already.
        number: unique among the pieces of its batch.
    """

    kind: str
    stream: str
    columns: tuple[tuple[str, str], ...]
    rows: int
    where: dict[str, Any]
    feed: str = ""
    source: str = ""
    unit: str = "rows"
    first: int | str = 0
    last: int | str | None = None
    before: Any = None
    gone: PieceError | None = None
    number: int = -1


class Feed(Protocol):
    """The planning half of a feed; ``blocks.read_pieces`` is the reading half, which tasks run."""

    @property
    def id(self) -> str:
        """The key of its offset: another for a stream that is defined otherwise."""

    @property
    def record(self) -> StreamRecord:
        """The stream."""

    @property
    def on_loss(self) -> OnLoss:
        """The policy for input that can't be read any more."""

    def look(self, offset: Any) -> None:
        """Check whether the input after ``offset``, which has been planned before, may be readable.

        Raises:
            SourceError: it can't be.
        """

    def begin(self) -> Any:
        """The offset to start from, where that must be fixed before anything is read; or None.

        Raises:
            SourceError: as :meth:`waiting`.
        """

    def waiting(self, offset: Any) -> Waiting:
        """The input that can be read after ``offset`` (None: nothing has been read yet).

        Raises:
            SourceError: the feed can't be read for now, or something is gone that it should read.
        """

    def load_end(self, offset: Any, load: Load) -> Any:
        """The end of the load (``sources.loads``) that input after ``offset`` belongs to; None
        while more input may belong to it.

        Raises:
            SourceError: as :meth:`waiting`.
        """

    def has_reached(self, offset: Any, end: Any) -> bool:
        """Whether a load that ends at ``end`` has been read at ``offset``."""

    def is_apart(self, offset: Any, load: Load) -> bool:
        """Whether input after ``offset`` came so long after all before it that it is of another
        load than ``load``, though its end was not fixed.
        """

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """The offset about ``rows`` rows on, at least one entry if one waits, not beyond ``end``.

        Raises:
            SourceError: as :meth:`waiting`.
        """

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """The input between two offsets, in pieces of about equal size, ``parts`` or more of them.

        Where something of it is not there any more, or can't be looked at, the pieces are such
        that reading them fails.
        """

    def before(self, end: Any, pieces: Sequence[Piece]) -> Any:
        """The greatest offset up to ``end`` before which none of ``pieces`` lies."""


def feed_id(record: StreamRecord, made_of: object) -> str:
    """The offset's key: the stream's name, a digest of its registration and its source, and the
    version of a table. A stream that is deleted and registered again, or a table that is to be read
    again, is read from the beginning.
    """
    digest = hashlib.sha256(repr((record.registration, made_of)).encode()).hexdigest()[:12]
    version = f".{record.version}" if record.version > 1 else ""
    return f"{record.name}-{digest}{version}"


def version_of(feed: str) -> tuple[str, int]:
    """The id of a feed's first version, and its version.

    >>> version_of("R-0123456789ab.3"), version_of("a.b-0123456789ab")
    (('R-0123456789ab', 3), ('a.b-0123456789ab', 1))
    """
    first, _, version = feed.rpartition(".")
    return (first, int(version)) if version.isdecimal() and first else (feed, 1)
