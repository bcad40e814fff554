"""Feed of a stream from a directory: each file is read once, in the order in which it was found.

Found files are appended to a *log* beside the state, one line per file, durably before an offset
refers to them. The offset is the number of completely read files, and the position in the next
file: rows, or bytes of text. So a batch is a range of the log, and can be repeated even if the
directory has changed. Files found together are ordered by modification time and name.

A file must not change after it has appeared: write it under a name that begins with ``.`` or ``_``,
or ends in ``.tmp`` or ``.partial``, and rename it. If a file is damaged, or changed before it was
read, the stream stops before it or skips it (``on_bad_file``). A file that changes later gets
another entry in the log (``changed``), which is read or skipped. A file removed before any of it
was read is skipped. The log records the files that planning skips; so do batches, for which there
are pieces with ``Piece.gone``.

A link that leads out of the allowed paths is skipped.

A directory is listed only when its modification time has changed.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from anabranch_contract.connectors.addresses import parse_path
from anabranch_contract.connectors.file_sources import FileOptions, own_files
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sources import FileOrder, FileType, OnLoss
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.feed import PATIENT, CommonFeed, Piece, PieceError, Waiting, feed_id
from anabranch_runtime.sources.files.changed import ChangeWatch
from anabranch_runtime.sources.files.csv import MissingColumn
from anabranch_runtime.sources.files.log import GONE, FileLog, FoundFile
from anabranch_runtime.sources.files.reading import TEXT, open_arrow
from anabranch_runtime.sources.files.text import TextFile
from anabranch_runtime.sources.files.trouble import BROKEN, SKIP, refused, unchanged
from anabranch_runtime.sources.loads import WRITING, Load, longest_pause
from anabranch_runtime.sources.permitted import resolve

#: A listing is complete if the directory has not changed in this many nanoseconds before it, since
#: file systems store times with a resolution of up to two seconds.
SETTLED = 2_100_000_000
#: Number of files whose pauses (times between them) determine the end of a load.
LATELY = 1000
#: Least seconds between two listings of a directory in which files keep appearing.
LISTING = 0.05


@dataclass(slots=True)
class FileFeed(CommonFeed):
    """Feed of a stream that is read from the files of a directory."""

    record: StreamRecord
    options: FileOptions
    directory: Path
    id: str
    log_path: Path
    access: AccessPolicy
    _log: FileLog | None = None
    _watch: ChangeWatch | None = None
    #: The directory's modification time at the last listing that is known to be complete.
    _listed: int = -1
    _next_listing: float = 0.0
    #: Monotonic times of the last listing that found files (after a restart, of the first listing),
    #: and of the last listing.
    _found: float = -inf
    _looked: float = 0.0
    #: Number of a file in the log -> its length in rows, or in bytes of text.
    _lengths: dict[int, int] = field(default_factory=dict)
    #: Rows per byte of the last measured file.
    _density: float | None = None
    #: Number of a file in the log -> number of failed attempts to open it.
    _refused: dict[int, int] = field(default_factory=dict)

    @property
    def on_loss(self) -> OnLoss:
        """Policy of the stream for a file that can't be read."""
        return self.options.on_bad_file

    def look(self, offset: Any) -> None:
        """Measure the file that has stopped the feed; raises if it still can't be read."""
        number, _ = offset or (0, 0)
        self._length(number, begun=True)

    def waiting(self, offset: Any) -> Waiting:
        """Return the amount of input after ``offset``; rows are estimated from files' sizes."""
        log, (number, position) = self._loaded(), offset or (0, 0)
        self._discover()
        self._watched().look(number, position)
        if number >= len(log.files):
            return Waiting(0)
        if self._density is None:
            self._length(number, begun=position > 0)
        unread = enumerate(log.files[number:], number)
        rest = sum(f.size for n, f in unread if n not in log.left_out)
        rows = rest * (self._density or 0.0) - self._rows(position)
        age = time.time() - log.files[number].mtime / 1e9
        return Waiting(max(round(rows), 1), max(age, 0.0))

    def read(self, offset: Any) -> int:
        """Return the number of rows before ``offset`` in files, estimated from their sizes."""
        number, position = offset or (0, 0)
        size = sum(file.size for file in self._loaded().files[:number])
        return round(size * (self._density or 0.0) + self._rows(position))

    def load_end(self, offset: Any, load: Load) -> Any:
        """Return the offset after all files if none has appeared for a while; otherwise None."""
        log = self._loaded()
        # Another file as large as the last one may be in the process of being written.
        size = log.files[-1].size if log.files else 0
        quiet = load.quiet(longest_pause(self._times(load, len(log.files)))) + size / WRITING
        looked = time.time() - (time.monotonic() - self._looked)
        if self._looked - self._found < quiet and looked - load.began < load.longest:
            return None
        return [len(log.files), 0]

    def is_apart(self, offset: Any, load: Load) -> bool:
        """Whether the next file appeared so long after earlier ones that it begins a load."""
        files, (number, position) = self._loaded().files, offset or (0, 0)
        if position or not 0 < number < len(files):
            return False
        file, times = files[number], self._times(load, number)
        quiet = load.quiet(longest_pause(times)) + file.size / WRITING
        return file.appeared / 1e9 - max(times) > quiet

    def _times(self, load: Load, number: int) -> list[float]:
        """Return the times at which the last files before ``number`` appeared (seconds since 1970);
        times before the beginning of ``load`` count as this beginning."""
        lately = self._loaded().files[max(number - LATELY, 0) : number]
        return [max(file.appeared / 1e9, load.began) for file in lately]

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """Return the feed's offset about ``rows`` rows later, possibly within a file."""
        number, position = offset or (0, 0)
        log, left = self._loaded(), float(max(rows, 1))
        stop = len(log.files) if end is None else end[0]
        while number < stop and left > 0:
            length = self._length(number, begun=position > 0)
            step = max(min(length - position, self._units(left)), 0)
            if step and self._is_text:
                step = self._cut(number, position, [position + step])[0] - position
            left -= self._rows(step)
            position += step
            if position >= length:
                number, position = number + 1, 0
        return [number, position]

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Return ranges of rows or bytes of files, as pieces; a file of unknown length is one."""
        first, begin = start or (0, 0)
        last, stop = end
        log, spans = self._loaded(), []
        for number in range(first, min(last + 1, len(log.files))):
            low = begin if number == first else 0
            high = stop if number == last else self._end(number)
            if high is None or low < high:
                spans.append((number, low, high))
        rest = sum(high - low for _, low, high in spans if high is not None)
        size = max(rest // parts, self._units(1.0))
        found = []
        for number, low, high in spans:
            if high is None:
                # Without an error from planning, the task that reads the file reports one.
                gone = log.left_out.get(number) if number != last else None
                found.append(replace(self._piece(number, low, None), gone=gone))
                continue
            count = max(round((high - low) / size), 1)
            cuts = [low + (high - low) * i // count for i in range(count + 1)]
            if self._is_text and count > 1:
                try:
                    cuts[1:-1] = self._cut(number, low, cuts[1:-1])
                except SourceError:
                    # The file can't be divided now; the task that reads it will report the reason.
                    cuts = [low, high]
            found += [self._piece(number, a, b) for a, b in pairwise(cuts) if a < b]
        return found

    def _end(self, number: int) -> int | None:
        """Return the length of a file, up to which it is read; None if unknown."""
        log = self._loaded()
        if number in log.left_out:
            return None
        if self._is_text and self._density is not None:
            return log.files[number].size
        try:
            return self._length(number, planned=True)
        except SourceError:
            return None

    def _piece(self, number: int, low: int, high: int | None) -> Piece:
        file = self._loaded().files[number]
        path = str(self.directory / file.name)
        # Tasks get the resolved path, so that they notice if it has become a link meanwhile.
        real = resolve(path)
        where = {
            "path": path,
            "real": real if self.access.permits_path(real) else "",
            "size": file.size,
            "mtime": file.mtime,
            "type": self.options.type,
            "dialect": self.options.dialect,
            "envelope": self.record.envelope,
        }
        columns = tuple((c.name, c.type) for c in self.record.columns)
        return Piece(
            "file",
            self.record.name,
            columns,
            0 if high is None else round(self._rows(high - low)),
            {**where, "first": low, "last": high},
            feed=self.id,
            source=path,
            unit="bytes" if self._is_text else "rows",
            first=low,
            last=high,
            before=[number, low],
        )

    def _loaded(self) -> FileLog:
        if self._log is None:
            self._log = FileLog.load(self.log_path)
        return self._log

    def _watched(self) -> ChangeWatch:
        if self._watch is None:
            self._watch = ChangeWatch(
                self.directory,
                self._loaded(),
                self.options.on_changed_file,
                lambda path: self.access.permits_path(resolve(path)),
            )
            self._watch.know()
        return self._watch

    def _discover(self) -> None:
        """List the directory and add new files to the log."""
        log, known, now = self._loaded(), self._watched().names, time.monotonic()
        if now < self._next_listing:
            return
        if self._found == -inf and log.files:
            self._found = now
        try:
            changed = self.directory.stat().st_mtime_ns
            if changed == self._listed:
                self._looked = now
                return
            began = time.time_ns()
            new = []
            self._permitted("")
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    self._check_partition(entry)
                    if entry.name not in known and self._wanted(entry):
                        stat = entry.stat()
                        times = (stat.st_mtime_ns, stat.st_ctime_ns)
                        new.append(FoundFile(entry.name, stat.st_size, *times))
        except OSError as cause:
            raise SourceError(
                "no-directory",
                f"{self.directory} can't be listed: {cause.strerror}",
                field=f"streams.{self.record.name}.source.path",
                remedy="give the path of a directory that the runtime can read",
            ) from cause
        by_name = self.options.order is FileOrder.NAME
        log.add(sorted(new, key=lambda f: (0 if by_name else f.mtime, f.name)))
        self._watched().know()
        self._looked = now
        if new:
            self._found = now
        self._listed = changed if began - changed > SETTLED else -1
        self._next_listing = now + LISTING

    def _check_partition(self, entry: os.DirEntry[str]) -> None:
        """Refuse subdirectories that are partitions to Spark, for formats read by Spark."""
        if self.options.spark and "=" in entry.name and entry.is_dir():
            raise SourceError(
                "partitioned-directory",
                f"{self.directory} has the directory {entry.name!r}: partitions are read by Spark"
                " only",
                field=f"streams.{self.record.name}.source.path",
                remedy="give the source's option schema, with the columns of the files",
            )

    def _permitted(self, name: str) -> str:
        """Resolve the path of a file in the directory, or of the directory itself, and check it.

        Raises:
            SourceError: a link leads out of the paths that may be read.
        """
        path = resolve(str(self.directory / name))
        if not self.access.permits_path(path):
            raise SourceError(
                "path-not-allowed",
                f"{self.directory / name} is a link out of the directories that may be read",
                field=f"streams.{self.record.name}.source.path",
                remedy="remove the link, or allow its target by --allow-path",
            )
        return path

    def _wanted(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        hidden = name.startswith((".", "_")) or name.endswith((".tmp", ".partial"))
        if hidden or not fnmatch.fnmatchcase(name, self.options.pattern):
            return False
        if entry.is_symlink() and not self.access.permits_path(resolve(entry.path)):
            # No error, as it would reveal whether the link's target exists.
            return False
        return entry.is_file()

    def _length(self, number: int, *, planned: bool = False, begun: bool = False) -> int:
        """Return the length of a file: rows, or bytes of text; 0 if the file is skipped.

        An unreadable file may be skipped, unless it is already part of a batch (``planned``). A
        partly read file (``begun``) must not be missing.
        """
        log = self._loaded()
        if number in log.left_out:
            return 0
        file = log.files[number]
        path = self.directory / file.name
        if number in self._lengths and not begun:
            return self._lengths[number]
        if not planned and not begun and not path.exists():
            log.leave_out(number, GONE)
            return 0
        try:
            self._permitted(file.name)
            unchanged(path, file.size, file.mtime)
            if number not in self._lengths:
                self._lengths[number] = self._measure(path, file)
        except SourceError as error:
            if planned or not self._may_leave_out(number, error):
                raise
            log.leave_out(number, PieceError(error.code, error.message))
            return 0
        if len(self._lengths) > 10_000:
            self._lengths.pop(next(iter(self._lengths)))
        return self._lengths[number]

    def _may_leave_out(self, number: int, error: SourceError) -> bool:
        if self.options.on_bad_file is OnLoss.STOP:
            return False
        self._refused[number] = self._refused.get(number, 0) + 1
        return error.code not in PATIENT or self._refused[number] >= PATIENT[error.code]

    def _measure(self, path: Path, file: FoundFile) -> int:
        try:
            if self._is_text:
                columns = [(c.name, c.type) for c in self.record.columns]
                text = TextFile(path, file.size, self.options.dialect, optional=self._optional)
                self._density = text.density(columns)
                return file.size
            if self.options.type is FileType.PARQUET:
                metadata = pq.read_metadata(path)
                rows, names = metadata.num_rows, metadata.schema.to_arrow_schema().names
            else:
                reader = open_arrow(str(path))
                names = reader.schema.names
                rows = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
        except MemoryError:
            raise
        except MissingColumn as cause:
            raise self._missing(path, cause.column, cause.header) from cause
        except BROKEN as cause:
            if isinstance(cause, OSError) and cause.errno is not None:
                raise refused(path, cause) from cause
            raise SourceError(
                "bad-file",
                f"{path} is not a {self.options.type} file: {cause}",
                field=f"streams.{self.record.name}.source",
                remedy=f"correct the file, or give the type that the files have; {SKIP}",
            ) from cause
        missing = [c.name for c in self.record.columns if c.name not in {*names, *self._optional}]
        if missing:
            raise self._missing(path, missing[0], names)
        self._density = rows / max(file.size, 1)
        return int(rows)

    def _missing(self, path: Path, column: str, names: Sequence[str]) -> SourceError:
        return SourceError(
            "missing-column",
            f"{path} has no column {column!r}; it has {', '.join(names[:30])}",
            field=f"streams.{self.record.name}.columns",
            remedy=f"correct the file, or declare the columns that the files have; {SKIP}",
        )

    @property
    def _optional(self) -> frozenset[str]:
        """Columns that were added to the stream, and which older files lack."""
        return frozenset(name for name, _ in self.record.added)

    @property
    def _is_text(self) -> bool:
        return self.options.type in TEXT

    def _cut(self, number: int, low: int, targets: list[int]) -> list[int]:
        """Return positions of records in a text file: the first at or after each of ``targets``."""
        file = self._loaded().files[number]
        path = self.directory / file.name
        unchanged(path, file.size, file.mtime)
        try:
            return TextFile(path, file.size, self.options.dialect).cut(low, targets)
        except OSError as cause:
            raise refused(path, cause) from cause

    def _rows(self, units: float) -> float:
        """Estimate the number of rows in ``units`` (rows, or bytes of text) of a file."""
        return units * (self._density or 1.0) if self._is_text else units

    def _units(self, rows: float) -> int:
        """Estimate the length of ``rows`` rows in a file (in rows, or in bytes of text)."""
        return max(round(rows / (self._rows(1.0) or 1.0)), 1)


def file_feed(record: StreamRecord, state: str, access: AccessPolicy) -> FileFeed:
    """Create the feed of a stream over a directory of files.

    Raises:
        StreamError: an option or its value is unknown.
    """
    source = record.source
    options = own_files(source.format, source.path, source.options)
    if options is None:
        raise AssertionError(f"Spark reads sources of format {source.format}")
    directory = Path(parse_path(source.path or "", "source.path").path)
    made_of: tuple[object, ...]
    made_of = ("files", str(directory), options.type.value, options.pattern)
    if options.dialect is not None or options.spark:
        made_of = (*made_of, options.spark, options.dialect)
    identity = feed_id(record, made_of)
    log = Path(state) / "files" / f"{identity}.jsonl"
    return FileFeed(record, options, directory, identity, log, access)
