"""Feed: the input of one stream with exact offsets, read by the multiplexed source (``feeds``).

Offsets are JSON values that only the feed itself interprets. They are exact: the input between two
offsets is fixed once it has been planned, and reading it again gives the same rows or an error. An
error concerns one piece of one feed; ``batch_input`` handles it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from anabranch_contract.connectors.sources import OnLoss
from anabranch_contract.protocol.intake import SnapshotProgress
from anabranch_runtime.sources.loads import Load

if TYPE_CHECKING:  # pydantic is large, and tasks read no registrations
    from anabranch_contract.connectors.kafka_sources import KafkaOptions
    from anabranch_contract.connectors.sources import RedisStreamOptions
    from anabranch_contract.protocol.registered import StreamRecord


@dataclass(frozen=True, slots=True)
class Waiting:
    """Unread input of a feed: estimated rows, and seconds for which the oldest has waited.

    Attributes:
        snapshot: progress of the snapshot that is being read; None: no snapshot is being read.
    """

    rows: int
    seconds: float = 0.0
    snapshot: SnapshotProgress | None = None


#: Code of an error that may be temporary -> number of trials before a stream that skips unreadable
#: input skips the piece. After errors with other codes, the piece is skipped at once.
PATIENT = {"unreadable-file": 3.0, "unreadable": 3.0, "no-server": inf, "bad-stream": inf}


@dataclass(frozen=True, slots=True)
class PieceError:
    """Error in reading a piece of input.

    Attributes:
        missing: number of lost entries of a piece whose other entries have been read; None: no
            entry of the piece has been read.
    """

    code: str
    message: str
    remedy: str = ""
    missing: int | None = None


@dataclass(frozen=True, slots=True)
class UnreadNote:
    """A task's report that it could not read a piece of input, given by its number."""

    piece: int
    why: PieceError


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a batch that one task reads: stream, approximate rows, and exact range.

    Attributes:
        kind: determines the reader (``blocks``). ``where``: arguments of the reader.
        columns: names and SQL types; empty if the reader finds them in the input.
        feed: the id of its feed; empty for a recording.
        source: the file or key that contains the piece. ``unit``, ``first``, ``last``: the range of
            the piece within it (``UnreadPiece``).
        before: the feed's offset within ``source`` at which the piece begins.
        gone: error, found by planning, that makes the piece unreadable for ever.
        number: number of the piece, unique in its batch.
        optional: columns that are NULL where the input lacks them.
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
    optional: frozenset[str] = frozenset()


class Feed(Protocol):
    """A feed, as the driver plans its input; tasks read it by ``blocks.read_pieces``."""

    @property
    def id(self) -> str:
        """Key of the feed's offset; a stream registered again has a feed with another id."""

    @property
    def record(self) -> StreamRecord:
        """The registered stream that the feed reads."""

    @property
    def on_loss(self) -> OnLoss:
        """Policy of the stream for input that is lost before it was read."""

    def look(self, offset: Any) -> None:
        """Check whether the feed's planned input after ``offset`` seems readable.

        Raises:
            SourceError: the input can't be read.
        """

    def begin(self) -> Any:
        """Return the feed's first offset if it must be fixed before input is read; otherwise None.

        Raises:
            SourceError: as :meth:`waiting`.
        """

    def waiting(self, offset: Any) -> Waiting:
        """Return the amount of the feed's input after ``offset`` (None: nothing is read yet).

        Raises:
            SourceError: the feed can't be read for now, or some of its unread input is lost.
        """

    def load_end(self, offset: Any, load: Load) -> Any:
        """Return the offset at which ``load`` (``sources.loads``), which includes the input after
        ``offset``, ends; None while more input may arrive for the load.

        Raises:
            SourceError: as :meth:`waiting`.
        """

    def has_reached(self, offset: Any, end: Any) -> bool:
        """Whether a feed's ``offset`` is at or after ``end``, where a load ends."""

    def is_apart(self, offset: Any, load: Load) -> bool:
        """Whether the input after ``offset`` arrived so much later than earlier input that it
        belongs to the next load, although the end of ``load`` is not fixed yet."""

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """Return the feed's offset about ``rows`` rows after ``offset``, at most ``end``, and at
        least one entry after ``offset`` if there is one.

        Raises:
            SourceError: as :meth:`waiting`.
        """

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Divide the input between two offsets into ``parts`` or more pieces of similar size.

        If some of the input is lost or can't be examined, pieces are returned nevertheless; then
        reading them fails.
        """

    def before(self, end: Any, pieces: Sequence[Piece]) -> Any:
        """Return the greatest offset, at most ``end``, that precedes all ``pieces`` of the feed."""


class CommonFeed:
    """Methods that most feeds have in common. An offset is a file's number and a position in it."""

    __slots__ = ()

    def begin(self) -> Any:
        """Return no offset: nothing must be fixed before input is read."""
        return

    def has_reached(self, offset: Any, end: Any) -> bool:
        """Whether all input before ``end`` has been read."""
        return list(offset or (0, 0)) >= list(end)

    def is_apart(self, offset: Any, load: Load) -> bool:
        """Return False: the end of a load is known when the load begins."""
        return False

    def before(self, end: Any, pieces: Sequence[Piece]) -> Any:
        """Return the offset at which the first of ``pieces`` begins."""
        return min((piece.before for piece in pieces), default=end)


class EntryFeed(CommonFeed):
    """Methods of feeds of entries. An offset has the JSON list of a position per key or partition.

    Attributes:
        NUMBER: index, in a position, of the number of the next entry to read.
    """

    __slots__ = ()
    NUMBER: ClassVar[int]
    options: KafkaOptions | RedisStreamOptions

    @property
    def on_loss(self) -> OnLoss:
        """The option for entries that were lost unread."""
        return self.options.on_loss

    def look(self: Feed, offset: Any) -> None:
        """Check that the server answers and, unless losses are skipped, has the unread entries."""
        self.waiting(offset)

    def before(self, end: Any, pieces: Sequence[Piece]) -> Any:
        """Return ``end`` with the positions of ``pieces`` moved back to where these begin."""
        first: dict[str, Any] = {}
        for piece in sorted(pieces, key=lambda piece: piece.before[self.NUMBER]):
            first.setdefault(piece.source, piece.before)
        return {**end, **first}


def feed_id(record: StreamRecord, made_of: object) -> str:
    """Return a feed's id: the stream's name, a digest of the registration and of ``made_of`` (the
    source), and the version of a table. So after a stream's deletion and new registration, or for a
    table's new version, reading starts at the beginning."""
    digest = hashlib.sha256(repr((record.registration, made_of)).encode()).hexdigest()[:12]
    version = f".{record.version}" if record.version > 1 else ""
    return f"{record.name}-{digest}{version}"


def version_of(feed: str) -> tuple[str, int]:
    """Split a feed's id into the id of its first version and the version number.

    >>> version_of("R-0123456789ab.3"), version_of("a.b-0123456789ab")
    (('R-0123456789ab', 3), ('a.b-0123456789ab', 1))
    """
    first, _, version = feed.rpartition(".")
    return (first, int(version)) if version.isdecimal() and first else (feed, 1)
