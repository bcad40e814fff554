"""Result files: staged per batch and attempt, moved into place just before the batch commits.

``<results>/<query>/<batch>-<task>.parquet`` is what readers see (of views and outer joins
``version-<version>.parquet``, which is written elsewhere). A task writes below
``.staging/<attempt>/``; the driver first removes what an earlier attempt at the same batch may have
left under final names, then renames. So a file's name has its batch, and a batch that is applied
again replaces its own results: the sink is idempotent by (query, batch).

Nothing is lost with the power: before the manifest says that a batch is there, the driver waits
until its files and their names are on the disk (``durable``).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.views import View, change_columns
from anabranch_runtime.columns.arrow_types import arrow_type, schema_of
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.sinks import outer_rows
from anabranch_runtime.storage.partial import Partial, fetcher

STAGING = ".staging"
#: Rows per row group at most.
GROUP_ROWS = 1 << 17
#: Rows from which the width of results with texts is learned: few, for they may be long.
_FIRST_ROWS = 1 << 4


def output_schema(query: QuerySpec) -> pa.Schema:
    """The Arrow schema of a query's files by tasks: its results, or joined rows."""
    own = schema_of(query.projection)
    return pa.schema([*own, *outer_rows.SCHEMA]) if query.has_outer_join else own


def project(
    query: QuerySpec,
    partial: Partial,
    schema: pa.Schema,
    beside: Iterable[pa.Array] = (),
) -> pa.RecordBatch:
    """The query's projection of complete results.

    Args:
        schema: its :func:`output_schema`.
        beside: the columns of that beside the projection (``outer_rows``).
    """
    read = fetcher(partial)
    arrays = [evaluate(o.expr, read, partial.length) for o in query.projection]
    return pa.RecordBatch.from_arrays([*arrays, *beside], schema=schema)


class ResultWriter:
    """Writes one task's results of one batch for one query, below a folder that is there."""

    def __init__(self, path: Path, schema: pa.Schema, page: int) -> None:
        """``page``: bytes of rows that may wait for their row group."""
        # Opened here: to find out what kind of file system a path is on takes longer than to open.
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pq.ParquetWriter(self._file, schema, use_dictionary=False)
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._page, self._width = page, _fixed_width(schema)
        self.schema = schema

    @property
    def room(self) -> int:
        """How many rows to add at once."""
        if not self._width:
            return _FIRST_ROWS
        return max(1, min(GROUP_ROWS, int(self._page / self._width)))

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows; small batches are gathered into row groups."""
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        self._width = self._bytes / max(self._rows, 1)
        if self._rows >= GROUP_ROWS or self._bytes >= self._page:
            self._flush()

    def close(self) -> None:
        """Write the pending rows and finish the file."""
        self._flush()
        self._writer.close()
        self._file.close()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, self.schema))
        self._pending, self._rows, self._bytes = [], 0, 0


class ParquetSink:
    """Published result files of all queries."""

    def __init__(self, results: Path, next_batch: int) -> None:
        """Take stock: files of ``next_batch`` and later are left from attempts that never ended."""
        self._results = results
        self._stale: dict[int, list[Path]] = {}
        for file in results.glob("*/*.parquet"):
            batch = batch_of(file)
            if batch is None or batch < next_batch:
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
        # Should the batch be published once more by this process, it replaces these.
        self._stale = {batch: [file for files in published.values() for file in files]}
        return {query: tuple(files) for query, files in published.items()}


def batch_of(file: Path) -> int | None:
    """The batch of a published file; None for files that are none."""
    batch, dash, task = file.stem.partition("-")
    return int(batch) if dash and batch.isdecimal() and task.isdecimal() else None


def version_file(folder: Path, version: int) -> Path:
    """Where a version of a view, or of an outer join, has its rows: no name that a batch's file may
    have, since versions are not numbered as batches are.
    """
    return folder / f"version-{version:010d}.parquet"


def version_of(file: Path) -> int | None:
    """The version of a file; None for files that are none."""
    word, dash, version = file.stem.partition("-")
    return int(version) if word == "version" and dash and version.isdecimal() else None


def _fixed_width(schema: pa.Schema) -> float:
    """Bytes of a row; 0 where rows differ."""
    try:
        return float(sum(f.type.bit_width for f in schema)) / 8
    except ValueError:
        return 0.0


def clear_staging(results: Path, keep: str = "") -> None:
    """Remove the staging directories of attempts other than ``keep``."""
    staging = results / STAGING
    if staging.exists():
        for directory in staging.iterdir():
            if directory.name != keep:
                shutil.rmtree(directory, ignore_errors=True)


def _sink_schema(query: QuerySpec) -> pa.Schema:
    """The schema of results, of changes of a view, or of an outer join's results."""
    if query.view is not None:
        return change_schema(query.view)
    return schema_of(query.projection if query.outer is None else query.outer.projection)


def write_empty(results: Path, query: QuerySpec) -> None:
    """An empty file with the schema, for a query that has had no result."""
    directory = results / query.id
    directory.mkdir(parents=True, exist_ok=True)
    if not any(directory.glob("*.parquet")):
        schema = _sink_schema(query)
        pq.write_table(schema.empty_table(), directory / "empty.parquet")


def change_schema(view: View) -> pa.Schema:
    """The columns of changes: a row's columns, the kind of change, and the version."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in change_columns(view)])
