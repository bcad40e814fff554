"""Blocks of tuples: the output of every source. Tasks read them directly from planned pieces
(``planned``), since Spark would copy rows four times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from redis.exceptions import RedisError

from anabranch_contract.connectors.kafka_sources import KAFKA
from anabranch_runtime.errors import EntriesLost, SourceError
from anabranch_runtime.sources.feed import Piece, PieceError
from anabranch_runtime.sources.invalid import Decoded

#: Number of low bits of a position that number the rows of a piece.
PIECE_BITS = 40


@dataclass(frozen=True, slots=True)
class Block:
    """Tuples of one stream, and rows that do not fit its declaration (``sources.invalid``).

    ``position`` is the position of the first row in the stream's input of the batch; positions
    increase from row to row and from block to block, across all tasks.
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
    """Yield the tuples of a task's pieces of input. ``here`` adapts a piece, such as its path, to
    this host.

    ``failed`` is called with unreadable pieces of feeds, some of whose tuples may have been yielded
    before; if ``failed`` is None, the first such piece raises its error.

    Raises:
        SourceError: a recording does not exist, or no longer exists.
    """
    together = list[Piece]()
    for piece in pieces:
        if piece.kind == KAFKA:
            together.append(here(piece))
            continue
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
    if together:
        yield from _read_topics(together, failed)


def _read_topics(
    pieces: Iterable[Piece], failed: Callable[[Piece, PieceError], None] | None
) -> Iterator[Block]:
    from anabranch_runtime.sources.kafka.reading import read_topics

    def report(piece: Piece, error: SourceError) -> None:
        if failed is None:
            raise error
        failed(piece, _problem(error))

    positions = dict[int, int]()
    for piece, (rows, invalid) in read_topics(pieces, report):
        position = positions.get(piece.number, _position(piece))
        positions[piece.number] = position + rows.num_rows
        yield Block(piece.stream, rows, invalid, position)


def _position(piece: Piece) -> int:
    """Return the position of a piece's first row in the input: from the piece's number, which
    follows the order of the feed's input, or from a recording's row number."""
    if piece.kind == "recording":
        return int(piece.where["first"])
    return (piece.number + 1) << PIECE_BITS


def _problem(error: Exception) -> PieceError:
    if isinstance(error, SourceError):
        missing = error.count if isinstance(error, EntriesLost) else None
        return PieceError(error.code, error.message, error.remedy, missing)
    return PieceError("unreadable", str(error) or repr(error))


def read_piece(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a piece of input, valid and invalid rows separately.

    Raises:
        SourceError: the rows do not exist, or no longer exist. The subclass ``EntriesLost``: some
            entries are missing, and all others have been yielded.
    """
    # Readers are imported only when used, since most tasks read pieces of one kind.
    if piece.kind == "recording":
        from anabranch_runtime.sources.recordings.recording import read_recording

        yield from read_recording(piece)
    elif piece.kind == "redis":
        from anabranch_runtime.sources.redis_stream import read_entries

        yield from read_entries(piece)
    elif piece.kind == KAFKA:
        from anabranch_runtime.sources.kafka.reading import read_offsets

        yield from read_offsets(piece)
    elif piece.kind == "version":
        from anabranch_runtime.sources.files.versions import read_version

        yield from read_version(piece)
    elif piece.kind == "table-file":
        from anabranch_runtime.sources.lake.reading import read_table_file

        yield from read_table_file(piece)
    elif piece.kind == "landed":
        from anabranch_runtime.sources.ingest.feed import read_rows

        yield from read_rows(piece)
    else:
        from anabranch_runtime.sources.files.reading import read_file

        yield from read_file(piece)
