"""A feed: one stream's input as the multiplexed source reads it, with exact offsets.

Offsets are JSON values that a feed alone understands. They are exact: what lies between two of
them is fixed once it has been planned, and reading it again gives the same rows or an error.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from anabranch_runtime.control import StreamRecord


@dataclass(frozen=True, slots=True)
class Waiting:
    """What has arrived but was not read yet: rows (estimated), and how long the oldest waits."""

    rows: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a batch that one task reads: whose, about how many rows, and what exactly.

    Attributes:
        kind: who reads it (``blocks``). ``where``: for them to understand.
        columns: names and SQL types, where they are not known otherwise.
    """

    kind: str
    stream: str
    columns: tuple[tuple[str, str], ...]
    rows: int
    where: dict[str, Any]


class Feed(Protocol):
    """The planning half of a feed; ``blocks.read_pieces`` is the reading half, which tasks run."""

    @property
    def id(self) -> str:
        """The key of its offset: another for a stream that is defined otherwise."""

    @property
    def record(self) -> StreamRecord:
        """The stream."""

    @property
    def lost(self) -> int:
        """Entries that were removed before they were read, where that is allowed."""

    def begin(self) -> Any:
        """The offset to start from, where that must be fixed before anything is read; or None.

        Raises:
            SourceError: as :meth:`waiting`.
        """

    def waiting(self, offset: Any) -> Waiting:
        """What can be read after ``offset`` (None: nothing has been read yet).

        Raises:
            SourceError: the feed can't be read for now, or something is gone that it should read.
        """

    def advance(self, offset: Any, rows: int) -> Any:
        """The offset about ``rows`` rows on, at least one entry if one waits.

        Raises:
            SourceError: as :meth:`waiting`.
        """

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """What lies between two offsets, in pieces of about equal size, ``parts`` or more of them.

        Raises:
            SourceError: it is not there any more.
        """


def feed_id(record: StreamRecord, made_of: object) -> str:
    """The offset's key: the stream's name, and a digest of what its source is made of."""
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]
    return f"{record.name}-{digest}"
