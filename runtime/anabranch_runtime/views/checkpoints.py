"""Checkpoints of maintained tables: their contents as segments of packs.

A checkpoint is one segment with a row per table: query, specification, first round that the table
does not include, counts, and contents (record batches, as concatenated Arrow IPC streams; NULL:
empty since the query's beginning).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from anabranch_contract import codec
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_runtime.state.tables import TableCounts
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.segment import PackWriter, Segment
from anabranch_runtime.storage.segment_cache import read_segment

#: Store name (``Segment.store``) of checkpoints.
STORE = "tables"
_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("spec", pa.large_string()),
        ("next", pa.int64()),
        ("counts", pa.string()),
        ("contents", pa.large_binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A maintained table in a checkpoint.

    Attributes:
        next: number of the first round (batch) that the table does not include.
        contents: record batches; None: empty since the query's beginning.
    """

    query: QuerySpec
    next: int
    counts: TableCounts = field(default_factory=TableCounts)
    contents: Sequence[pa.RecordBatch] | None = None


def write_checkpoint(root: Path, batch: int, tables: Sequence[KeptTable]) -> Segment:
    """Write ``tables`` as a checkpoint below the state directory; return once it is durable.

    Args:
        batch: number of the next batch, which is part of the pack's name and tells its age.
    """
    columns = [
        [str(one.query.id) for one in tables],
        [codec.dumps(one.query) for one in tables],
        [one.next for one in tables],
        [codec.dumps(one.counts) for one in tables],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=False)]
    arrays.append(_packed([one.contents for one in tables]))
    name = f"segments/tables-{uuid.uuid4().hex}.pack"
    with PackWriter(root, name) as writer:
        rows = pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
        segment = writer.add_plain(rows, store=STORE, batch=batch)
    durable(root).upload(name)
    return segment


def read_checkpoint(root: Path, checkpoint: Segment, queries: Sequence[str]) -> list[KeptTable]:
    """Read the tables of ``queries`` in a checkpoint.

    Raises:
        StateError: the checkpoint's pack is missing or damaged.
    """
    rows, wanted = read_segment(str(root), checkpoint).batch, frozenset(queries)
    found = []
    for at, query in enumerate(rows.column("query").to_pylist()):
        if query not in wanted:
            continue
        spec, following, counts = (rows.column(n)[at].as_py() for n in ("spec", "next", "counts"))
        contents = rows.column("contents")[at]
        found.append(
            KeptTable(
                codec.loads(spec, QuerySpec),
                following,
                codec.loads(counts, TableCounts),
                _unpacked(contents.as_buffer()) if contents.is_valid else None,
            )
        )
    return found


def _packed(contents: Sequence[Sequence[pa.RecordBatch] | None]) -> pa.Array:
    """Return the contents of tables as a column, whose buffer they are written into at once."""
    sink, ends = pa.BufferOutputStream(), [0]
    for batches in contents:
        for batch in batches or ():
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
        ends.append(sink.tell())
    present = pa.array([one is not None for one in contents]).buffers()[1]
    limits = pa.array(ends, pa.int64()).buffers()[1]
    buffers = [present, limits, sink.getvalue()]
    return pa.Array.from_buffers(pa.large_binary(), len(contents), buffers)


def _unpacked(buffer: pa.Buffer) -> list[pa.RecordBatch]:
    source, found = pa.BufferReader(buffer), []
    while source.tell() < buffer.size:
        with pa.ipc.open_stream(source) as reader:
            found.append(reader.read_next_batch())
            # Reading goes on to the end of this stream, where the next one begins.
            reader.read_all()
    return found
