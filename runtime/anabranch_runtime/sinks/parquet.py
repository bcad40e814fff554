"""Result files: staged per batch and attempt, moved into place just before the batch commits.

Readers see ``<results>/<query>/<batch>-<task>.parquet`` (for views and outer joins
``version-<version>.parquet``, written elsewhere). A task writes below ``.staging/<attempt>/``. The
driver first removes files that an earlier attempt at the same batch has left under final names, and
then renames the staged ones. So a repeated batch replaces its own results: the sink is idempotent
by (query, batch). The file of a group of batches (``gathered``) has the number of the last one; it
is never replaced, since repetitions of batches up to the last one add no results.

A power failure loses no results, since the driver commits the batch's manifest only after the files
and their names are on the disk (``durable``).
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.connectors.sources import TOTAL
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.expressions import dated
from anabranch_contract.queries.views import View, change_columns
from anabranch_runtime.columns.arrow_types import noted, schema_of, typed_field
from anabranch_runtime.expressions.evaluate import Fetch, evaluate
from anabranch_runtime.sinks import outer_rows
from anabranch_runtime.sinks.delivery import Delivery

STAGING = ".staging"
#: Maximum rows per row group of a Parquet file.
GROUP_ROWS = 1 << 17
#: Rows added at once while the bytes per row are not known yet; few, as rows may be long.
_FIRST_ROWS = 1 << 4


def output_schema(query: QuerySpec) -> pa.Schema:
    """Return the schema of files that tasks write: a query's results, or a view's input rows."""
    own = schema_of(query.projection)
    return pa.schema([*own, *outer_rows.SCHEMA]) if query.has_outer_join else own


def project(
    query: QuerySpec,
    read: Fetch,
    length: int,
    schema: pa.Schema,
    beside: Iterable[pa.Array] = (),
    *,
    now: int = 0,
) -> pa.RecordBatch:
    """Evaluate the query's SELECT list on ``length`` joined tuples, whose columns ``read`` returns.

    Args:
        schema: the query's :func:`output_schema`.
        beside: the additional columns at the end of the schema (``outer_rows``).
        now: value of ``current_timestamp``.
    """
    arrays = [evaluate(dated(o.expr, now), read, length) for o in query.projection]
    return pa.RecordBatch.from_arrays([*arrays, *beside], schema=schema)


class RowBuffer(ABC):
    """Buffers a task's results of a query in one batch, and writes them page by page."""

    def __init__(self, schema: pa.Schema, page: int) -> None:
        """``page``: maximum bytes of result rows that wait to be written."""
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._page, self._width = page, _fixed_width(schema)
        self.schema = schema

    @property
    def room(self) -> int:
        """Maximum number of result rows to pass to :meth:`add` at once, to fit into the buffer."""
        if not self._width:
            return _FIRST_ROWS
        return max(1, min(GROUP_ROWS, int(self._page / self._width)))

    def add(self, batch: pa.RecordBatch) -> None:
        """Add result rows to the buffer; write a page when it is full."""
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self._width = self._bytes / max(self._rows, 1)
        if self._rows >= GROUP_ROWS or self._bytes >= self._page:
            self._flush()

    def close(self) -> None:
        """Write the result rows that are still in the buffer."""
        self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._write(pa.Table.from_batches(self._pending, self.schema))
        self._pending, self._rows, self._bytes = [], 0, 0

    @abstractmethod
    def _write(self, rows: pa.Table) -> None: ...


class FileWriter(RowBuffer):
    """Writes a file of one task's results of one query in one batch, in an existing folder."""

    def __init__(self, path: Path, schema: pa.Schema, page: int) -> None:
        """Open the result file; ``page``: maximum bytes of rows buffered for a row group."""
        super().__init__(schema, page)
        # Opened here, since Arrow would spend more time on detecting the file system.
        self._file = pa.OSFile(str(path), "wb")
        self._writer = self._opened(self._file)

    @abstractmethod
    def _opened(self, file: pa.OSFile) -> Any:
        """Return an Arrow writer, in the format of this class, that writes to ``file``."""

    def close(self) -> None:
        """Write the result rows in the buffer, and finish the file."""
        super().close()
        self._writer.close()
        self._file.close()

    def _write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)


class ResultWriter(FileWriter):
    """Writes results as a Parquet file."""

    def _opened(self, file: pa.OSFile) -> pq.ParquetWriter:
        return pq.ParquetWriter(file, noted(self.schema), use_dictionary=False)

    def note(self, key: bytes, value: bytes) -> None:
        """Add a key and its value to the metadata of the Parquet file."""
        self._writer.add_key_value_metadata({key: value})


