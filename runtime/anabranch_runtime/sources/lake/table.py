"""Delta or Iceberg table, as a stream reads it: needed columns, permitted changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch_contract.connectors.lake.options import TableOptions
from anabranch_contract.connectors.sources import OnLoss
from anabranch_runtime.errors import SourceError


@dataclass(slots=True)
class LakeTable:
    """A Delta or Iceberg table, as the source of a stream.

    Attributes:
        title: its path or name, for messages.
        stream: its stream. ``columns``: the stream's columns that are in the table.
        operation: the stream's column of operations; None: its rows only insert.
    """

    title: str
    stream: str
    columns: Sequence[str]
    operation: str | None
    options: TableOptions

    @property
    def folder(self) -> Path | None:
        """Folder of all files of the table, to be permitted; None: the catalog names the files."""
        return None

    @property
    def catalog(self) -> str:
        """Catalog whose settings are used to open the table's files; empty: none is needed."""
        return ""

    @property
    def rest(self) -> float:
        """Least seconds between two searches for new versions of the table."""
        return 0.05

    def place(self, path: str) -> str:
        """Return the full path of one of the table's files."""
        return path

    def check_columns(self, names: Collection[str]) -> None:
        """Check that a table with the columns ``names`` has all columns that the stream needs.

        Raises:
            SourceError: a column is missing, or the table has the stream's column of operations.
        """
        where = f"streams.{self.stream}.columns"
        missing = [name for name in self.columns if name not in names]
        if missing:
            raise SourceError(
                "missing-column",
                f"{self.title} has no column {missing[0]!r}; it has {', '.join([*names][:30])}",
                field=where,
                remedy="declare the columns that the table has",
            )
        if self.operation in names:
            raise SourceError(
                "operation-taken",
                f"{self.title} has a column {self.operation!r} of its own",
                field=where,
                remedy="name another column for the operation (--operation)",
            )

    def check_removal(self, number: int, *, rewrites: bool) -> None:
        """Refuse a commit that removes rows from a stream whose rows only insert.

        Raises:
            SourceError: the stream's options do not allow such commits to be skipped.
        """
        if not rewrites and self.options.on_delete is OnLoss.SKIP:
            return
        remedy = (
            "register the stream with kind changes, or upsert with a key, which follow updates and "
            "deletes"
        )
        if not rewrites:
            remedy += "; or set on_delete to skip, to leave deleted rows in the stream"
        raise self.bad(
            "rows-removed",
            f"version {number} of {self.title} {'updates' if rewrites else 'deletes'} rows, which "
            "a stream of this kind can't follow",
            remedy,
        )

    def no_version(self, newest: int) -> SourceError:
        """Return the error for a start at a version that the table does not have."""
        return self.bad(
            "no-version",
            f"{self.title} has no version {self.options.start}; its newest is {newest}",
            "give the number of a version as start",
        )

    def replaced(self, number: int) -> SourceError:
        """Return the error for a version of another table than the one that was read before."""
        return self.bad(
            "table-replaced",
            f"{self.title} has another version {number} than before: it was replaced or restored",
            "register the stream again, which reads the table as it is now",
        )

    def bad(self, code: str, message: str, remedy: str) -> SourceError:
        """Return an error of the source that reads the table."""
        return SourceError(code, message, field=f"streams.{self.stream}.source", remedy=remedy)
