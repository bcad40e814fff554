"""Recorded streams: Parquet files converted so that any batch is a slice of mapped memory.

A recording is converted once into an Arrow file in the stream's declared types, with record batches
of equal length except the last. Row ``k`` belongs to batch ``k // rows_per_batch``.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.sources.files.reading import open_arrow
from anabranch_runtime.sources.invalid import Decoded
from anabranch_runtime.storage.documents import Kind, read_document, write_document

KIND = Kind("conversion", "recording")
#: Rows per record batch of a converted recording.
RUN = 1 << 16


@lru_cache(maxsize=1024)
def _key(path: str, registration: str) -> str:
    return f"{Path(path).stem}-{registration}"


@dataclass(frozen=True, slots=True)
class Recording:
    """A converted recording: ``path`` of the Arrow file, number of rows, rows per batch, and
    ``source``, the path of the Parquet file."""

    stream: str
    path: str
    rows: int
    rows_per_batch: int
    source: str
    registration: str = ""

    @property
    def key(self) -> str:
        """The recording's key in the offset; differs between registrations of the stream."""
        return _key(self.path, self.registration)

    @property
    def batches(self) -> int:
        """Number of batches in the recording."""
        return -(-self.rows // self.rows_per_batch)

    def slice_of(self, batch: int) -> tuple[int, int]:
        """Return the first row of ``batch`` in the recording, and the row after its last one."""
        first = min(batch * self.rows_per_batch, self.rows)
        return first, min(first + self.rows_per_batch, self.rows)


def convert(record: StreamRecord, directory: Path) -> Recording:
    """Convert a stream's Parquet file into ``directory``, unless it has been converted already.

    Raises:
        PipelineError: the file is missing, lacks a declared column, or has a column whose type
            can't be converted.
    """
    source, rows_per_batch = check_recording(record)
    schema = pa.schema([(c.name, arrow_type(parse_type(c.type))) for c in record.columns])
    # The name depends on the source file and the schema, so that a changed file or schema is
    # converted again.
    stat = source.stat()
    made_of = repr((str(source), stat.st_size, stat.st_mtime_ns, str(schema)))
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    target = directory / f"{record.name}-{digest}.arrow"
    with pq.ParquetFile(source) as file:
        rows = file.metadata.num_rows
        if not _is_whole(str(target), *_stamp(target)):
            partial = target.with_suffix(".partial")
            _write_recording(file, schema, partial)
            write_document(_seal(target), KIND, _sum(partial))
            partial.rename(target)
    return Recording(
        record.name, str(target), rows, rows_per_batch, str(source), record.registration
    )


def check_recording(record: StreamRecord) -> tuple[Path, int]:
    """Check a recorded stream's Parquet file; return its path, and the rows per batch.

    Raises:
        PipelineError: as :func:`convert`, except for values that can't be converted.
    """
    source = Path(record.source.path or "")
    if not source.is_file():
        raise PipelineError(
            "missing-file",
            f"{source} does not exist",
            field=f"streams.{record.name}.source.path",
            remedy="give the path of a Parquet file that this machine can read",
        )
    rows_per_batch = record.source.rows_per_batch
    if rows_per_batch is None or rows_per_batch < 1:
        raise PipelineError(
            "bad-rows-per-batch",
            "a recorded stream needs rows_per_batch of at least 1",
            field=f"streams.{record.name}.source.rows_per_batch",
        )
    try:
        names = pq.read_schema(source).names
    except (OSError, pa.ArrowException) as cause:
        raise PipelineError(
            "bad-file",
            f"{source} is not a Parquet file: {cause}",
            field=f"streams.{record.name}.source.path",
            remedy="give the path of a Parquet file",
        ) from cause
    missing = [c.name for c in record.columns if c.name not in names]
    if missing:
        raise PipelineError(
            "missing-column",
            f"{source} has no column {missing[0]!r}",
            field=f"streams.{record.name}.columns",
            remedy="declare the columns that the file has",
        )
    return source, rows_per_batch


def _seal(target: Path) -> Path:
    """Return the path of the file that contains a converted recording's checksum."""
    return target.with_suffix(".json")


def _stamp(target: Path) -> tuple[int, int]:
    try:
        stat = target.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=1024)
def _is_whole(target: str, size: int, changed: int) -> bool:
    """Whether a converted recording matches its checksum; cached by its size and time of change."""
    path = Path(target)
    if not size or not _seal(path).exists():
        return False
    try:
        return bool(read_document(_seal(path), KIND) == _sum(path))
    except StateError:
        return False


def _sum(path: Path) -> list[int]:
    """Return the length and CRC-32 of a converted recording."""
    length = crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            length, crc = length + len(block), zlib.crc32(block, crc)
    return [length, crc]


def _write_recording(file: pq.ParquetFile, schema: pa.Schema, target: Path) -> None:
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        pending: list[pa.RecordBatch] = []
        waiting = 0
        for batch in file.iter_batches(batch_size=RUN, columns=schema.names):
            columns = [_convert_column(batch.column(f.name), f) for f in schema]
            pending.append(pa.RecordBatch.from_arrays(columns, schema=schema))
            waiting += batch.num_rows
            while waiting >= RUN:
                whole = pa.concat_batches(pending)
                writer.write_batch(pa.concat_batches([whole.slice(0, RUN)]))
                pending = [whole.slice(RUN)]
                waiting -= RUN
        if waiting:
            writer.write_batch(pa.concat_batches(pending))


def _convert_column(column: pa.Array, wanted: pa.Field) -> pa.Array:
    try:
        # Nanoseconds are truncated to microseconds; all other casts must be lossless.
        return column.cast(wanted.type, safe=not pa.types.is_timestamp(wanted.type))
    except pa.ArrowException as cause:
        raise PipelineError(
            "bad-column",
            f"a value of type {column.type} does not fit {wanted.type}: {cause}",
            field=wanted.name,
            remedy="declare the column with the type that the file has",
        ) from cause


_open = lru_cache(maxsize=256)(open_arrow)


def read_rows(path: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Yield rows ``[first, last)`` of a recording without copying them."""
    reader = _open(path)
    while first < last:
        number, offset = divmod(first, RUN)
        count = min(RUN - offset, last - first)
        yield reader.get_batch(number).slice(offset, count)
        first += count


def piece_of(recording: Recording, first: int, last: int) -> Piece:
    """Return the piece (one task's unit of input) for rows ``[first, last)`` of ``recording``."""
    where = {"path": recording.path, "first": first, "last": last}
    return Piece(
        "recording",
        recording.stream,
        (),
        last - first,
        where,
        source=recording.source,
        first=first,
        last=last,
    )


def read_recording(piece: Piece) -> Iterator[Decoded]:
    """Yield the rows of a piece made by :func:`piece_of`."""
    for rows in read_rows(**piece.where):
        yield rows, None


def batches_of(recordings: Sequence[Recording]) -> int:
    """Return the number of batches after which all recordings have been read."""
    return max((r.batches for r in recordings), default=0)
