"""Blocks: what every source gives, and all that ever crosses Spark.

A row of a source is a block: the name of a stream, and either tuples of that stream (an Arrow IPC
stream of one record batch) or a *reference* to tuples that the task reads itself. Data that is in
a file which every task can map travels by reference: through Spark it would be copied four times.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch_runtime.sources.decode import Decoded
    from anabranch_runtime.sources.feed import Piece

SCHEMA = "stream string, block binary"
_ARROW = pa.schema([("stream", pa.string()), ("block", pa.binary())])
#: An IPC stream begins with 0xFFFFFFFF, so no block of data is taken for a reference.
_REFERENCE = b"ANBREF1"
#: The same for a piece of a feed.
_PIECE = b"ANBREF2"
#: Key of a block's metadata.
_INVALID = b"invalid"


@dataclass(frozen=True, slots=True)
class Block:
    """Tuples of one stream."""

    stream: str
    rows: pa.RecordBatch
    #: How many more there were that are not what the stream declares.
    invalid: int = 0


def block_row(stream: str, rows: pa.RecordBatch, invalid: int = 0) -> pa.RecordBatch:
    """One row of a source: ``rows`` as a block of ``stream``, and how many more were invalid."""
    if invalid:
        rows = rows.replace_schema_metadata({_INVALID: str(invalid)})
    return _row(stream, encode_block(rows))


def reference_row(stream: str, path: str, first: int, last: int) -> pa.RecordBatch:
    """One row of a source: rows ``[first, last)`` of the recording at ``path``."""
    return _row(stream, _REFERENCE + json.dumps([path, first, last]).encode())


def piece_row(piece: Piece) -> pa.RecordBatch:
    """One row of a source: a reference to a piece of a feed."""
    return _row(piece.stream, _PIECE + piece.dumps().encode())


def _row(stream: str, block: bytes) -> pa.RecordBatch:
    columns = [pa.array([stream]), pa.array([block], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def read_blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[Block]:
    """The tuples that rows of sources hold or refer to."""
    # Spark plans each batch in processes of their own, which import this module to no use of
    # what reads the data: it is imported where it is read.
    from anabranch_runtime.sources.feed import Piece
    from anabranch_runtime.sources.recording import read_rows

    for batch in batches:
        streams, blocks = batch.columns
        for i in range(batch.num_rows):
            stream, block = streams[i].as_py(), blocks[i].as_buffer()
            kind = block.slice(0, min(len(_REFERENCE), block.size)).to_pybytes()
            if kind == _PIECE:
                for rows, invalid in read_piece(Piece.loads(block.slice(len(_PIECE)).to_pybytes())):
                    yield Block(stream, rows, invalid)
            elif kind == _REFERENCE:
                path, first, last = json.loads(block.slice(len(_REFERENCE)).to_pybytes())
                for rows in read_rows(path, first, last):
                    yield Block(stream, rows)
            else:
                rows = decode_block(block)
                yield Block(stream, rows, int((rows.schema.metadata or {}).get(_INVALID, 0)))


def read_piece(piece: Piece) -> Iterator[Decoded]:
    """The rows of ``piece``, with how many more there are that are invalid.

    Raises:
        SourceError: they are not there (any more).
    """
    # Imported when needed: most tasks read pieces of one kind.
    if piece.kind == "redis":
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
