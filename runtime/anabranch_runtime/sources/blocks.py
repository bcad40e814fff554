"""Blocks: what every source gives. Tasks read them themselves from what has been planned
(``planned``): through Spark the rows would be copied four times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from anabranch_runtime.sources.feed import Piece
    from anabranch_runtime.sources.invalid import Decoded

#: What Spark is told that a source of ours gives; it never gets a row.
SCHEMA = "stream string, block binary"


@dataclass(frozen=True, slots=True)
class Block:
    """Tuples of one stream, and the rows that are not what it declares (``sources.invalid``)."""

    stream: str
    rows: pa.RecordBatch
    invalid: pa.RecordBatch | None = None


def read_pieces(pieces: Iterable[Piece]) -> Iterator[Block]:
    """The tuples that a task's share of a batch consists of.

    Raises:
        SourceError: they are not there (any more).
    """
    for piece in pieces:
        for rows, invalid in read_piece(piece):
            yield Block(piece.stream, rows, invalid)


def read_piece(piece: Piece) -> Iterator[Decoded]:
    """The rows of ``piece``, those that are invalid apart.

    Raises:
        SourceError: they are not there (any more).
    """
    # Imported when needed: most tasks read pieces of one kind.
    if piece.kind == "recording":
        from anabranch_runtime.sources.recording import read_recording

        yield from read_recording(piece)
    elif piece.kind == "redis":
        from anabranch_runtime.sources.redis_stream import read_entries

        yield from read_entries(piece)
    elif piece.kind == "landed":
        from anabranch_runtime.ingest.feed import read_rows

        yield from read_rows(piece)
    else:
        from anabranch_runtime.sources.files import read_file

        yield from read_file(piece)
