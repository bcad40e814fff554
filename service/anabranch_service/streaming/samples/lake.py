"""Sampling of Delta and Iceberg tables: a few rows of the files of their newest version."""

from __future__ import annotations

import importlib
import os
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from anabranch_contract.connectors.lake.options import ICEBERG, TABLE, table_options
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.protocol.registered import SourceRecord
from anabranch_service.streaming.samples.files import missing_column
from anabranch_service.streaming.samples.sample import (
    Sample,
    Unreadable,
    Wanted,
    declared_by,
    scalars,
)

#: Number of rows per read, and number of bytes of a file that are read ahead.
_ROWS, _PAGE = 64, 1 << 16


def sample_delta(source: SourceRecord, columns: Wanted, most: int, policy: AccessPolicy) -> Sample:
    """Read at most ``most`` rows of a Delta table on this machine; see :func:`take`."""
    path = source.path or ""
    sample = Sample(unit="files")
    # Imported only here, since it imports pandas, which took a third of the service's start.
    from pyarrow.dataset import ParquetFragmentScanOptions

    try:
        lake = importlib.import_module("deltalake")
    except ImportError as cause:
        why = f"the service lacks deltalake ({cause}): install anabranch[lake] where it runs"
        return Sample(looked_at=False, limits=[why])
    try:
        rows, parts = _opened(lake, path, policy)
        if columns is None:
            sample.declared.append(declared_by(rows.schema))
        for missing in [name for name in columns or () if name not in rows.schema.names]:
            raise missing_column(missing, rows.schema.names)
        sample.found = len(parts)
        for part in parts:
            if len(sample.rows) >= most:
                break
            place = os.path.join(path, part.path)
            if not policy.permits_path(os.path.realpath(place)):
                sample.limits.append(f"{place} was skipped: it leads to a path not permitted")
                continue
            sample.places.append(place)
            blocks = part.scanner(
                schema=rows.schema,
                columns=None if columns is None else list(columns),
                batch_size=_ROWS,
                batch_readahead=0,
                use_threads=False,
                fragment_scan_options=ParquetFragmentScanOptions(
                    use_buffered_stream=True, buffer_size=_PAGE, pre_buffer=False
                ),
            ).to_batches()
            sample.add((row for one in blocks for row in scalars(one, columns)), most, place)
    except lake.exceptions.TableNotFoundError:
        raise Unreadable(
            "no-table",
            f"{path} is not a Delta table",
            field="source.path",
            remedy="create the table, or correct the path",
        ) from None
    except (lake.exceptions.DeltaError, OSError, pa.ArrowException, ValueError) as cause:
        raise Unreadable(
            "unreadable-table",
            f"{path} can't be read: {str(cause)[:300]}",
            field="source.path",
            remedy="permit access to its log and files, and write it by a writer of Delta tables",
        ) from cause
    return sample


def _opened(lake: Any, path: str, policy: AccessPolicy) -> tuple[Any, list[Any]]:
    """Return the rows of a table's newest version, as a dataset over its folder, and its files in
    the order in which they were written.

    Raises:
        Unreadable: its log is in a folder that the policy does not permit.
    """
    log = os.path.realpath(os.path.join(path, "_delta_log"))
    if not policy.permits_path(log):
        raise Unreadable(
            "path-not-permitted",
            f"the log of {path} is in {log}, which is not permitted",
            field="source.path",
            remedy="permit the folder (--allow-path), or name another table",
        )
    files = fs.SubTreeFileSystem(path, fs.LocalFileSystem())
    table = lake.DeltaTable(path)
    rows = table.to_pyarrow_dataset(filesystem=files)
    added = pa.table(table.get_add_actions())
    paths = (unquote(one) for one in added.column("path").to_pylist())
    written = dict(zip(paths, added.column("modification_time").to_pylist(), strict=True))
    parts = sorted(rows.get_fragments(), key=lambda one: (written.get(one.path, 0), one.path))
    return rows, parts


def sample_iceberg(source: SourceRecord, columns: Wanted, most: int) -> Sample:
    """Read at most ``most`` rows of an Iceberg table through its catalog, which is configured for
    this process, so every stream may read its tables; see :func:`take`."""
    title = table_options(ICEBERG, None, source.options).table
    name, _, identifier = title.partition(".")
    try:
        settings = importlib.import_module("pyiceberg.utils.config").Config()
        catalogs = importlib.import_module("pyiceberg.catalog")
        missing = importlib.import_module("pyiceberg.exceptions").NoSuchTableError
    except ImportError as cause:
        why = f"the service lacks pyiceberg ({cause}): install anabranch[lake] where it runs"
        return Sample(looked_at=False, limits=[why])
    configured = settings.get_catalog_config(name)
    if configured is None:
        why = f"the service knows no catalog {name}: configure it as for the runtime, or declare"
        return Sample(looked_at=False, limits=[f"{why} the columns"])
    try:
        return _rows_of(
            catalogs.load_catalog(name, **configured).load_table(identifier), columns, most
        )
    except Unreadable:
        raise
    except missing:
        raise Unreadable(
            "no-table",
            f"there is no Iceberg table {title}",
            field=f"source.options.{TABLE}",
            remedy="create the table, or correct the name",
        ) from None
    # Catalogs raise exceptions of their clients, databases and file systems.
    except Exception as cause:
        raise Unreadable(
            "unreadable-table",
            f"{title} can't be read: {str(cause)[:300]}",
            field=f"source.options.{TABLE}",
            remedy="check that its catalog answers, and permit access to its files",
        ) from cause


def _rows_of(table: Any, columns: Wanted, most: int) -> Sample:
    """Return rows of a loaded Iceberg table's current snapshot, in the order of its files."""
    reading = importlib.import_module("pyiceberg.io.pyarrow")
    sample, there = Sample(unit="files"), table.schema()
    if columns is None:
        sample.declared.append(declared_by(reading.schema_to_pyarrow(there)))
    names = [field.name for field in there.fields]
    for gone in [name for name in columns or () if name not in names]:
        raise missing_column(gone, names)
    scan = table.scan(limit=most, selected_fields=("*",) if columns is None else tuple(columns))
    parts = sorted(scan.plan_files(), key=lambda one: one.file.file_path)
    sample.found = len(parts)
    for part in parts:
        if len(sample.rows) >= most:
            break
        place = part.file.file_path
        left = most - len(sample.rows)
        chosen = reading.ArrowScan(
            table.metadata, table.io, scan.projection(), scan.row_filter, limit=left
        )
        blocks = chosen.to_record_batches([part])
        sample.places.append(place)
        sample.add((row for one in blocks for row in scalars(one, columns)), most, place)
    return sample