class ParquetSink:
    """Publishes result files of all queries by renaming staged files."""

    def __init__(
        self, results: Path, next_batch: int, grouped: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """List published files of ``next_batch`` and later batches, left by interrupted attempts.

        Args:
            grouped: query -> last batch of its newest group; its files up to that batch stay.
        """
        self._results = results
        self._stale: dict[int, list[Path]] = {}
        for file in results.glob("*/*.parquet"):
            batch = batch_of(file)
            if batch is None or batch < next_batch or batch <= grouped.get(file.parent.name, -1):
                continue
            self._stale.setdefault(batch, []).append(file)

    def publish(
        self, batch: int, staged: Iterable[tuple[str, int, Path]]
    ) -> dict[str, tuple[Path, ...]]:
        """Move a batch's staged files, (query, task, file), to their final names.

        Returns:
            Query -> its published files, in order of tasks.
        """
        for file in self._stale.pop(batch, ()):
            file.unlink(missing_ok=True)
        published: dict[str, list[Path]] = {}
        for query, task, file in sorted(staged):
            directory = self._results / query
            if query not in published:
                directory.mkdir(parents=True, exist_ok=True)
            target = directory / f"{batch:010d}-{task:05d}.parquet"
            file.rename(target)
            published.setdefault(query, []).append(target)
        # Kept in memory, since this process may publish the batch again and must replace them.
        self._stale = {other: files for other, files in self._stale.items() if other > batch}
        self._stale[batch] = [file for files in published.values() for file in files]
        return {query: tuple(files) for query, files in published.items()}

    def place(self, group: Delivery) -> None:
        """Move a group's result file to its final name, unless it has been moved before."""
        for task, file in enumerate(group.files):
            target = self._results / group.query / f"{group.batch:010d}-{task:05d}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)


def batch_of(file: Path) -> int | None:
    """Return the batch of a published result file by its name; None for other files."""
    batch, dash, task = file.stem.partition("-")
    return int(batch) if dash and batch.isdecimal() and task.isdecimal() else None


def version_file(folder: Path, version: int) -> Path:
    """Return the path of the file with a version's rows of a view or outer join. Versions are not
    numbered as batches, hence the other form of name."""
    return folder / f"version-{version:010d}.parquet"


def write_version(rows: pa.Table, file: Path, total: int) -> None:
    """Write the rows of a view's version; ``total``: number of rows of all versions up to this one,
    by which readers notice a missing version."""
    metadata = {**(noted(rows.schema).metadata or {}), TOTAL: str(total).encode()}
    # Written to memory first, since Arrow makes a system call for each page of each column.
    content = pa.BufferOutputStream()
    pq.write_table(rows.replace_schema_metadata(metadata), content, use_dictionary=False)
    file.write_bytes(content.getvalue())


def version_of(file: Path) -> int | None:
    """Return the version of a file with a version's rows, by its name; None for other files."""
    word, dash, version = file.stem.partition("-")
    return int(version) if word == "version" and dash and version.isdecimal() else None


def _fixed_width(schema: pa.Schema) -> float:
    """Return the bytes per row of results; 0 if the rows have columns of variable width."""
    try:
        return float(sum(f.type.bit_width for f in schema)) / 8
    except ValueError:
        return 0.0


def clear_staging(results: Path) -> None:
    """Remove the staging directories of result files of all attempts."""
    staging = results / STAGING
    if staging.exists():
        for directory in staging.iterdir():
            shutil.rmtree(directory, ignore_errors=True)


def _sink_schema(query: QuerySpec) -> pa.Schema:
    """Return the schema of a query's results, a view's changes, or an outer join's rows."""
    if query.view is not None:
        return change_schema(query.view)
    return schema_of(query.projection if query.outer is None else query.outer.projection)


def write_empty(results: Path, query: QuerySpec) -> None:
    """Write an empty result file with the schema, for a query without results."""
    directory = results / query.id
    directory.mkdir(parents=True, exist_ok=True)
    if not any(directory.glob("*.parquet")):
        schema = noted(_sink_schema(query))
        pq.write_table(schema.empty_table(), directory / "empty.parquet")


def change_schema(view: View) -> pa.Schema:
    """Return the schema of a view's changes: a row's columns, the kind of change, the version."""
    return pa.schema([typed_field(name, kind) for name, kind in change_columns(view)])
