"""Reading parts of files, in tasks."""

from __future__ import annotations

from collections.abc import Iterator
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
    """
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        if last is None:
            last = file.metadata.num_rows
        begin, skip = 0, 0
        groups: list[int] = []
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if begin < last and first < begin + rows:
                if not groups:
                    skip = first - begin
                groups.append(group)
            begin += rows
        left = last - first
        for batch in file.iter_batches(row_groups=groups, columns=names):
            part = batch.slice(skip, left)
            skip = max(skip - batch.num_rows, 0)
            left -= part.num_rows
            if part.num_rows:
                yield part
            if not left:
                return
        if left:
            raise damaged(path, f"it has {left} rows less than it says")


def _arrow(path: Path, names: list[str], first: int, last: int | None) -> Iterator[pa.RecordBatch]:
    reader, begin = open_arrow(str(path)), 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        low = max(first - begin, 0)
        high = batch.num_rows if last is None else min(last - begin, batch.num_rows)
        begin += batch.num_rows
        if low < high:
            part = batch.select(names).slice(low, high - low)
            # The full check is needed: Arrow trusts offsets in a file, and a wrong one crashes it.
            part.validate(full=True)
            yield part
    if last is not None and begin < last:
        raise damaged(path, f"it has {last - begin} rows less than it had")


def open_arrow(path: str) -> pa.ipc.RecordBatchFileReader:
    """Open an Arrow IPC file, mapped into memory."""
    return pa.ipc.open_file(pa.memory_map(path))
