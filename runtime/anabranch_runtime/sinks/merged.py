"""Merging of result files on demand: many small files of a query become few large files.

Every task of every batch writes a file, so a thousand queries have thousands of files after a dozen
batches. Successive files ``<batch>-<task>.parquet`` of one query are merged into one file with all
their rows in order, under the name of the last of them. Only batches that can't be repeated any
more are merged, so the pipeline may run meanwhile.

At no moment does a folder's listing show a row twice, even after a kill:

1. The merged file is written below ``.merging/<query>/``, made durable, and renamed there to
   ``<first>..<last>.parquet``, named by the files that it replaces. From now on the merge is
   irrevocable.
2. All of these files except the last are deleted, durably.
3. The merged file is renamed to the name of the last file.

If steps 2 and 3 were interrupted, they are completed (:func:`settle`) when the runtime starts, and
by the next merge. Between 2 and 3, for some milliseconds, the folder lacks the deleted files' rows;
and a reader that has listed the folder before misses the deleted files. A merged file's metadata
has the number of rows of each of its batches.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from anabranch_contract.connectors.sources import BATCHES
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.parquet import ResultWriter, batch_of, version_of
from anabranch_runtime.storage.documents import sync_path

HOME = ".merging"
#: Bytes of a merged file from which on no more files are added to it.
LARGE = 128 << 20
#: Bytes of rows that are buffered for one row group.
PAGE = 32 << 20
_BETWEEN = ".."


@dataclass(frozen=True, slots=True)
class MergedResults:
    """Outcome of a merge of the result files below one directory.

    Attributes:
        queries: number of queries with merged files.
        before, after: number of result files of all queries. ``bytes``: total size afterwards.
    """

    queries: int
    before: int
    after: int
    bytes: int


def merge_results(results: Path, settled: int, large: int = LARGE) -> MergedResults:
    """Merge the result files of all queries.

    Args:
        results: the results directory.
        settled: batches before this one are never repeated.
        large: bytes of a merged file from which on no more files are added to it.

    Raises:
        SinkError: ``merging``: another process is merging.
        OSError: e.g. the disk is full; files that were not merged are unchanged.
    """
    queries = before = after = size = 0
    with _alone(results) as alone:
        if not alone:
            raise SinkError(
                "merging",
                f"the files in {results} are being merged",
                field="results",
                remedy="wait until the merge has ended",
            )
        _settle(results)
        for folder in sorted(p for p in results.iterdir() if p.is_dir() and p.name[0] != "."):
            files = _files(folder)
            before += len(files)
            old = [file for file in files if (batch_of(file) or 0) < settled]
            groups = _groups(old, large)
            for group in groups:
                _merge(results, folder, group)
            queries += bool(groups)
            files = _files(folder)
            after += len(files)
            size += sum(file.stat().st_size for file in files)
        _settle(results)
    return MergedResults(queries, before, after, size)


def settle(results: Path) -> None:
    """Complete the merge of a killed process, unless another merge is running."""
    if (results / HOME).exists():
        with _alone(results) as alone:
            if alone:
                _settle(results)


def _files(folder: Path) -> list[Path]:
    """Return a query's result files of batches, in order; none for files of versions."""
    files = sorted(folder.glob("*.parquet"))
    if any(version_of(file) is not None for file in files):
        return []
    return [file for file in files if batch_of(file) is not None]


def _groups(files: Sequence[Path], large: int) -> list[list[Path]]:
    """Group successive result files, each group to be merged into one file."""
    groups: list[list[Path]] = []
    room = 0
    for file in files:
        size = file.stat().st_size
        if size > room:
            groups.append([])
            room = large
        groups[-1].append(file)
        room -= size
    return [group for group in groups if len(group) > 1]


def _merge(results: Path, folder: Path, group: Sequence[Path]) -> None:
    home = results / HOME / folder.name
    home.mkdir(exist_ok=True)
    draft = home / "draft"
    batches: list[tuple[int, int]] = []
    schema = pq.read_schema(group[0])
    writer = ResultWriter(draft, schema, PAGE)
    for file in group:
        with pq.ParquetFile(file) as found:
            if not found.schema_arrow.equals(schema):
                # The file was not written by the pipeline, so its group stays unmerged.
                writer.close()
                draft.unlink()
                return
            batches += _batches(file, found)
            for number in range(found.num_row_groups):
                for batch in found.read_row_group(number, use_threads=False).to_batches():
                    writer.add(batch)
    writer.note(BATCHES, json.dumps(batches).encode())
    writer.close()
    if pq.read_metadata(draft).num_rows != sum(rows for _, rows in batches):
        raise SinkError("merge-failed", f"rows of {folder} are missing in {draft}")
    sync_path(draft)
    ready = home / f"{group[0].stem}{_BETWEEN}{group[-1].name}"
    draft.rename(ready)
    sync_path(home)
    _take_place(folder, ready)


def _batches(file: Path, found: pq.ParquetFile) -> list[tuple[int, int]]:
    """Return (batch, rows) of the batches in a result file; a merged file's metadata lists them."""
    known = (found.metadata.metadata or {}).get(BATCHES)
    rows: int = found.metadata.num_rows
    return json.loads(known) if known else [(batch_of(file) or 0, rows)]


def _take_place(folder: Path, ready: Path) -> None:
    """Replace the merged files by their result (steps 2 and 3 of the module docstring)."""
    first, _, last = ready.stem.partition(_BETWEEN)
    for file in _files(folder):
        if first <= file.stem < last:
            file.unlink()
    sync_path(folder)
    ready.rename(folder / f"{last}.parquet")
    sync_path(folder)


def _settle(results: Path) -> None:
    for home in sorted(p for p in (results / HOME).iterdir() if p.is_dir()):
        for file in sorted(home.iterdir()):
            if _BETWEEN in file.name:
                _take_place(results / home.name, file)
            else:
                file.unlink()
        home.rmdir()


@contextmanager
def _alone(results: Path) -> Iterator[bool]:
    """Lock out all other merges during the ``with`` block; yields False if a merge is running."""
    home = results / HOME
    home.mkdir(exist_ok=True)
    with (home / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
