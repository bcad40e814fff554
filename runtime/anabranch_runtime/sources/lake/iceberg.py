"""Versions of an Iceberg table: the files of a snapshot, then the files of each later one.

Catalog and metadata are read by ``pyiceberg``, in the driver. Snapshots name their parents. The
files of a snapshot that appends are in the manifests that it added. The live files of any other
snapshot are compared with its parent's: all rows of files that are gone count as deleted, all rows
of new files as inserted, and rows at the positions in new delete files as deleted. A snapshot that
only rearranges rows is marked as such.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from anabranch_contract.connectors.sources import StreamStart
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.lake.library import catalog_of, library
from anabranch_runtime.sources.lake.log import RowsOf, TableFile, TableVersion
from anabranch_runtime.sources.lake.table import LakeTable
from anabranch_runtime.sources.lake.trouble import unreadable

#: Number of the version before a table's first snapshot.
_EMPTY = -1
#: Maximum number of snapshots that one search finds.
_AT_ONCE = 100


@dataclass(slots=True)
class IcebergTable(LakeTable):
    """The snapshots of an Iceberg table's main branch."""

    @property
    def catalog(self) -> str:
        """Name of the catalog that has the Iceberg table."""
        return self.title.partition(".")[0]

    @property
    def rest(self) -> float:
        """Least seconds between two searches for snapshots in the catalog."""
        return 0.5

    def look(self) -> None:
        """Check that the catalog has the table.

        Raises:
            SourceError: the catalog does not have the table, or does not answer.
        """
        with self._read():
            self._opened()

    def first(self) -> TableVersion:
        """Return the Iceberg snapshot from which reading begins, with its files.

        Raises:
            SourceError: there is no such table, or it can't be read.
        """
        with self._read():
            table, start = self._opened(), self.options.start
            fields, mark = self._fields(table), _mark(table)
            current = table.current_snapshot()
            number = _EMPTY if current is None else current.snapshot_id
            sequence = 0 if current is None else current.sequence_number or 0
            if isinstance(start, int):
                chosen, sequence = table.snapshot_by_id(start), 0
                if start and chosen is None:
                    raise self.no_version(number)
                parent = None if chosen is None else chosen.parent_snapshot_id
                number = _EMPTY if parent is None else parent
            files = list[TableFile]()
            if start is StreamStart.EARLIEST and current is not None:
                manifests = current.manifests(table.io)
                files = list(self._live(table, current, manifests).values())
            return TableVersion(number, time.time(), mark, tuple(files), fields, sequence)

    def after(self, last: TableVersion) -> Iterator[TableVersion]:
        """Yield the snapshots after ``last`` of the table's main branch.

        Raises:
            SourceError: a snapshot can't be followed; snapshots before it have been yielded.
        """
        with self._read():
            table = self._opened()
            if _mark(table) != last.mark:
                raise self.replaced(last.number)
            found, parent = self._since(table, last), last.number
            fields = self._fields(table) if found else {}
        for snapshot in found[:_AT_ONCE]:
            with self._read():
                files = self._changes(table, snapshot, parent)
            parent = snapshot.snapshot_id
            when = snapshot.timestamp_ms / 1000
            number = snapshot.sequence_number or 0
            yield TableVersion(parent, when, last.mark, tuple(files), fields, number)

    def _opened(self) -> Any:
        """Load the Iceberg table from its catalog.

        Raises:
            SourceError: the catalog or the table does not exist.
        """
        name, _, identifier = self.title.partition(".")
        try:
            return catalog_of(name).load_table(identifier)
        except library("pyiceberg.exceptions").NoSuchTableError as cause:
            raise self.bad(
                "no-table", f"there is no Iceberg table {self.title}", "create it, or name another"
            ) from cause

    @contextmanager
    def _read(self) -> Iterator[None]:
        try:
            yield
        except (SourceError, MemoryError):
            raise
        # Catalogs raise exceptions of their clients, databases and file systems.
        except Exception as cause:
            raise unreadable(self.title, cause) from cause

    def _since(self, table: Any, last: TableVersion) -> list[Any]:
        """Return the Iceberg snapshots after ``last`` up to the current one, oldest first.

        PyIceberg no longer knows a snapshot's parent that has expired; then the numbers of commits
        show whether the parent was ``last``.
        """
        found, snapshot = list[Any](), table.current_snapshot()
        number = None if last.number == _EMPTY else last.number
        while snapshot is not None and snapshot.snapshot_id != number:
            found.append(snapshot)
            parent = snapshot.parent_snapshot_id
            next_one = last.sequence and snapshot.sequence_number == last.sequence + 1
            if parent == number or (parent is None and next_one):
                return found[::-1]
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        if snapshot is None and number is not None:
            if table.snapshot_by_id(number) is not None:
                raise self.replaced(number)
            raise self._expired()
        if snapshot is None and found:
            raise self._expired()
        return found[::-1]

    def _changes(self, table: Any, snapshot: Any, parent: int) -> list[TableFile]:
        """Return files with the rows that a snapshot deleted, then files with inserted rows."""
        kinds = library("pyiceberg.table.snapshots").Operation
        kind = None if snapshot.summary is None else snapshot.summary.operation
        if kind == kinds.REPLACE:
            return []
        if kind == kinds.APPEND and parent != _EMPTY:
            return [
                self._file(table, entry.data_file)
                for manifest in snapshot.manifests(table.io)
                if manifest.added_snapshot_id == snapshot.snapshot_id
                for entry in manifest.fetch_manifest_entry(table.io)
                if entry.snapshot_id == snapshot.snapshot_id
            ]
        earlier = table.snapshot_by_id(parent)
        if earlier is None and parent != _EMPTY:
            raise self._expired()
        before = [] if earlier is None else earlier.manifests(table.io)
        after = snapshot.manifests(table.io)
        if not any(one.content.name == "DELETES" for one in (*before, *after)):
            # Files of a manifest that both snapshots have belong to both.
            both = {*before} & {*after}
            before, after = ([m for m in found if m not in both] for found in (before, after))
        known = self._live(table, earlier, before)
        live, gone = self._live(table, snapshot, after), list[TableFile]()
        for path, file in known.items():
            new = () if path not in live else tuple({*live[path].hidden} - {*file.hidden})
            if path not in live or new:
                gone.append(replace(file, of=RowsOf.DELETED, only=tuple(sorted(new))))
        come = [file for path, file in live.items() if path not in known]
        if gone and self.operation is None:
            self.check_removal(snapshot.snapshot_id, rewrites=bool(come))
            gone = []
        return gone + come

    def _live(self, table: Any, snapshot: Any, manifests: Sequence[Any]) -> dict[str, TableFile]:
        """Return the data files in ``manifests`` of a snapshot by path, in the order in which they
        were added, each with the files that list its deleted positions."""
        found, deletes = list[tuple[int, str, TableFile]](), False
        for manifest in manifests:
            for entry in manifest.fetch_manifest_entry(table.io):
                if manifest.content.name == "DELETES":
                    self._check_deletes(entry.data_file)
                    deletes = True
                else:
                    file = self._file(table, entry.data_file)
                    found.append((entry.sequence_number or 0, file.path, file))
        live = {path: file for _, path, file in sorted(found, key=lambda one: one[:2])}
        if deletes:
            for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files():
                path = task.file.file_path
                hidden = tuple(sorted(one.file_path for one in task.delete_files))
                live[path] = replace(live[path], hidden=hidden)
        return live

    def _check_deletes(self, file: Any) -> None:
        if file.content.name == "EQUALITY_DELETES":
            raise self._unsupported("equality deletes")
        if file.file_format.name != "PARQUET":
            raise self._unsupported("deletion vectors")

    def _file(self, table: Any, file: Any) -> TableFile:
        if file.content.name != "DATA" or file.file_format.name != "PARQUET":
            raise self._unsupported(f"files of format {file.file_format.name}")
        if file.key_metadata is not None:
            raise self._unsupported("encrypted files")
        values, schema = dict[str, str | None](), table.schema()
        for place, part in enumerate(table.specs()[file.spec_id].fields):
            name = schema.find_column_name(part.source_id)
            if str(part.transform) == "identity" and name in self.columns:
                kind, value = schema.find_type(part.source_id), file.partition[place]
                text = part.transform.to_human_string(kind, value)
                values[name] = None if value is None else text
        return TableFile(
            file.file_path, file.file_size_in_bytes, file.record_count, RowsOf.INSERTED, values
        )

    def _fields(self, table: Any) -> dict[str, int]:
        """Return the ids of the stream's columns, which files may have under other names."""
        fields = {field.name: field for field in table.schema().fields}
        self.check_columns(fields)
        for name in self.columns:
            if getattr(fields[name], "initial_default", None) is not None:
                raise self._unsupported(f"a default value of column {name}")
        return {name: fields[name].field_id for name in self.columns}

    def _expired(self) -> SourceError:
        return self.bad(
            "versions-removed",
            f"a snapshot of {self.title} expired before it was read",
            "register the stream again, which reads the table as it is now; let snapshots expire "
            "later",
        )

    def _unsupported(self, what: str) -> SourceError:
        return self.bad(
            "unsupported-table",
            f"{self.title} has {what}",
            "rewrite the table without them (rewrite_data_files applies deletes), and write by "
            "format version 2, copy-on-write or position deletes",
        )


def _mark(table: Any) -> int:
    return zlib.crc32(str(table.metadata.table_uuid).encode())
