"""The rows of a query according to its result files, after each batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from anabranch_contract.queries.views import CHANGE, Change, View
from tests.support.worlds.view_runs import comparable, plain


@dataclass
class Answer:
    """Rows of a query whose result files are in ``folder``.

    Attributes:
        view: the query's view; None: its rows are the sum of its changes.
    """

    folder: Path
    view: View | None
    _read: set[str] = field(default_factory=set)
    _rows: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    _sum: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    _exact: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)

    def upto(self, batch: int | None) -> list[tuple[Any, ...]]:
        """Return the rows after ``batch``; None: according to all files."""
        return comparable(self.rows(batch))

    def rows(self, batch: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows after ``batch``, with values as in the files."""
        for file in self._fresh(batch):
            self._read.add(file.name)
            for row in pq.ParquetFile(file).read().to_pylist():
                self._apply(row)
        if self.view is not None:
            return list(self._rows.values())
        assert min(self._sum.values(), default=0) >= 0, "a row is deleted more than inserted"
        return [self._exact[row] for row in self._sum.elements()]

    def _fresh(self, batch: int | None) -> Iterable[Path]:
        """Files not read so far, in order: versions of a view, or a file per batch and task."""
        found = []
        for file in self.folder.glob("*.parquet"):
            first, _, second = file.stem.partition("-")
            number = int(second) - 1 if first == "version" else int(first)
            if file.name not in self._read and (batch is None or number <= batch):
                found.append((number, file))
        return [file for _, file in sorted(found)]

    def _apply(self, row: dict[str, Any]) -> None:
        if self.view is None:
            change = row.pop(CHANGE, Change.INSERT)
            values = tuple(row.values())
            rounded = tuple(map(plain, values))
            self._exact[rounded] = values
            self._sum[rounded] += 1 if change == Change.INSERT else -1
            return
        identity = tuple(repr(row[name]) for name in self.view.identity)
        if row[CHANGE] == Change.DELETE:
            self._rows.pop(identity, None)
        else:
            self._rows[identity] = tuple(row[o.name] for o in self.view.projection)
