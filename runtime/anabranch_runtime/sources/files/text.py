"""Files of text: JSON lines and CSV, plain or compressed.

A position is the byte offset at which a record begins. If no quoted field can contain a line end,
every line begins a record. Otherwise the scanner finds records from a known position on. So a file
can be divided between any records, and its parts have the same rows as the file.
"""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from anabranch_contract.connectors.csv_text import BOM, SAMPLE, CsvDialect, other_than_utf8
from anabranch_runtime.sources.decode import Columns, from_json
from anabranch_runtime.sources.files.csv import CsvLayout, csv_layout, scanned
from anabranch_runtime.sources.files.envelopes import Envelope
from anabranch_runtime.sources.invalid import Decoded

#: Number of bytes that are decoded in one step.
CHUNK = 1 << 23
#: Assumed compression ratio: bytes of text per byte of a compressed file.
_RATIO = 5
_COMPRESSIONS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file of ``size`` bytes: CSV in a ``dialect``, or JSON lines (``dialect`` None), whose
    rows may be in envelopes. CSV headers may lack the ``optional`` columns."""

    path: Path
    size: int
    dialect: CsvDialect | None = None
    envelope: Envelope | None = None
    optional: frozenset[str] = frozenset()

    def density(self, columns: Columns) -> float:
        """Estimate the file's records per byte, and check that the file can be read.

        Raises:
            ValueError: the file is not UTF-8, or its header is malformed.
            MissingColumn: the header lacks a column.
        """
        with self._opened() as file:
            sample = file.read(SAMPLE)
            packed = self._is_packed()
        other = other_than_utf8(sample)
        if other is not None:
            raise ValueError(f"it is {other}, and only UTF-8 is read")
        if self.dialect is not None:
            self._layout(columns)
        lines = max(sample.count(b"\n"), sample.count(b"\r"), 1)
        return lines / max(len(sample), 1) * (_RATIO if packed else 1)

    def cut(self, start: int, targets: Sequence[int]) -> list[int]:
        """Return the position of the first record at or after each of ``targets``, which ascend;
        ``start``: a record's position before them. In a compressed file this is always the end."""
        if not targets or self._is_packed():
            return [self.size] * len(targets)
        with self.path.open("rb") as file:
            if start == 0 and file.read(len(BOM)) == BOM:
                start = min(len(BOM), self.size)
            if self._is_lines(file, start, targets[-1]):
                return [self._line(file, max(target, start)) for target in targets]
            return list(self._records(file, start, targets))

    def rows(self, columns: Columns, first: int, last: int | None) -> Iterator[Decoded]:
        """Yield the file's rows between two positions; if ``last`` is None, to the end.

        Raises:
            ValueError: as :meth:`density`.
        """
        layout = None if self.dialect is None else self._layout(columns)
        with self._opened() as file:
            left = None if last is None or self._is_packed() else last
            if layout is not None:
                first = max(first, layout.begin)
            file.seek(first)
            rest, final = b"", False
            while not final:
                wanted = CHUNK if left is None else min(left - file.tell(), CHUNK)
                chunk = file.read(max(wanted, 0))
                final = not chunk or (left is not None and file.tell() >= left)
                data = rest + chunk
                if layout is not None:
                    decoded, used = layout.decode(data, final=final)
                    yield from decoded
                else:
                    used = len(data) if final else data.rfind(b"\n") + 1
                    if used:
                        yield from from_json(data[:used], columns, envelope=self.envelope)
                rest = data[used:]

    def _opened(self) -> BinaryIO:
        """Open the text file for reading, decompressed."""
        with self.path.open("rb") as file:
            sign = file.read(3)
        opens = next((o for s, o in _COMPRESSIONS.items() if sign.startswith(s)), None)
        return self.path.open("rb") if opens is None else cast("BinaryIO", opens(self.path, "rb"))

    def _is_packed(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(3).startswith(tuple(_COMPRESSIONS))

    def _layout(self, columns: Columns) -> CsvLayout:
        assert self.dialect is not None
        with self._opened() as file:
            head, size = b"", SAMPLE
            while True:
                more = file.read(size)
                head, final, size = head + more, len(more) < size, 4 * size
                given = self.dialect, columns
                layout = csv_layout(head, *given, final=final, optional=self.optional)
                if layout is not None:
                    return layout

    def _is_lines(self, file: BinaryIO, start: int, target: int) -> bool:
        """Whether every line of the file from ``start`` to ``target`` is one record."""
        if self.dialect is None or not self.dialect.multiline or not self.dialect.quote:
            return True
        quote, end = self.dialect.quote.encode(), self._line(file, max(target, start))
        file.seek(start)
        while (left := end - file.tell()) > 0:
            if quote in file.read(min(left, CHUNK)):
                return False
        return True

    def _line(self, file: BinaryIO, target: int) -> int:
        """Return the offset of the file's first line at or after ``target``."""
        at = max(target - 1, 0)
        file.seek(at)
        while target and at < self.size:
            chunk = file.read(SAMPLE)
            if not chunk:
                break
            found = chunk.find(b"\n")
            if found >= 0:
                return min(at + found + 1, self.size)
            at += len(chunk)
        return self.size if target else 0

    def _records(self, file: BinaryIO, start: int, targets: Sequence[int]) -> Iterator[int]:
        assert self.dialect is not None
        at, rest, wanted = start, b"", list(targets)
        file.seek(start)
        while wanted:
            data = rest + file.read(CHUNK)
            final = at + len(data) >= self.size or len(data) == len(rest)
            found = scanned(data, self.dialect, final=final)
            begins = at + np.append(found.begins.astype(np.int64), found.used)
            places = np.searchsorted(begins, wanted)
            for place in places[places < len(begins)]:
                yield min(int(begins[place]), self.size)
            wanted = wanted[int((places < len(begins)).sum()) :]
            if final:
                yield from [self.size] * len(wanted)
                return
            at, rest = at + found.used, data[found.used :]
