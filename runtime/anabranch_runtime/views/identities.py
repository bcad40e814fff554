"""Rows of views, and their identities, as JSON objects: equal texts are equal rows."""

from __future__ import annotations

import pyarrow as pa

from anabranch_contract.queries.views import View
from anabranch_runtime.sinks.rows import json_rows


def identities(view: View, rows: pa.Table) -> pa.Array:
    """Return each view row's identity (grouping columns or rank) as a JSON object."""
    if not view.identity:
        return pa.array(["{}"] * rows.num_rows, pa.large_string())
    return texts(rows.select(list(view.identity)))


def texts(rows: pa.Table) -> pa.Array:
    """Return each row of a view as a JSON object."""
    return json_rows(rows.combine_chunks().to_batches()[0] if rows.num_rows else _nothing(rows))


def _nothing(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.nulls(0, f.type) for f in rows.schema], schema=rows.schema
    )
