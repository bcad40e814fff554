"""Log of the versions of a table: one line per version, durable before offsets refer to it.

The first version is the snapshot: the files that had the table's rows at one moment. Each further
version has the files whose rows a commit inserted or deleted, in the order in which they are read.
So the input of a batch can be determined even if the table's own log no longer has the version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from pathlib import Path

from anabranch_runtime.sources.files.log import append_lines, read_lines


class RowsOf(StrEnum):
    """The meaning of a file's rows: all are inserted, all are deleted, or a column states which."""

    INSERTED = "i"
    DELETED = "d"
    CHANGES = "c"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of a table.

    Attributes:
        path: path relative to the table's folder; without a folder, as the table names it.
        size: bytes of the file. ``rows``: rows in it, deleted rows included.
        values: partition column -> its value as text, None for NULL.
        hidden: files with the positions of rows that are not read, since they were deleted before.
        only: files with the positions of the only rows to read; empty: all rows are read.
    """

    path: str
    size: int
    rows: int
    of: RowsOf = RowsOf.INSERTED
    values: dict[str, str | None] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table.

    Attributes:
        number: version number by the table's format.
        committed: time of its commit, seconds since 1970.
        mark: value by which versions of different tables with the same number differ.
        fields: column -> its id, if files may have the column under another name.
        sequence: number of the version's commit, if ``number`` is not it; 0: not known.
    """

    number: int
    committed: float
    mark: int
    files: tuple[TableFile, ...] = ()
    fields: dict[str, int] = field(default_factory=dict)
    sequence: int = 0

    @property
    def rows(self) -> int:
        """Number of rows in the version's files."""
        return sum(file.rows for file in self.files)


@dataclass(slots=True)
class TableLog:
    """Log of the versions of one table that have been found.

    Attributes:
        versions: found versions. ``ends``: for each version, the number of files up to it.
        files: the files of all versions. ``passed``: for each file, and for the end, the number of
            all rows before it.
    """

    path: Path
    versions: list[TableVersion] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    files: list[TableFile] = field(default_factory=list)
    passed: list[int] = field(default_factory=lambda: [0])

    @staticmethod
    def load(path: Path) -> TableLog:
        """Load the log of a table's versions at ``path``."""
        log = TableLog(path)
        for line in read_lines(path):
            number, committed, mark, files, *more = json.loads(line)
            found = [
                TableFile(path, size, rows, RowsOf(of), values, *map(tuple, deletes))
                for path, size, rows, of, values, *deletes in files
            ]
            log._know(TableVersion(number, committed, mark, tuple(found), *more))
        return log

    def add(self, versions: Sequence[TableVersion]) -> None:
        """Append versions of the table to the log, durably."""
        append_lines(
            self.path,
            [
                json.dumps(
                    [
                        *(one.number, one.committed, one.mark),
                        [
                            [f.path, f.size, f.rows, f.of, f.values, f.hidden, f.only]
                            for f in one.files
                        ],
                        *(one.fields, one.sequence),
                    ]
                )
                for one in versions
            ],
        )
        for one in versions:
            self._know(one)

    def _know(self, version: TableVersion) -> None:
        self.versions.append(version)
        self.files += version.files
        self.ends.append(len(self.files))
        rows = accumulate((f.rows for f in version.files), initial=self.passed.pop())
        self.passed += rows
