"""Versions of a Delta table: the files of its snapshot, then the files of each later commit.

The snapshot is read by ``deltalake``. Commits are files of the table's log with an ascending
number, which appear at once and never change; each lists files that it added and removed, as JSON
lines (Delta's transaction log protocol). A commit that only rearranges rows marks its files so.

With a change data feed, the rows that a commit changed are in separate files. Without it, all rows
of removed files count as deleted, and all rows of added files as inserted; most of them are the
same rows, and cancel each other out.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.connectors.sources import StreamStart
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.files.trouble import BROKEN
from anabranch_runtime.sources.lake.library import library
from anabranch_runtime.sources.lake.log import RowsOf, TableFile, TableVersion
from anabranch_runtime.sources.lake.table import LakeTable
from anabranch_runtime.sources.lake.trouble import lost, unreadable

#: Folder of a Delta table that has its commits.
_LOG = "_delta_log"
#: Reader features without effect on the reading of data files (only, at most, of checkpoints).
_FEATURES = frozenset({"timestampntz", "vacuumprotocolcheck", "v2checkpoint"})
#: Version of the protocol from which on tables name the features that readers need.
_NAMED = 3
#: Nanoseconds after a folder's modification time at which a listing is known to be complete.
_SETTLED = 2_100_000_000
#: Maximum number of commits that one look finds.
_AT_ONCE = 1000


class _File(msgspec.Struct, rename="camel"):
    """Action of a commit: it adds or removes a file, or names a file with changes."""

    path: str
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    data_change: bool = True
    stats: str | None = None
    deletion_vector: dict[str, Any] | None = None


class _Protocol(msgspec.Struct, rename="camel"):
    min_reader_version: int = 1
    reader_features: list[str] | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    schema_string: str
    partition_columns: list[str] = []
    configuration: dict[str, str | None] = {}


class _Info(msgspec.Struct, rename="camel"):
    timestamp: int | None = None


class _Action(msgspec.Struct, rename="camel"):
    """A line of a Delta commit; only actions that readers need are decoded."""

    add: _File | None = None
    remove: _File | None = None
    cdc: _File | None = None
    protocol: _Protocol | None = None
    meta_data: _Metadata | None = None
    commit_info: _Info | None = None


class _Stats(msgspec.Struct, rename="camel"):
    num_records: int | None = None


class _Field(msgspec.Struct):
    name: str
    type: Any


class _Schema(msgspec.Struct):
    fields: list[_Field]


_ACTION = msgspec.json.Decoder(_Action)
_STATS = msgspec.json.Decoder(_Stats)
_SCHEMA = msgspec.json.Decoder(_Schema)


@dataclass(slots=True)
class DeltaTable(LakeTable):
    """The versions of a Delta table; its ``title`` is its folder."""

    #: Modification time of the log's folder when it had no newer commit.
    _listed: int = field(default=-1)

    @property
    def folder(self) -> Path:
        """The folder of the Delta table."""
        return Path(self.title)

    def place(self, path: str) -> str:
        """Return the full path of one of the Delta table's files."""
        return f"{self.title}/{path}"

    def look(self) -> None:
        """Check that the Delta table's log exists; raise an error if it can't be read."""
        with os.scandir(self.folder / _LOG):
            pass

    def first(self) -> TableVersion:
        """Return the version of the Delta table from which reading begins, with its files.

        Raises:
            SourceError: there is no such table, or it can't be read.
        """
        lake, start = library("deltalake"), self.options.start
        pinned = start - 1 if isinstance(start, int) and start else None
        try:
            table = lake.DeltaTable(str(self.folder))
            newest = table.version()
            number = newest if pinned is None else pinned
            if isinstance(start, int) and start > newest + 1:
                raise self.no_version(newest)
            protocol, metadata = table.protocol(), table.metadata()
            schema = table.schema().to_json()
            present = start is StreamStart.EARLIEST
            added = pa.table(table.get_add_actions()) if present else pa.table({})
            vectors = pa.table(table.deletion_vectors()).num_rows if present else 0
        except lake.exceptions.TableNotFoundError as cause:
            raise self.bad(
                "no-table",
                f"{self.folder} is not a Delta table: {cause}",
                "create it, or correct the path",
            ) from cause
        except (lake.exceptions.DeltaError, OSError, ValueError) as cause:
            raise unreadable(self.folder, cause) from cause
        self._check_protocol(protocol.min_reader_version, protocol.reader_features or ())
        self._check_metadata(schema, metadata.partition_columns, metadata.configuration)
        if vectors:
            raise self._unsupported("deletion vectors")
        if start == 0:
            return TableVersion(-1, time.time(), 0)
        files = self._snapshot(added) if present else ()
        return TableVersion(number, time.time(), self._mark(number) or 0, files)

    def after(self, last: TableVersion) -> Iterator[TableVersion]:
        """Yield the Delta table's committed versions after ``last``.

        Raises:
            SourceError: a commit can't be followed; commits before it have been yielded.
        """
        number = last.number + 1
        if not self._log(number).exists() and not self._has_newer(last):
            return
        if last.mark and self._mark(last.number) not in (None, last.mark):
            raise self.replaced(last.number)
        for version in range(number, number + _AT_ONCE):
            try:
                content = self._log(version).read_bytes()
            except FileNotFoundError:
                return
            except OSError as cause:
                raise unreadable(self._log(version), cause) from cause
            yield self._commit(version, content)

    def _has_newer(self, last: TableVersion) -> bool:
        """Whether a commit has appeared after ``last``; raises if some after it were deleted."""
        log = self.folder / _LOG
        try:
            changed = log.stat().st_mtime_ns
            if changed == self._listed:
                return False
            began = time.time_ns()
            names = [path.name for path in log.iterdir()]
        except OSError as cause:
            raise unreadable(log, cause) from cause
        numbers = [
            int(name[:20])
            for name in names
            if name[:20].isdecimal() and name.endswith((".json", ".parquet"))
        ]
        newest = max(numbers, default=-1)
        if newest > last.number:
            if self._log(last.number + 1).exists():
                return True
            raise self.bad(
                "versions-removed",
                f"version {last.number + 1} of {self.folder} was removed from its log before it "
                f"was read; its newest is {newest}",
                "register the stream again, which reads the table as it is now; a longer "
                "delta.logRetentionDuration keeps more versions",
            )
        if newest < last.number:
            raise self.replaced(last.number)
        self._listed = changed if began - changed > _SETTLED else -1
        return False

    def _commit(self, number: int, content: bytes) -> TableVersion:
        try:
            actions = _ACTION.decode_lines(content)
        except msgspec.DecodeError as cause:
            raise unreadable(self._log(number), cause) from cause
        committed = time.time()
        for action in actions:
            if action.protocol is not None:
                self._check_protocol(
                    action.protocol.min_reader_version, action.protocol.reader_features or ()
                )
            if action.meta_data is not None:
                given = action.meta_data
                self._check_metadata(
                    given.schema_string, given.partition_columns, given.configuration
                )
            if action.commit_info is not None and action.commit_info.timestamp is not None:
                committed = action.commit_info.timestamp / 1000
        added = [a.add for a in actions if a.add is not None and a.add.data_change]
        removed = [a.remove for a in actions if a.remove is not None and a.remove.data_change]
        changed = [a.cdc for a in actions if a.cdc is not None]
        if any(one.deletion_vector for one in (*added, *removed)):
            raise self._unsupported("deletion vectors")
        files: list[TableFile]
        if self.operation is not None and changed:
            files = [self._file(one, RowsOf.CHANGES) for one in changed]
        else:
            if removed and self.operation is None:
                self.check_removal(number, rewrites=bool(added))
                removed = []
            files = [self._file(one, RowsOf.DELETED) for one in removed]
            files += [self._file(one, RowsOf.INSERTED) for one in added]
        return TableVersion(number, committed, zlib.crc32(content), tuple(files))

    def _file(self, action: _File, of: RowsOf) -> TableFile:
        stats = _STATS.decode(action.stats) if action.stats else _Stats()
        # In a commit, an empty text means NULL, whatever the type.
        values = {name: text or None for name, text in (action.partition_values or {}).items()}
        return self._known(action.path, action.size, stats.num_records, values, of)

    def _snapshot(self, added: pa.Table) -> tuple[TableFile, ...]:
        """Return the files of a Delta snapshot in the order in which they were written."""
        wanted = ("path", "size_bytes", "num_records", "modification_time")
        rows = added.select([n for n in wanted if n in added.column_names]).to_pylist()
        values: list[dict[str, str | None]] = [{} for _ in rows]
        if "partition" in added.column_names:
            parts = added.column("partition").combine_chunks()
            for part, field_ in zip(parts.flatten(), parts.type, strict=True):
                for given, text in zip(values, part.cast(pa.string()).to_pylist(), strict=True):
                    given[field_.name] = text
        found = []
        for row, given in zip(rows, values, strict=True):
            file = self._known(row["path"], row["size_bytes"], row.get("num_records"), given)
            found.append((row["modification_time"], file.path, file))
        return tuple(file for _, _, file in sorted(found, key=lambda one: one[:2]))

    def _known(
        self,
        path: str,
        size: int | None,
        rows: int | None,
        values: dict[str, str | None],
        of: RowsOf = RowsOf.INSERTED,
    ) -> TableFile:
        """Return a file of the table; its size and rows are measured if the log lacks them."""
        path = self._relative(path)
        if size is not None and rows is not None:
            return TableFile(path, size, rows, of, values)
        full = self.folder / path
        try:
            size, rows = full.stat().st_size, int(pq.read_metadata(full).num_rows)
        except FileNotFoundError as cause:
            raise lost(full) from cause
        except BROKEN as cause:
            raise unreadable(full, cause) from cause
        return TableFile(path, size, rows, of, values)

    def _relative(self, path: str) -> str:
        found = unquote(path)
        if "://" in path or found.startswith(("/", "file:")) or ".." in found.split("/"):
            raise self._unsupported("files outside of the table (a shallow clone)")
        return found

    def _check_protocol(self, version: int, features: Sequence[str]) -> None:
        other = [name for name in features if name.lower() not in _FEATURES]
        # Deletion vectors are refused file by file, column mapping by its mode.
        other = [name for name in other if name not in ("deletionVectors", "columnMapping")]
        if version > _NAMED or other:
            raise self._unsupported(", ".join(other) or f"reader version {version}")

    def _check_metadata(
        self, schema: bytes | str, partitions: Sequence[str], configuration: Mapping[str, Any]
    ) -> None:
        fields = _SCHEMA.decode(schema).fields
        names = [field.name for field in fields]
        if any(f.type == "binary" and f.name in {*partitions} & {*self.columns} for f in fields):
            raise self._unsupported("binary partitions")
        if (configuration.get("delta.columnMapping.mode") or "none") != "none":
            raise self._unsupported("column mapping")
        self.check_columns(names)

    def _mark(self, number: int) -> int | None:
        """Return the checksum of a Delta commit; None if the table's log no longer has it."""
        try:
            return zlib.crc32(self._log(number).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise unreadable(self._log(number), cause) from cause

    def _log(self, number: int) -> Path:
        return self.folder / _LOG / f"{number:020d}.json"

    def _unsupported(self, what: str) -> SourceError:
        return self.bad(
            "unsupported-table",
            f"{self.folder} has {what}",
            "turn the feature off, and rewrite the table without it (REORG TABLE ... APPLY "
            "(PURGE) applies deletion vectors)",
        )
