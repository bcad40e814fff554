"""Blocks: the output of every source. Tasks read them themselves from planned pieces (``planned``):
through Spark the rows would be copied four times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from redis.exceptions import RedisError

from anabranch_runtime.errors import EntriesLost, SourceError
from anabranch_runtime.sources.feed import Piece, PieceError
from anabranch_runtime.sources.invalid import Decoded

#: Bits of a position that count the rows of one piece.
PIECE_BITS = 40
#: The schema that Spark is given for a source of ours; it never gets a row.
SCHEMA = "stream string, block binary"


@dataclass(frozen=True, slots=True)
class Block:
    """Tuples of one stream, and rows that do not fit its declaration (``sources.invalid``).

    ``position`` is the place of the first row in the batch's part of the stream: a number that
    grows from row to row and from block to block, on any tasks.
    """

    stream: str
    rows: pa.RecordBatch
    invalid: pa.RecordBatch | None = None
    position: int = 0


def read_pieces(
    pieces: Iterable[Piece],
    failed: Callable[[Piece, PieceError], None] | None = None,
    here: Callable[[Piece], Piece] = lambda piece: piece,
) -> Iterator[Block]:
    """The tuples of a task's share of a batch. ``here`` gives the local form of each piece on this
    host.

    ``failed`` is called with unreadable pieces of feeds, some of whose tuples may have been given;
    None: the first such piece is an error.

    Raises:
        SourceError: a recording is not there (any more).
    """
    for piece in pieces:
        try:
            position = _position(piece)
            for rows, invalid in read_piece(here(piece)):
                yield Block(piece.stream, rows, invalid, position)
                position += rows.num_rows
        except MemoryError:
            raise
        except (SourceError, OSError, pa.ArrowException, RedisError) as error:
            if failed is None or not piece.feed:
                raise
            failed(piece, _problem(error))


def _position(piece: Piece) -> int:
    """The position of a piece's first row: pieces of a feed are numbered in the order of its input,
    pieces of a recording contain their row numbers.
    """
    if piece.kind == "recording":
        return int(piece.where["first"])
    return (piece.number + 1) << PIECE_BITS


def _problem(error: Exception) -> PieceError:
    if isinstance(error, SourceError):
        missing = error.count if isinstance(error, EntriesLost) else None
        return PieceError(error.code, error.message, error.remedy, missing)
    return PieceError("unreadable", str(error) or repr(error))


def read_piece(piece: Piece) -> Iterator[Decoded]:
    """The rows of ``piece``, with invalid rows beside the valid ones.

    Raises:
        SourceError: they are not there (any more); or, as ``EntriesLost``, some are missing, and
            all others have been given.
    """
    # Imported when needed: most tasks read pieces of one kind.
    if piece.kind == "recording":
        from anabranch_runtime.sources.recordings.recording import read_recording

        yield from read_recording(piece)
    elif piece.kind == "redis":
        from anabranch_runtime.sources.redis_stream import read_entries

        yield from read_entries(piece)
    elif piece.kind == "landed":
        from anabranch_runtime.sources.ingest.feed import read_rows

        yield from read_rows(piece)
    else:
        from anabranch_runtime.sources.files.reading import read_file

        yield from read_file(piece)
