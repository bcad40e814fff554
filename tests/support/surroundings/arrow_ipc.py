"""Arrow IPC streams as producers send them."""

from __future__ import annotations

import pyarrow as pa


def ipc_stream(rows: pa.RecordBatch) -> bytes:
    """Return an Arrow IPC stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
