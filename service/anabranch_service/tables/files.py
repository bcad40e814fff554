"""Result files of a query, and their rows that belong to a range of batches.

A result file is named for its last batch (``<batch>-<task>.parquet``, of a view or an outer join
``version-<batch + 1>.parquet``). Files with several batches are either merged files, whose metadata
has the number of rows of each batch, or groups (``commit_interval``), whose batches become visible
together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.connectors.sources import BATCHES
from anabranch_contract.errors import StructuredError

_VERSION = "version-"
#: Folder below the results directory where files are merged; a name with ``..`` is a merge that has
#: begun to replace files.
_MERGING, _UNDERWAY = ".merging", "*..*.parquet"


class TableError(StructuredError):
    """Result files that can't be read as a table, or a statement over them that can't run."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of one file, from number ``first`` to before number ``end`` (None: to its end)."""

    path: str
    first: int = 0
    end: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows of the file."""
        return self.first == 0 and self.end is None


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """The result files of one run of a query.

    Attributes:
        files: (last batch, path) of each file, in the order of their rows.
        marks: name and inode of each file, and names of replacements that have begun.
    """

    files: tuple[tuple[int, str], ...]
    marks: frozenset[tuple[str, int]]

    @staticmethod
    def of(results: Path, run: str) -> ResultFiles:
        """List the files of ``run`` below the results directory; none if it has no folder."""
        found, marks = list[tuple[int, str]](), set[tuple[str, int]]()
        if not results.is_absolute():
            # The runtime has not reported its directory yet.
            return ResultFiles((), frozenset())
        for path in sorted((results / run).glob("*.parquet")):
            batch = _batch_of(path.stem)
            if batch is not None:
                found.append((batch, str(path)))
                marks.add((path.name, _inode(path)))
        underway = (results / _MERGING / run).glob(_UNDERWAY)
        return ResultFiles(tuple(found), frozenset(marks | {(path.name, -1) for path in underway}))

    @property
    def is_settled(self) -> bool:
        """Whether no file was being replaced when the files were listed."""
        return all(inode >= 0 for _, inode in self.marks)

    @property
    def newest(self) -> int:
        """The last batch of the last file; -1 without files."""
        return max((batch for batch, _ in self.files), default=-1)

    def rows(self) -> int:
        """Return the number of rows of all files."""
        return sum(pq.read_metadata(path).num_rows for _, path in self.files)

    def pieces(self, after: int, upto: int) -> list[FileRows]:
        """Return the rows of the batches after ``after`` up to ``upto``, in order.

        Only the first file that ends after a bound may have rows from both sides of the bound.

        Raises:
            TableError: ``files-replaced``: a file has disappeared since it was listed.
        """
        found, before = list[FileRows](), {after, upto}
        for batch, path in self.files:
            if batch <= after:
                continue
            bounds = {bound for bound in before if bound < batch}
            before -= bounds
            if batch > upto and not bounds:
                break
            piece = FileRows(path) if not bounds else _file_piece(path, batch, after, upto)
            if piece.end is None or piece.end > piece.first:
                found.append(piece)
        return found


def _file_piece(path: str, last: int, after: int, upto: int) -> FileRows:
    try:
        found = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as cause:
        raise replaced(path) from cause
    known = (found.metadata or {}).get(BATCHES)
    batches: Iterable[tuple[int, int]] = json.loads(known) if known else [(last, found.num_rows)]
    first = end = 0
    for batch, rows in batches:
        first += rows if batch <= after else 0
        end += rows if batch <= upto else 0
    return FileRows(path, first, None if end == found.num_rows else end)


def replaced(path: str) -> TableError:
    """Return the error for a file that has disappeared or changed since it was listed."""
    return TableError(
        "files-replaced",
        f"{path} was replaced while it was read",
        remedy="try again: result files are being merged",
    )


def _batch_of(stem: str) -> int | None:
    if stem.startswith(_VERSION):
        number = stem.removeprefix(_VERSION)
        return int(number) - 1 if number.isdecimal() else None
    batch, _, task = stem.partition("-")
    return int(batch) if batch.isdecimal() and task.isdecimal() else None


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def in_batches(pieces: Iterable[FileRows]) -> Iterator[list[FileRows]]:
    """Group adjacent whole files; a file with only some rows to read is a separate group."""
    group: list[FileRows] = []
    for piece in pieces:
        if piece.is_whole:
            group.append(piece)
            continue
        if group:
            yield group
        group = []
        yield [piece]
    if group:
        yield group
