"""Sink that commits each batch to a Delta table, once.

The table's log keeps the last batch of each writer (a ``txn`` action), which each commit sets, so a
repeated batch is recognised. Two processes that commit the same batch conflict: the log accepts one
commit per version, and a commit fails if another one of the same writer precedes it. A table is
therefore created by a separate commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch_contract.connectors.postgres.catalog import quoted
from anabranch_contract.connectors.sinks import (
    BATCH_COLUMN,
    COMPRESSION,
    CONTENT,
    COUNT,
    FILE_SIZE,
    LakeContent,
    SinkSpec,
    current_key,
    partition_columns,
)
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.lake.rows import ATTEMPTS, GONE, check_partitions, new_columns, rows_of
from anabranch_runtime.sources.lake.library import library
from anabranch_runtime.storage.documents import sync_filesystem


def commit(delivery: Delivery, writer: str) -> None:
    """Commit a batch's results to a Delta table, unless the table has them already.

    Args:
        delivery: one query's results of one batch; the sink's path is resolved.
        writer: identifies query and pipeline in the table's log.

    Raises:
        SinkError: the table has other columns or partitions.
        Exception: errors of the library, for example if the storage does not answer.
    """
    lake = library("deltalake", "sink")
    sink = delivery.sink
    assert sink.path is not None
    rows = rows_of(delivery)
    for attempt in range(ATTEMPTS if len(rows) else 0):
        try:
            table = _opened(lake, sink, rows.schema)
            last = table.transaction_version(writer)
            if last is not None and last >= delivery.batch:
                break
            _write(lake, table, rows, sink, writer, delivery.batch)
            break
        except lake.exceptions.CommitFailedError:
            # Another commit came first; the next attempt checks whether it was of the same batch.
            if attempt == ATTEMPTS - 1:
                raise
    if sink.path.startswith("/"):
        sync_filesystem(Path(sink.path))


def _opened(lake: Any, sink: SinkSpec, schema: pa.Schema) -> Any:
    """Open the Delta table; create it, without rows, if there is none."""
    try:
        table = lake.DeltaTable(sink.path)
    except lake.exceptions.TableNotFoundError:
        names, size = {name.lower(): name for name in schema.names}, sink.option(FILE_SIZE)
        return lake.DeltaTable.create(
            sink.path,
            lake.Schema.from_arrow(pa.schema([f for f in schema if f.name != GONE])),
            mode="ignore",
            partition_by=[names[name.lower()] for name in partition_columns(sink)],
            configuration=None if size is None else {"delta.targetFileSize": size},
        )
    check_partitions(partition_columns(sink), table.metadata().partition_columns)
    return table


def _write(lake: Any, table: Any, rows: pa.Table, sink: SinkSpec, writer: str, batch: int) -> None:
    known = pa.schema(table.schema().to_arrow())
    new = new_columns(pa.schema([field for field in rows.schema if field.name != GONE]), known)
    size, codec = sink.option(FILE_SIZE), sink.option(COMPRESSION)
    written: Mapping[str, Any] = {
        "writer_properties": lake.WriterProperties(compression=(codec or "snappy").upper()),
        "commit_properties": lake.CommitProperties(
            app_transactions=[lake.Transaction(writer, batch)]
        ),
    }
    if sink.option(CONTENT) == LakeContent.CURRENT:
        if new:
            raise SinkError(
                "table-differs",
                f"the table has no column {', '.join(new)}: another program or sink has made it",
                field="sink.path",
                remedy="replace the query by one that writes to another table",
            )
        _merge(table, rows, sink, written)
        return
    lake.write_deltalake(
        table,
        rows,
        mode="append",
        schema_mode=None if rows.schema.names == known.names else "merge",
        target_file_size=None if size is None else int(size),
        **written,
    )


def _merge(table: Any, rows: pa.Table, sink: SinkSpec, written: Mapping[str, Any]) -> None:
    """Merge changes into the Delta table: a view's by key; others by all columns, as counts."""
    names = [name for name in rows.schema.names if name != GONE]
    values = {quoted(name): f"s.{quoted(name)}" for name in names}
    is_view = COUNT not in names
    by_name, added = {name.lower(): name for name in names}, sink.option(BATCH_COLUMN)
    matched = [by_name[name.lower()] for name in current_key(sink)]
    if not is_view:
        matched = [name for name in names if name not in (COUNT, added)]
    equal = [f"(t.{quoted(name)} IS NOT DISTINCT FROM s.{quoted(name)})" for name in matched]
    merger = table.merge(
        rows,
        # A view without grouping columns has one row, which always matches.
        predicate=" AND ".join(equal) or "true",
        source_alias="s",
        target_alias="t",
        **written,
    )
    if is_view:
        merger = merger.when_matched_delete(f"s.{GONE}")
        merger = merger.when_matched_update(values, predicate=f"NOT s.{GONE}")
        merger.when_not_matched_insert(values, predicate=f"NOT s.{GONE}").execute()
        return
    total = f"t.{COUNT} + s.{COUNT}"
    merger = merger.when_matched_delete(f"{total} = 0")
    merger = merger.when_matched_update(values | {quoted(COUNT): total})
    merger.when_not_matched_insert(values).execute()
