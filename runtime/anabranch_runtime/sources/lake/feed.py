"""Feed of a stream from a Delta or Iceberg table: rows of a snapshot, then rows of later commits.

The versions of the table are appended to a log beside the state (``log``): first the snapshot with
all its files, then the files of each commit. The offset is the number of completely read files of
the log, and of rows of the next file. So a batch is a range of the log, and can be repeated after
changes of the table; only a file that was removed meanwhile can't be read (``on_loss``).

The snapshot is the stream's first load, and may be of any size. It is read at the pace of batches,
and reading may be interrupted anywhere. If rows of the stream can delete, a later commit is read in
one batch unless it is large, so that results correspond to one version of the table.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from anabranch_contract.connectors.addresses import parse_path
from anabranch_contract.connectors.lake.options import DELTA, TableOptions, table_options
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sources import OnLoss
from anabranch_contract.protocol.intake import SnapshotProgress
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.feed import CommonFeed, Piece, Waiting, feed_id
from anabranch_runtime.sources.lake.delta import DeltaTable
from anabranch_runtime.sources.lake.iceberg import IcebergTable
from anabranch_runtime.sources.lake.log import TableLog, TableVersion
from anabranch_runtime.sources.lake.trouble import check_size
from anabranch_runtime.sources.loads import Load
from anabranch_runtime.sources.permitted import resolve

#: Kind of pieces that are parts of a table's data files.
TABLE_FILE = "table-file"
#: Maximum rows of a commit that is read in one batch, if rows can delete.
TOGETHER = 50_000
#: Least pause between two searches for new versions, as a multiple of a search's duration.
_REST_FACTOR = 5.0


class Versions(Protocol):
    """The versions of a table, in the order of their commits (``LakeTable``)."""

    @property
    def folder(self) -> Path | None:
        """Folder that has all files of the table; None: files may be elsewhere."""

    @property
    def catalog(self) -> str:
        """Catalog whose settings are used to open the table's files; empty: none."""

    @property
    def rest(self) -> float:
        """Least seconds between two searches for new versions of the table."""

    def place(self, path: str) -> str:
        """Return the full path of one of the table's files."""

    def first(self) -> TableVersion:
        """Return the version at which reading begins; its files are the snapshot."""

    def after(self, last: TableVersion) -> Iterator[TableVersion]:
        """Yield the versions after ``last``, each with the files that its commit changed.

        Raises:
            SourceError: the table can't be read or followed; earlier versions have been yielded.
        """


