"""Iceberg tables written by other programs, as sources in tests.

PyIceberg writes no files of deletes: they are written here, as Iceberg's specification says.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_runtime.sources.lake.feed import TableFeed, table_feed
from tests.runtime.sources.lake.tables import rows_of
from tests.support.surroundings.lakes import Lake
from tests.support.surroundings.policy import OPEN

NAME = "db.t"


class _Deletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _DeleteFiles(_FastAppendFiles):
    def new_manifest_writer(self, spec: Any) -> _Deletes:
        schema = self._transaction.table_metadata.schema()
        given = (spec, schema, self.new_manifest_output(), self._snapshot_id, self._compression)
        return _Deletes(*given)


class Iceberg:
    """One Iceberg table, ``lake.db.t``, of a catalog in ``home``."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, parts: tuple[str, ...] = ()) -> None:
        self.home = home
        self._lake = Lake("iceberg", home).configured(patch)
        self.create(parts)

    def create(self, parts: tuple[str, ...] = ()) -> None:
        """Create the table, without rows."""
        catalog = self._lake.catalog
        catalog.create_namespace_if_not_exists("db")
        self.table: Table = catalog.create_table(NAME, rows_of(0, 0).schema)
        if parts:
            with self.table.update_spec() as spec:
                for name in parts:
                    spec.add_identity(name)

    def drop(self) -> None:
        """Remove the table from its catalog."""
        self._lake.catalog.drop_table(NAME)

    def add(self, first: int, last: int) -> None:
        """Commit rows whose ``a`` is ``first`` to ``last``."""
        self.table.append(rows_of(first, last))

    def present(self, snapshot: int | None = None) -> Counter[Any]:
        """Return the rows, read by PyIceberg."""
        found = self.table.refresh().scan(snapshot_id=snapshot).to_arrow().to_pydict()
        return Counter(zip(found["a"], found["p"], strict=True))

    def delete_rows(self, first: int, last: int, **given: Any) -> None:
        """Delete the rows whose ``a`` is in a range by a file of positions; ``given``: properties
        of another kind of file, which this one claims to be.
        """
        before = {a for a, _ in self.present()}
        found = list[tuple[str, int]]()
        for task in self.table.scan().plan_files():
            path = task.file.file_path
            numbers = pq.read_table(path.removeprefix("file://")).column("a").to_pylist()
            found += [(path, i) for i, a in enumerate(numbers) if first <= a < last and a in before]
        if not found:
            return
        place = self.home / f"deletes-{len(self.table.snapshots())}.parquet"
        rows = pa.table({"file_path": [p for p, _ in found], "pos": [i for _, i in found]})
        pq.write_table(rows, place)
        with self.table.transaction() as change:
            operation = _DeleteFiles(Operation.DELETE, change, self.table.io)
            properties: dict[str, Any] = {
                "content": DataFileContent.POSITION_DELETES,
                "file_path": f"file://{place}",
                "file_format": FileFormat.PARQUET,
                "partition": Record(),
                "record_count": len(found),
                "file_size_in_bytes": place.stat().st_size,
            }
            file = DataFile.from_args(_table_format_version=2, **properties | given)
            operation.append_data_file(file)
            operation.commit()

    def rearrange(self) -> None:
        """Replace all files by one with the same rows, as compaction does."""
        tasks, rows = list(self.table.refresh().scan().plan_files()), self.table.scan().to_arrow()
        if not len(rows):
            return
        with self.table.transaction() as change:
            writer = change.update_snapshot().overwrite()
            whole: Any = writer._summary

            def summary(given: Any) -> Any:
                return whole(given).model_copy(update={"operation": Operation.REPLACE})

            writer._summary = summary  # type: ignore[method-assign, assignment]
            for task in tasks:
                writer.delete_data_file(task.file)
            for file in _dataframe_to_data_files(change.table_metadata, rows, self.table.io):
                writer.append_data_file(file)
            writer.commit()


def feed(
    home: Path, changes: ChangeFormat | None = None, p: str = "string", **options: str
) -> TableFeed:
    """Return a new feed over the table, as after a restart. ``p``: type of a column."""
    columns = [ColumnRecord(name="a", type="bigint"), ColumnRecord(name="p", type=p)]
    if changes is not None:
        columns.append(ColumnRecord(name="op", type="string"))
    source = SourceRecord(format="iceberg", options={"table": f"lake.{NAME}", **options})
    record = StreamRecord(name="s", columns=tuple(columns), changes=changes, source=source)
    return table_feed(record, str(home / "state"), OPEN)
