"""Sink that commits each batch to an Iceberg table of a catalog, once.

Catalogs, with their addresses and secrets, are configured by the operator, for PyIceberg. A
property of the table, set by the commit that adds the rows, names the last batch of each writer; it
outlives expired snapshots. A commit fails unless the snapshot from which it has read the property
is still the newest. PyIceberg's own retries would then repeat the commit on the newest snapshot, in
which another process may have committed the same batch. So these retries are off, and the property
is read again before each attempt.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch_contract.connectors.lake.options import TABLE
from anabranch_contract.connectors.sinks import COMPRESSION, FILE_SIZE, SinkSpec, partition_columns
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrow_types import arrow_type, spark_type
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.lake.rows import ATTEMPTS, check_partitions, new_columns, rows_of
from anabranch_runtime.sources.lake.library import catalog_of, library
from anabranch_runtime.storage.documents import sync_filesystem

#: Table property: number of newest snapshots that stay when older ones expire, which happens once
#: there are twice as many; its default. Tables without it keep all snapshots.
SNAPSHOTS, KEPT = "anabranch.snapshots", 250
#: Properties of created tables: commits list few earlier manifests, and keep little metadata.
_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    SNAPSHOTS: str(KEPT),
}


def commit(delivery: Delivery, writer: str) -> None:
    """Commit a batch's results to an Iceberg table, unless the table has them already.

    Args:
        delivery: one query's results of one batch.
        writer: identifies query and pipeline in the table's properties.

    Raises:
        SinkError: the catalog is not configured, or the table has other columns or partitions.
        Exception: errors of the library, for example if the catalog does not answer.
    """
    errors = library("pyiceberg.exceptions", "sink")
    name, _, identifier = str(delivery.sink.option(TABLE)).partition(".")
    catalog, rows = catalog_of(name, "sink"), rows_of(delivery)
    kinds = [(f.name, arrow_type(_widened(spark_type(f.type)))) for f in rows.schema]
    rows = rows.cast(pa.schema(kinds))
    mark = f"anabranch.batch.{writer}"
    for attempt in range(ATTEMPTS):
        try:
            table = _opened(catalog, identifier, delivery.sink, rows.schema)
            if int(table.properties.get(mark, -1)) >= delivery.batch:
                break
            _append(table, rows, {mark: str(delivery.batch)})
            break
        except (errors.CommitFailedException, errors.TableAlreadyExistsError):
            # Another commit came first; the next attempt checks whether it was of the same batch.
            if attempt == ATTEMPTS - 1:
                raise
    _expire(table)
    location = table.location().removeprefix("file://")
    if location.startswith("/"):
        sync_filesystem(Path(location))


def _opened(catalog: Any, identifier: str, sink: SinkSpec, schema: pa.Schema) -> Any:
    """Load the Iceberg table; create it, without rows, if there is none."""
    errors = library("pyiceberg.exceptions", "sink")
    try:
        table = catalog.load_table(identifier)
    except errors.NoSuchTableError:
        return _created(catalog, identifier, sink, schema)
    found = [field.name for field in table.spec().fields]
    check_partitions(partition_columns(sink), found)
    return table


def _created(catalog: Any, identifier: str, sink: SinkSpec, schema: pa.Schema) -> Any:
    catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
    size, codec = sink.option(FILE_SIZE), sink.option(COMPRESSION)
    given = {"write.target-file-size-bytes": size, "write.parquet.compression-codec": codec}
    properties = _PROPERTIES | {name: text for name, text in given.items() if text is not None}
    change = catalog.create_table_transaction(identifier, schema, properties=properties)
    with change, change.update_spec() as partitions:
        for name in partition_columns(sink):
            partitions.add_identity(name)
    return catalog.load_table(identifier)


def _append(table: Any, rows: pa.Table, properties: dict[str, str]) -> None:
    """Add rows and set properties by one commit, without retries.

    The transaction sees the table without its history, since PyIceberg copies all metadata some
    twenty times. The catalog applies the transaction's changes to the complete table.
    """
    whole = table.metadata
    current = whole.current_snapshot_id
    table.metadata = whole.model_copy(
        update={
            "properties": whole.properties | {"commit.retry.num-retries": "0"},
            "snapshots": [one for one in whole.snapshots if one.snapshot_id == current],
            "snapshot_log": [],
        }
    )
    grows = bool(new_columns(rows.schema, table.schema().as_arrow()))
    with table.transaction() as change:
        if grows:
            with change.update_schema() as columns:
                columns.union_by_name(rows.schema)
        change.append(rows)
        change.set_properties(properties)


def _widened(kind: DataType) -> DataType:
    """Return the type with its integers widened to the shortest integers that Iceberg has."""
    if kind.kind in (TypeKind.TINYINT, TypeKind.SMALLINT):
        return DataType(TypeKind.INT)
    parts = tuple((name, _widened(of)) for name, of in kind.fields)
    return DataType(kind.kind, kind.precision, kind.scale, parts)


def _expire(table: Any) -> None:
    """Remove old snapshots from the Iceberg table's metadata, which each commit rewrites."""
    kept, times = table.properties.get(SNAPSHOTS), [s.timestamp_ms for s in table.snapshots()]
    if kept is None or len(times) < 2 * max(int(kept), 1):
        return
    oldest = sorted(times)[-int(kept)]
    with suppress(library("pyiceberg.exceptions", "sink").CommitFailedException):
        expired = table.maintenance.expire_snapshots()
        expired.older_than(datetime.fromtimestamp(oldest / 1000, UTC)).commit()
