"""Numbering of a batch's tables, with the addresses of the columns that a probe program reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.index.rounds import DATA
from anabranch_runtime.storage.partial import GrowingTables, RowSet, Table
from anabranch_runtime.storage.segment import SegmentReader

#: Types of columns that the kernel reads -> bits of a value; 0: strings.
_WIDTHS = {
    pa.int8(): 8,
    pa.int16(): 16,
    pa.int32(): 32,
    pa.int64(): 64,
    pa.duration("us"): 64,
    pa.date32(): 32,
    pa.timestamp("us"): 64,
    pa.timestamp("us", "UTC"): 64,
    pa.string(): 0,
}


class NumberedTables:
    """Tables (segments, batches) that probes read, numbered in the order of their first use.

    A table's *kind* is its stream or, of an MIR, its store; tables of a kind have equal columns.

    Attributes:
        places: shape (columns, tables, fields of a location: ``index.rounds.AT`` to ``DATA``); 0
            before :meth:`locate`.
    """

    def __init__(
        self,
        names: Sequence[str],
        read: Mapping[str, Sequence[int]],
        prepare: Callable[[Table, str], None] | None = None,
    ) -> None:
        """``names``: names of columns; ``read``: kind -> indexes in ``names`` of its tables'
        columns; ``prepare``: called with a table and its kind before its columns are located."""
        self._names, self._read, self._prepare = names, read, prepare
        #: Kind -> key under which a segment caches the locations of its columns.
        self._called = {kind: repr((names, some)) for kind, some in read.items()}
        self._unread = repr((names, ()))
        self._members: list[Table] = []
        self._numbers: dict[tuple[int, str], int] = {}
        self._kinds: list[str] = []
        #: Kind -> its tables. ``_local``: per table, its number among the tables of its kind.
        self._alike: dict[str, GrowingTables] = defaultdict(GrowingTables)
        self._local = np.zeros(64, np.int32)
        self._located = np.zeros(64, np.bool_)
        self.places = np.zeros((len(names), 64, DATA + 1), np.int64)

    def number(self, table: Table, kind: str) -> int:
        """Return the number of ``table``, of the given ``kind``; a new one gets the next number."""
        found = self._numbers.get((id(table), kind))
        if found is None:
            found = self._numbers[id(table), kind] = len(self._members)
            self._members.append(table)
            self._kinds.append(kind)
            if found == len(self._located):
                self._located = np.concatenate([self._located, np.zeros(found, np.bool_)])
                self._local = np.concatenate([self._local, np.zeros_like(self._local)])
                self.places = np.concatenate([self.places, np.zeros_like(self.places)], axis=1)
            self._local[found] = self._alike[kind].add(table)
        return found

    def locate(self, numbers: I32 | Ints) -> None:
        """Fill in the column locations of the tables with these numbers (repetitions allowed)."""
        new = np.unique(numbers[~self._located[numbers]])
        if not len(new):
            return
        self._located[new] = True
        if self._prepare is not None:
            for number in new:
                self._prepare(self._members[number], self._kinds[number])
        lines = [self._line(self._members[number], self._kinds[number]) for number in new]
        found = np.frombuffer(b"".join(lines), np.int64)
        self.places[:, new] = found.reshape(len(new), len(self._names), -1).transpose(1, 0, 2)

    def _line(self, table: Table, kind: str) -> bytes:
        """Return the column locations of ``table`` as bytes; a segment caches them."""
        kept = table.lines if isinstance(table, SegmentReader) else {}
        key = self._called.get(kind, self._unread)
        if key not in kept:
            line = np.zeros((len(self._names), DATA + 1), np.int64)
            for column in self._read.get(kind, ()):
                place = table.place(self._names[column])
                values = place.column.type
                if values not in _WIDTHS:
                    raise TypeError(f"{self._names[column]} has values of type {values}")
                width = _WIDTHS[values]
                line[column] = place.first, place.valid, place.offset, width, place.data
            kept[key] = line.tobytes()
        return kept[key]

    def of(self, rows: RowSet, kind: str) -> I32:
        """Return the table number of each row of a row set, whose tables are of ``kind``."""
        rows = rows.settled()
        numbers = np.array([self.number(table, kind) for table in rows.tables.members], np.int32)
        if rows.which is None:
            return np.full(len(rows.rows), numbers[0], np.int32)
        found: I32 = numbers[rows.which]
        return found

    def rows(self, which: I32, rows: I32, kind: str) -> RowSet:
        """Return the rows ``rows[i]`` of tables numbered ``which[i]`` (``kind``) as a row set."""
        return RowSet(self._alike[kind], self._local[which], rows)