@dataclass(slots=True)
class TableFeed(CommonFeed):
    """Feed of a stream that is read from a Delta or Iceberg table.

    Attributes:
        versions: the versions of the table.
    """

    record: StreamRecord
    options: TableOptions
    versions: Versions
    id: str
    log_path: Path
    access: AccessPolicy
    _log: TableLog | None = None
    #: Monotonic time of the next search for versions of the table.
    _next: float = 0.0
    #: The error of the last search, if any.
    _error: SourceError | None = None

    @property
    def on_loss(self) -> OnLoss:
        """Policy for a file of the table that was removed before it was read."""
        return self.options.on_loss

    def look(self, offset: Any) -> None:
        """Check the table, and the file at ``offset``; raise an error if one can't be read."""
        log, (number, _) = self._loaded(), offset or (0, 0)
        if number < len(log.files):
            file = log.files[number]
            check_size(self.versions.place(file.path), file.size, self.versions.catalog)
        elif not log.versions:
            self._permitted()
            self.versions.first()

    def waiting(self, offset: Any) -> Waiting:
        """Return the rows of the table's versions after ``offset``."""
        error = self._discover()
        log, (number, position) = self._loaded(), offset or (0, 0)
        rows = log.passed[-1] - log.passed[number] - position
        if not rows:
            if error is not None:
                raise error
            return Waiting(0)
        version = log.versions[bisect_right(log.ends, number)]
        snapshot = None
        if number < log.ends[0]:
            snapshot = SnapshotProgress(log.passed[log.ends[0]], log.passed[number] + position)
        return Waiting(rows, max(time.time() - version.committed, 0.0), snapshot)

    def read(self, offset: Any) -> int:
        """Return the number of rows of the table before ``offset``."""
        number, position = offset or (0, 0)
        return self._loaded().passed[number] + int(position)

    def load_end(self, offset: Any, load: Load) -> Any:
        """Return the end of the load: of the snapshot, at first; later of all versions found."""
        log, (number, _) = self._loaded(), offset or (0, 0)
        if not log.versions:
            return None
        return [log.ends[0] if number < log.ends[0] else len(log.files), 0]

    def advance(self, offset: Any, rows: int, end: Any = None) -> Any:
        """Return the feed's offset about ``rows`` rows later, possibly within a file."""
        log, (number, position) = self._loaded(), offset or (0, 0)
        stop, left = len(log.files) if end is None else end[0], max(rows, 1)
        while number < stop and left > 0:
            whole = self._whole(number) if not position else 0
            if whole:
                left -= log.passed[whole] - log.passed[number]
                number = whole
                continue
            step = min(log.files[number].rows - position, left)
            left, position = left - step, position + step
            if position >= log.files[number].rows:
                number, position = number + 1, 0
        return [number, position]

    def _whole(self, number: int) -> int:
        """Return the number of the first file after the commit that begins with file ``number``, if
        this commit is to be read in one batch; else 0."""
        log = self._loaded()
        version = bisect_right(log.ends, number)
        begin, end = log.ends[version - 1] if version else 0, log.ends[version]
        together = version and self.record.changes is not None
        small = log.passed[end] - log.passed[begin] <= TOGETHER
        return end if together and small and number == begin else 0

    def pieces(self, start: Any, end: Any, parts: int) -> list[Piece]:
        """Return pieces: ranges of rows of the table's data files."""
        (first, begin), (last, stop), log = start or (0, 0), end, self._loaded()
        spans = []
        for number in range(first, min(last + 1, len(log.files))):
            low = begin if number == first else 0
            high = stop if number == last else log.files[number].rows
            if low < high:
                spans.append((number, low, high))
        size = max(sum(high - low for _, low, high in spans) // parts, 1)
        found = []
        for number, low, high in spans:
            count = max(round((high - low) / size), 1)
            cuts = [low + (high - low) * i // count for i in range(count + 1)]
            found += [self._piece(number, a, b) for a, b in pairwise(cuts) if a < b]
        return found

    def _piece(self, number: int, low: int, high: int) -> Piece:
        log, record, versions = self._loaded(), self.record, self.versions
        file = log.files[number]
        path, real = versions.place(file.path), ""
        if versions.folder is not None:
            # Tasks get the resolved path, so that they notice if it has become a link meanwhile.
            real = resolve(path)
            real = real if self.access.permits_path(real) else "forbidden"
        where = {
            "path": path,
            "real": real,
            "catalog": versions.catalog,
            "name": file.path,
            "size": file.size,
            "rows": file.rows,
            "first": low,
            "last": high,
            "of": file.of.value,
            "values": file.values,
            "hidden": file.hidden,
            "only": file.only,
            "fields": log.versions[bisect_right(log.ends, number)].fields,
            "operation": None if record.changes is None else record.changes.operation,
            "keyed": record.changes is not None and bool(record.changes.key),
        }
        return Piece(
            TABLE_FILE,
            record.name,
            tuple((c.name, c.type) for c in record.columns),
            high - low,
            where,
            feed=self.id,
            source=path,
            first=low,
            last=high,
            before=[number, low],
        )

    def _loaded(self) -> TableLog:
        if self._log is None:
            self._log = TableLog.load(self.log_path)
        return self._log

    def _discover(self) -> SourceError | None:
        """Add new versions of the table to the log; return the error that ends this, if any."""
        log, began = self._loaded(), time.monotonic()
        if began < self._next:
            return self._error
        new = list[TableVersion]()
        self._error = None
        try:
            self._permitted()
            if not log.versions:
                log.add([self.versions.first()])
            for version in self.versions.after(log.versions[-1]):
                new.append(version)
        except SourceError as cause:
            self._error = cause
        log.add(new)
        ended = time.monotonic()
        self._next = ended + max(self.versions.rest, _REST_FACTOR * (ended - began))
        return self._error

    def _permitted(self) -> None:
        """Check that the table's folder is within the paths that may be read.

        Raises:
            SourceError: a link leads out of them.
        """
        folder = self.versions.folder
        if folder is not None and not self.access.permits_path(resolve(str(folder))):
            raise SourceError(
                "path-not-allowed",
                f"{folder} is a link out of the directories that may be read",
                field=f"streams.{self.record.name}.source.path",
                remedy="remove the link, or allow its target by --allow-path",
            )


def table_feed(record: StreamRecord, state: str, access: AccessPolicy) -> TableFeed:
    """Create the feed of a stream from a Delta or Iceberg table.

    Raises:
        StreamError: an option or its value is unknown.
    """
    source = record.source
    table, options = lake_table(record), table_options(source.format, source.path, source.options)
    identity = feed_id(record, (source.format, table.title, str(options.start)))
    log = Path(state) / "files" / f"{identity}.jsonl"
    return TableFeed(record, options, table, identity, log, access)


def lake_table(record: StreamRecord) -> DeltaTable | IcebergTable:
    """Return the table of a stream's source, without opening it.

    Raises:
        StreamError: as :func:`table_feed`.
    """
    source = record.source
    options = table_options(source.format, source.path, source.options)
    operation = None if record.changes is None else record.changes.operation
    given = (record.name, [name for name, _ in record.tuple_columns], operation, options)
    if source.format == DELTA:
        return DeltaTable(str(Path(parse_path(source.path or "", "source.path").path)), *given)
    return IcebergTable(options.table, *given)
