"""Reading of parts of files (Parquet, Arrow, text) by tasks."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.connectors.sources import FileType
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.decode import schema_of, typed
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.sources.files.text import TextFile
from anabranch_runtime.sources.files.trouble import BROKEN, damaged, refused, unchanged
from anabranch_runtime.sources.invalid import Decoded
from anabranch_runtime.sources.permitted import resolve

#: Maximum compressed bytes of a row group that stays in memory between two reads of a file.
MOST_KEPT = 32 << 20
#: Text formats, whose positions are byte offsets.
TEXT = (FileType.JSON, FileType.CSV)


def read_file(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a part of a file.

    Raises:
        SourceError: the file has changed, is missing, or can't be read.
    """
    where = piece.where
    path = Path(where["path"])
    unchanged(path, where["size"], where["mtime"])
    if resolve(str(path)) != where["real"]:
        raise SourceError(
            "file-changed",
            f"{path} has become a link since it was found",
            field=str(path),
            remedy="put back the file",
        )
    first, last = where["first"], where["last"]
    try:
        if where["type"] in TEXT:
            given = where["size"], where["dialect"], where["envelope"], piece.optional
            text = TextFile(path, *given)
            yield from text.rows(piece.columns, first, last)
            return
        schema = schema_of(piece.columns)
        batches = parquet_rows if where["type"] == FileType.PARQUET else _arrow
        names = schema.names
        if piece.optional:
            is_parquet = where["type"] == FileType.PARQUET
            there = (pq.read_schema(path) if is_parquet else open_arrow(str(path)).schema).names
            names = [n for n in names if n in there or n not in piece.optional]
        for batch in batches(path, names, first, last):
            yield typed(batch, schema, piece.optional)
    except MemoryError:
        raise
    except BROKEN as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise refused(path, cause) from cause
        raise damaged(path, str(cause)) from cause


def parquet_rows(
    path: Any, names: list[str], first: int, last: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows ``[first, last)`` of a Parquet file (its path, or the opened file); only row
    groups that contain them are read.

    A file given by its path stays open if its row group has more rows, so that the next part,
    usually read by the next batch, need not decode the row group's earlier rows again.
    """
    key = _identity(path, names) if isinstance(path, Path) else None
    found = None if key is None else _OPEN.pop(key, None)
    # Another thread may read another part of the file.
    if found is None or not found.reaches(first):
        if found is not None:
            found.file.close()
        found = _OpenParquet.opened(path, names, first)
    kept = False
    try:
        yield from found.rows(path, first, last)
        kept = key is not None and found.is_worth_keeping
    finally:
        if not kept:
            found.file.close()
    if key is not None and kept:
        while _OPEN:
            with contextlib.suppress(KeyError):
                _OPEN.popitem()[1].file.close()
        _OPEN[key] = found


@dataclass(slots=True)
class _OpenParquet:
    """An open Parquet file, read up to row ``position``.

    Attributes:
        begins: first row of each row group, and the number of all rows.
        batches: reader of further rows; the rows in ``rest`` precede these.
    """

    file: pq.ParquetFile
    begins: list[int]
    batches: Iterator[pa.RecordBatch]
    position: int
    names: list[str]
    rest: pa.RecordBatch | None = None

    @classmethod
    def opened(cls, path: Any, names: list[str], first: int) -> _OpenParquet:
        """Open a Parquet file to read the columns ``names`` from row ``first`` on."""
        file = pq.ParquetFile(path, page_checksum_verification=True)
        try:
            sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
            begins = [0, *accumulate(sizes)]
            group = max(bisect_right(begins, first) - 1, 0)
            batches = file.iter_batches(row_groups=range(group, len(sizes)), columns=names)
            return cls(file, begins, batches, begins[min(group, len(sizes))], names)
        except BaseException:
            file.close()
            raise

    def reaches(self, first: int) -> bool:
        """Whether row ``first`` is in the current row group; if not, reopening is cheaper."""
        group = max(bisect_right(self.begins, first) - 1, 0)
        return self.begins[group] <= self.position <= first

    def rows(self, path: Any, first: int, last: int | None) -> Iterator[pa.RecordBatch]:
        """Yield rows ``[first, last)`` of the Parquet file; ``path`` is named in errors."""
        last = self.begins[-1] if last is None else last
        while self.position < last:
            batch, self.rest = self.rest or next(self.batches, None), None
            if batch is None:
                missing = last - max(first, self.position)
                raise damaged(path, f"it has {missing} rows less than it says")
            low, high = max(first - self.position, 0), last - self.position
            if high < batch.num_rows:
                self.rest = batch.slice(high)
            part = batch.slice(low, high - low)
            self.position += min(high, batch.num_rows)
            if part.num_rows:
                yield part

    @property
    def is_worth_keeping(self) -> bool:
        """Whether the row group has more rows, and occupies little memory."""
        if self.position >= self.begins[-1] or self.position in self.begins:
            return False
        group = self.file.metadata.row_group(bisect_right(self.begins, self.position) - 1)
        columns = map(group.column, range(group.num_columns))
        wanted = {*self.names}
        held = sum(c.total_compressed_size for c in columns if c.path_in_schema in wanted)
        return bool(held <= MOST_KEPT)


#: The Parquet file that stays open in this process; at most one.
_OPEN = dict[tuple[Any, ...], _OpenParquet]()


def _identity(path: Path, names: list[str]) -> tuple[Any, ...]:
    there = path.stat()
    return (str(path), there.st_ino, there.st_size, there.st_mtime_ns, *names)


def _arrow(path: Path, names: list[str], first: int, last: int | None) -> Iterator[pa.RecordBatch]:
    reader, begin = open_arrow(str(path)), 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        low = max(first - begin, 0)
        high = batch.num_rows if last is None else min(last - begin, batch.num_rows)
        begin += batch.num_rows
        if low < high:
            part = batch.select(names).slice(low, high - low)
            # The full check is needed: Arrow trusts the offsets in a file, and may crash otherwise.
            part.validate(full=True)
            yield part
    if last is not None and begin < last:
        raise damaged(path, f"it has {last - begin} rows less than it had")


def open_arrow(path: str) -> pa.ipc.RecordBatchFileReader:
    """Open an Arrow IPC file, mapped into memory."""
    return pa.ipc.open_file(pa.memory_map(path))
