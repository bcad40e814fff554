"""Files of a directory as a feed: each file once, in the order in which it was found.

What is found goes to a *log* beside the state, a line per file, and is on disk before an offset
that refers to it is handed out. The offset is the number of files that have been read to their end,
and the position in the next: rows, or bytes of JSON lines. So a batch is a part of the log, however
the directory looks when it is repeated. Within a batch of new files, the order is by time of
modification and name.

A file must not change once it is there: write it under a name that begins with ``.`` or ``_``, or
ends in ``.tmp`` or ``.partial``, and rename it. One that has changed since it was found is an
error; one that has gone before anything of it was read is left out, which is counted.

A directory is listed only when its time of modification says that something has changed in it.
"""

from __future__ import annotations

import fnmatch
import json
import os
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_planner.feeds import FileType, file_options
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.decode import from_json, schema_of, typed
from anabranch_runtime.sources.feed import Piece, Waiting, feed_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch_planner.feeds import FileOptions
    from anabranch_runtime.control import StreamRecord
    from anabranch_runtime.sources.invalid import Decoded

#: A listing is trusted if the directory had not changed for so long before it, in nanoseconds:
#: file systems keep times in steps of up to two seconds.
SETTLED = 2_100_000_000
#: Seconds between two listings of a directory in which files keep appearing.
LISTING = 0.05
#: Bytes of JSON lines that are decoded at once, and that are looked at to tell a line's length.
CHUNK, SAMPLE = 1 << 23, 1 << 16


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it was found."""

    name: str
    size: int
    mtime: int


@dataclass(slots=True)
class FileLog:
    """The log of one directory: what has been found, and which of it had gone unread."""

    path: Path
    files: list[Found] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)

    @staticmethod
    def load(path: Path) -> FileLog:
        """The log at ``path``; a last line that was not finished is cut off."""
        log = FileLog(path)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            return log
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            with path.open("r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
        for line in whole.splitlines():
            document = json.loads(line)
            if isinstance(document, int):
                log.gone.add(document)
            else:
                log.files.append(Found(*document))
        return log

    def add(self, files: list[Found], gone: list[int]) -> None:
        """Append durably."""
        if not files and not gone:
            return
        lines = [json.dumps([f.name, f.size, f.mtime]) for f in files] + [str(n) for n in gone]
        with self.path.open("a") as file:
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        self.files += files
        self.gone |= set(gone)


@dataclass(slots=True)
class FileFeed:
    """A stream that is read from the files of a directory."""

    record: StreamRecord
    options: FileOptions
    directory: Path
    id: str
    log_path: Path
    _log: FileLog | None = None
    _names: set[str] = field(default_factory=set)
    #: The directory's time of modification at a listing that is trusted.
    _listed: int = -1
    _next_listing: float = 0.0
    #: Number in the log -> how long the file is: rows, or bytes of JSON lines.
    _lengths: dict[int, int] = field(default_factory=dict)
    #: Rows per byte of file, as last seen.
    _density: float | None = None

    @property
    def lost(self) -> int:
        """Files that had gone before they were read."""
        return 0 if self._log is None else len(self._log.gone)

    def begin(self) -> Any:
        """Always with what is there."""
        return

    def waiting(self, offset: Any) -> Waiting:
        """Rows of files that were not read yet, by their size."""
        self._discover()
        log, (number, position) = self._loaded(), offset or (0, 0)
        if number >= len(log.files):
            return Waiting(0)
        if self._density is None:
            self._length(number)
        rest = sum(f.size for n, f in enumerate(log.files[number:], number) if n not in log.gone)
        rows = rest * (self._density or 0.0) - self._rows(position)
        age = time.time() - log.files[number].mtime / 1e9
        return Waiting(max(round(rows), 1), max(age, 0.0))

    def advance(self, offset: Any, rows: int) -> Any:
        """On by ``rows``, in the middle of a file if need be."""
        number, position = offset or (0, 0)
        log, left = self._loaded(), float(max(rows, 1))
        while number < len(log.files) and left > 0:
            length = self._length(number)
            step = min(length - position, self._units(left))
            left -= self._rows(step)
            position += step
            if position >= length:
                number, position = number + 1, 0
        return [number, position]

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Ranges of rows or bytes of files."""
        first, begin = start or (0, 0)
        last, stop = end
        spans = []
        for number in range(first, min(last + 1, len(self._loaded().files))):
            low = begin if number == first else 0
            high = stop if number == last else self._length(number, planned=True)
            if low < high:
                spans.append((number, low, high))
        size = max(sum(high - low for _, low, high in spans) // parts, self._units(1.0))
        found = []
        for number, low, high in spans:
            count = max(round((high - low) / size), 1)
            cuts = [low + (high - low) * i // count for i in range(count + 1)]
            found += [self._piece(number, a, b) for a, b in pairwise(cuts) if a < b]
        return found

    def _piece(self, number: int, low: int, high: int) -> Piece:
        file = self._loaded().files[number]
        where = {
            "path": str(self.directory / file.name),
            "size": file.size,
            "mtime": file.mtime,
            "type": self.options.type,
            "first": low,
            "last": high,
        }
        columns = tuple((c.name, c.type) for c in self.record.columns)
        return Piece("file", self.record.name, columns, round(self._rows(high - low)), where)

    def _loaded(self) -> FileLog:
        if self._log is None:
            self._log = FileLog.load(self.log_path)
            self._names = {f.name for f in self._log.files}
        return self._log

    def _discover(self) -> None:
        """Look for files that are new."""
        log, now = self._loaded(), time.monotonic()
        if now < self._next_listing:
            return
        try:
            changed = self.directory.stat().st_mtime_ns
            if changed == self._listed:
                return
            began = time.time_ns()
            new = []
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    if entry.name not in self._names and self._wanted(entry):
                        stat = entry.stat()
                        new.append(Found(entry.name, stat.st_size, stat.st_mtime_ns))
        except OSError as cause:
            raise SourceError(
                "no-directory",
                f"{self.directory} can't be listed: {cause.strerror}",
                field=f"streams.{self.record.name}.source.path",
                remedy="give the path of a directory that the runtime can read",
            ) from cause
        log.add(sorted(new, key=lambda f: (f.mtime, f.name)), [])
        self._names |= {f.name for f in new}
        self._listed = changed if began - changed > SETTLED else -1
        self._next_listing = now + LISTING

    def _wanted(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        hidden = name.startswith((".", "_")) or name.endswith((".tmp", ".partial"))
        return not hidden and fnmatch.fnmatchcase(name, self.options.pattern) and entry.is_file()

    def _length(self, number: int, *, planned: bool = False) -> int:
        """Rows, or bytes of JSON lines, of a file; 0 of one that had gone before it was read.

        One that is part of a batch already (``planned``) must be there.
        """
        log = self._loaded()
        if number in log.gone:
            return 0
        if number not in self._lengths:
            file = log.files[number]
            path = self.directory / file.name
            if not planned and not path.exists():
                log.add([], [number])
                return 0
            _unchanged(path, file.size, file.mtime)
            self._lengths[number] = self._measure(path, file)
            if len(self._lengths) > 10_000:
                self._lengths.pop(next(iter(self._lengths)))
        return self._lengths[number]

    def _measure(self, path: Path, file: Found) -> int:
        try:
            if self.options.type is FileType.JSON:
                with path.open("rb") as lines:
                    sample = lines.read(SAMPLE)
                count = max(sample.count(b"\n"), 1)
                self._density = count / max(len(sample), 1)
                return file.size
            if self.options.type is FileType.PARQUET:
                metadata = pq.read_metadata(path)
                rows, names = metadata.num_rows, metadata.schema.to_arrow_schema().names
            else:
                reader = _open_arrow(str(path))
                names = reader.schema.names
                rows = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
        except (OSError, pa.ArrowException) as cause:
            raise SourceError(
                "bad-file",
                f"{path} is no {self.options.type} file: {cause}",
                field=f"streams.{self.record.name}.source",
                remedy="take it away, or give the type that the files have",
            ) from cause
        missing = [c.name for c in self.record.columns if c.name not in names]
        if missing:
            raise SourceError(
                "missing-column",
                f"{path} has no column {missing[0]!r}",
                field=f"streams.{self.record.name}.columns",
                remedy="take the file away, or declare the columns that the files have",
            )
        self._density = rows / max(file.size, 1)
        return int(rows)

    def _rows(self, units: float) -> float:
        """About how many rows ``units`` of a file's length are."""
        return units * (self._density or 1.0) if self.options.type is FileType.JSON else units

    def _units(self, rows: float) -> int:
        """About how much of a file's length ``rows`` are."""
        return max(round(rows / (self._rows(1.0) or 1.0)), 1)


def file_feed(record: StreamRecord, state: str) -> FileFeed:
    """The feed of a ``files`` source.

    Raises:
        StreamError: bad options.
    """
    options = file_options(record.source.path, record.source.options)
    directory = Path(record.source.path or "")
    identity = feed_id(record, ("files", str(directory), options.type.value, options.pattern))
    return FileFeed(
        record, options, directory, identity, Path(state) / "files" / f"{identity}.jsonl"
    )


def read_file(piece: Piece) -> Iterator[Decoded]:
    """The rows of a part of a file.

    Raises:
        SourceError: the file has changed or is gone.
    """
    where = piece.where
    path = Path(where["path"])
    _unchanged(path, where["size"], where["mtime"])
    first, last = where["first"], where["last"]
    try:
        if where["type"] == FileType.JSON:
            for lines in _lines(path, first, last):
                yield from from_json(lines, piece.columns)
            return
        schema = schema_of(piece.columns)
        batches = _parquet if where["type"] == FileType.PARQUET else _arrow
        for batch in batches(path, schema.names, first, last):
            yield typed(batch, schema)
    except OSError as cause:
        raise SourceError("unreadable-file", f"{path}: {cause}", field=piece.stream) from cause


def _parquet(path: Path, names: list[str], first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Rows ``[first, last)``; row groups without any of them are not read."""
    with pq.ParquetFile(path) as file:
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


def _arrow(path: Path, names: list[str], first: int, last: int) -> Iterator[pa.RecordBatch]:
    reader, begin = _open_arrow(str(path)), 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        low, high = max(first - begin, 0), min(last - begin, batch.num_rows)
        begin += batch.num_rows
        if low < high:
            yield batch.select(names).slice(low, high - low)


def _open_arrow(path: str) -> pa.ipc.RecordBatchFileReader:
    return pa.ipc.open_file(pa.memory_map(path))


def _lines(path: Path, first: int, last: int) -> Iterator[bytes]:
    """The lines that begin in bytes ``[first, last)``, many at a time."""
    with path.open("rb") as file:
        if first:
            file.seek(first - 1)
            file.readline()
        while file.tell() < last:
            chunk = file.read(min(last - file.tell(), CHUNK))
            if not chunk:
                return
            yield chunk if chunk.endswith(b"\n") else chunk + file.readline()


def _unchanged(path: Path, size: int, mtime: int) -> None:
    try:
        stat = path.stat()
    except OSError as cause:
        raise SourceError(
            "missing-file",
            f"{path} has gone while it was being read",
            field=str(path),
            remedy="put it back",
        ) from cause
    if (stat.st_size, stat.st_mtime_ns) != (size, mtime):
        raise SourceError(
            "file-changed",
            f"{path} has changed since it was found",
            field=str(path),
            remedy="put back what it was; write new data to new files, and rename them when they"
            " are complete",
        )
