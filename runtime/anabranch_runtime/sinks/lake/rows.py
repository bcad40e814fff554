"""Rows of a delivery for a Delta or Iceberg table, and checks of the table's columns."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.connectors.sinks import (
    BATCH_COLUMN,
    CONTENT,
    COUNT,
    PARTITION_BY,
    LakeContent,
)
from anabranch_contract.queries.views import CHANGE, Change
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.rows import json_rows

#: Column of :func:`changed` that marks deleted keys; no table has a column of this name.
GONE = "anabranch_gone"
#: Attempts at a commit while others commit to the same table.
ATTEMPTS = 10


def rows_of(delivery: Delivery) -> pa.Table:
    """Return a delivery's rows or changes, with the batch column if the sink names one."""
    rows, added = delivery.read().replace_schema_metadata(), delivery.sink.option(BATCH_COLUMN)
    if delivery.sink.option(CONTENT) == LakeContent.CURRENT:
        # Changes of a view have a version as their last column.
        rows = counted(rows) if rows.schema.names[-1] == CHANGE else changed(rows)
    if added is None:
        return rows
    return rows.append_column(added, pa.repeat(delivery.mark, len(rows)))


def changed(rows: pa.Table) -> pa.Table:
    """Return a view's changes, at most one per key; column ``GONE``: whether the key is deleted."""
    gone = pc.equal(rows[CHANGE], str(Change.DELETE))
    return rows.drop_columns([CHANGE]).append_column(GONE, gone)


def counted(rows: pa.Table) -> pa.Table:
    """Return distinct rows with ``COUNT`` (inserts minus deletes) for the table, if not 0."""
    body = rows.drop_columns([CHANGE])
    is_delete = pc.equal(rows[CHANGE], str(Change.DELETE))
    numbered = pa.table(
        {
            "row": _texts(body),
            "count": pc.if_else(is_delete, pa.scalar(-1), pa.scalar(1)),
            "place": np.arange(len(rows)),
        }
    )
    sums = numbered.group_by("row").aggregate([("count", "sum"), ("place", "min")])
    sums = sums.filter(pc.not_equal(sums["count_sum"], 0))
    return body.take(sums["place_min"]).append_column(COUNT, sums["count_sum"])


def _texts(rows: pa.Table) -> pa.ChunkedArray:
    """Return a text per row, equal for equal rows (0.0 equals -0.0), by which rows are counted."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            zero = pa.scalar(0.0, field.type)
            rows = rows.set_column(number, field, pc.add(rows[number], zero))
    return pa.chunked_array(map(json_rows, rows.to_batches()), pa.large_string())


def check_partitions(wanted: Iterable[str], found: Iterable[str]) -> None:
    """Refuse a table that has other partition columns than the sink; a sink may name none.

    Raises:
        SinkError: ``table-differs``.
    """
    asked, has = ([name.lower() for name in names] for names in (wanted, found))
    if asked and asked != has:
        raise SinkError(
            "table-differs",
            f"the table is partitioned by {', '.join(has) or 'nothing'}",
            field=f"sink.options.{PARTITION_BY}",
            remedy="leave the option out, or write to another table",
        )


def new_columns(columns: pa.Schema, known: pa.Schema) -> list[str]:
    """Return the columns that a lake's table lacks.

    Raises:
        SinkError: ``table-differs``: a column has another type, or differs in the case of its name.
    """
    names = {name.lower(): name for name in known.names}
    for field in columns:
        same = names.get(field.name.lower())
        if same is None:
            continue
        theirs, ours = spark_type(known.field(same).type), spark_type(field.type)
        if same != field.name or theirs != ours:
            raise SinkError(
                "table-differs",
                f"the table's column is {same} {theirs}, the query's {field.name} {ours}",
                field="sink",
                remedy="replace the query by one that casts and names the column so, or that "
                "writes to another table",
            )
    return [name for name in columns.names if name.lower() not in names]
