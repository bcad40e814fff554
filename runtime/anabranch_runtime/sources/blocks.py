"""Blocks: what every source gives.

A row of a source of Spark's is made a block: the name of a stream, and tuples of that stream (an
Arrow IPC stream of one record batch). What other sources have planned (``planned``), tasks read
themselves: through Spark it would be copied four times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from anabranch_runtime.sources.feed import Piece
    from anabranch_runtime.sources.invalid import Decoded

SCHEMA = "stream string, block binary"
_ARROW = pa.schema([("stream", pa.string()), ("block", pa.binary())])
#: Key of the metadata of a block of invalid rows.
_INVALID = b"invalid"


@dataclass(frozen=True, slots=True)
class Block:
    """Tuples of one stream, and the rows that are not what it declares (``sources.invalid``)."""

    stream: str
    rows: pa.RecordBatch
    invalid: pa.RecordBatch | None = None


def block_rows(stream: str, decoded: Decoded) -> Iterator[pa.RecordBatch]:
    """Rows of a source: ``decoded`` as blocks of ``stream``, the invalid rows as one of their
    own.
    """
    rows, invalid = decoded
    if rows.num_rows:
        yield _block_row(stream, rows)
    if invalid is not None:
        yield _block_row(stream, invalid.replace_schema_metadata({_INVALID: b"1"}))


def _block_row(stream: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pa.array([stream]), pa.array([encode_block(rows)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def read_blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[Block]:
    """The tuples that rows of sources hold."""
    for batch in batches:
        streams, blocks = batch.columns
        for i in range(batch.num_rows):
            rows = decode_block(blocks[i].as_buffer())
            stream = streams[i].as_py()
            if _INVALID in (rows.schema.metadata or {}):
                yield Block(stream, rows.select(rows.schema.names[:-1]).slice(0, 0), rows)
            else:
                yield Block(stream, rows)


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
    else:
        from anabranch_runtime.sources.files import read_file

        yield from read_file(piece)


def encode_block(rows: pa.RecordBatch) -> bytes:
    """An Arrow IPC stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_block(block: pa.Buffer) -> pa.RecordBatch:
    """The record batch of :func:`encode_block`, read in place."""
    with pa.ipc.open_stream(block) as reader:
        return reader.read_next_batch()
