"""Numbered tables of a batch, with the addresses of the columns that a probe program reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import I32
from anabranch_runtime.index.rounds import WIDTH
from anabranch_runtime.storage.partial import RowSet, Table, Tables, narrow
from anabranch_runtime.storage.segment import SegmentReader

#: Types of columns whose values are integers of at most 64 bits.
_WORDS = frozenset(
    {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")}
)


class NumberedTables:
    """Tables, numbered in the order of their first use.

    Attributes:
        places: column x table x fields of its location (``index.rounds.AT`` and so on); 0 before
            :meth:`locate`.
    """

    def __init__(self, names: Sequence[str], read: Mapping[str, Sequence[int]]) -> None:
        """``names``: names of the columns; ``read``: stream -> indexes of its columns in them."""
        self._names, self._read = names, read
        #: Stream -> key of its column locations in a segment's cache.
        self._called = {stream: repr((names, some)) for stream, some in read.items()}
        self._members: list[Table] = []
        self._numbers: dict[int, int] = {}
        self._streams: list[str] = []
        self._located = np.zeros(64, np.bool_)
        self._some: dict[bytes, Tables] = {}
        self.places = np.zeros((len(names), 64, WIDTH + 1), np.int64)

    def number(self, table: Table, stream: str) -> int:
        """The number of ``table``, which has tuples of ``stream``."""
        found = self._numbers.get(id(table))
        if found is None:
            found = self._numbers[id(table)] = len(self._members)
            self._members.append(table)
            self._streams.append(stream)
            if found == len(self._located):
                self._located = np.concatenate([self._located, np.zeros(found, np.bool_)])
                self.places = np.concatenate([self.places, np.zeros_like(self.places)], axis=1)
        return found

    def locate(self, numbers: I32) -> None:
        """Fill in the column locations of these tables; numbers may repeat."""
        new = np.unique(numbers[~self._located[numbers]])
        if not len(new):
            return
        self._located[new] = True
        lines = [self._line(self._members[number], self._streams[number]) for number in new]
        found = np.frombuffer(b"".join(lines), np.int64)
        self.places[:, new] = found.reshape(len(new), len(self._names), -1).transpose(1, 0, 2)

    def _line(self, table: Table, stream: str) -> bytes:
        """Column locations of ``table``; a segment caches its own."""
        kept = table.lines if isinstance(table, SegmentReader) else {}
        key = self._called.get(stream, "")
        if key not in kept:
            line = np.zeros((len(self._names), WIDTH + 1), np.int64)
            for column in self._read.get(stream, ()):
                place = table.place(self._names[column])
                kind = place.column.type
                if kind not in _WORDS:
                    raise TypeError(f"{self._names[column]} has values of type {kind}")
                line[column] = place.first, place.valid, place.offset, kind.bit_width
            kept[key] = line.tobytes()
        return kept[key]

    def rows(self, which: I32, rows: I32) -> RowSet:
        """The row set of (table number, row) pairs: ``which`` and ``rows``."""
        if (which == which[0]).all():
            key, inverse = which[:1], None
        else:
            key, inverse = np.unique(which, return_inverse=True)
            inverse = inverse.astype(narrow(len(key)))
        tables = self._some.get(key.tobytes())
        if tables is None:
            chosen = Tables([self._members[number] for number in key.tolist()])
            tables = self._some[key.tobytes()] = chosen
        return RowSet(tables, inverse, rows)
