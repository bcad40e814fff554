"""Gathering of results of queries with a commit interval: many small batches become one group.

Tasks stage the results of such a query as Arrow files: for few rows, this takes a third of the CPU
time of Parquet files, and a quarter to read them. Before the batch commits, its staged files are
appended to the query's log, ``.gathered/<run>/<query>.log`` in the results directory, durable with
the commit; each process has its own ``run`` (:func:`take_over`). So a query has one file, however
many batches are gathered: it is cheaper to append to a file than to make one, and to delete one
than many.

A group consists of a query's gathered results of committed batches, as one Parquet file. It is
formed when the commit interval of its oldest batch has passed, when much has been gathered, and
when the query has ended. Then it is put into the outbox (``outbox``), which delivers it under the
number of its last batch. A group is formed once: once it is durable in the outbox, its batches are
never gathered again, even if the state is rolled back and the batches are repeated. So a group that
is delivered twice has the same rows and the same number.

A log is a sequence of records: a head of :data:`ALIGNED` bytes (kind, batch, task, length of the
content), and the content, filled up to a multiple of :data:`ALIGNED`. The first record is the sink,
as JSON; the others are staged files, in order of batches and tasks.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.parquet import FileWriter, ResultWriter

#: Suffixes of staged files, of logs, and of a group's file while it is being written.
SUFFIX, _LOG, _GROUP = ".arrow", ".log", ".parquet"
#: Bytes of a log, and number of staged files in it, from which on a group is due.
MOST_BYTES, MOST_FILES = 64 << 20, 10_000
#: Bytes of rows that are buffered for one row group.
PAGE = 8 << 20
#: Alignment of records in bytes, also the length of their heads.
ALIGNED = 64
_HEAD = struct.Struct("<4sQQQ")
#: Kinds of records, with the version of the format.
_SINK, _ROWS = b"snk1", b"row1"


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows of one task and batch: an Arrow file within ``path``."""

    path: Path
    offset: int
    length: int

    @staticmethod
    def of(file: Path) -> StagedRows:
        """Return the gathered rows in a staged file."""
        return StagedRows(file, 0, file.stat().st_size)

    def pages(self) -> pa.RecordBatchFileReader:
        """Return a reader of the rows, page by page.

        Raises:
            OSError, ArrowException: the file can't be read.
        """
        with pa.memory_map(str(self.path)) as file:
            file.seek(self.offset)
            return pa.ipc.open_file(file.read_buffer(self.length))


class StagedWriter(FileWriter):
    """Writes results as an Arrow file that is to be gathered."""

    def _opened(self, file: pa.OSFile) -> pa.ipc.RecordBatchFileWriter:
        return pa.ipc.new_file(file, self.schema)


@dataclass(slots=True)
class _Log:
    """Gathered results of one query, in its log.

    Attributes:
        parts: (batch, rows), in order. ``size``: bytes of the log.
        since: time of the oldest batch; minus infinity: gathered by an earlier process.
    """

    path: Path
    sink: SinkSpec
    size: int
    parts: list[tuple[int, StagedRows]] = field(default_factory=list)
    since: float = float("-inf")

    @staticmethod
    def create(path: Path, sink: SinkSpec) -> _Log:
        """Begin a query's log of gathered results; it is not durable yet."""
        content = codec.dumps(sink).encode()
        with path.open("wb") as file:
            file.write(_record(_SINK, 0, 0, len(content)) + _filled(content))
            return _Log(path, sink, file.tell())

    @staticmethod
    def open(path: Path, grouped: int, next_batch: int) -> _Log | None:
        """Open a log: read its batches after ``grouped`` and before ``next_batch``; cut off later
        batches, which will be repeated. Return None if no batch is left."""
        sink: tuple[int, int] | None = None
        parts, size = list[tuple[int, StagedRows]](), 0
        with path.open("rb") as file:
            for kind, batch, start, length in _records(file):
                if kind == _SINK:
                    sink = start, length
                elif sink is None or batch >= next_batch:
                    break
                elif batch > grouped:
                    parts.append((batch, StagedRows(path, start, length)))
                size = start + _whole(length)
            if sink is None or not parts:
                # Without a committed batch the log may not be synced to disk, so it isn't read.
                path.unlink()
                return None
            file.seek(sink[0])
            spec = codec.from_json(json.loads(file.read(sink[1])), SinkSpec)
        os.truncate(path, size)
        return _Log(path, spec, size, parts)

    def append(self, batch: int, task: int, staged: Path) -> StagedRows:
        """Move a staged file's rows to the end of the log of gathered results."""
        length = staged.stat().st_size
        with self.path.open("ab") as log, staged.open("rb") as file:
            log.write(_record(_ROWS, batch, task, length))
            shutil.copyfileobj(file, log)
            log.write(bytes(_whole(length) - length))
        # The file was never synced, so deleting it is cheap.
        staged.unlink()
        rows = StagedRows(self.path, self.size + ALIGNED, length)
        self.size = rows.offset + _whole(length)
        self.parts.append((batch, rows))
        return rows

    def cut(self, batch: int) -> None:
        """Cut off the gathered results of ``batch`` and of later batches."""
        kept = [(other, rows) for other, rows in self.parts if other < batch]
        if len(kept) < len(self.parts):
            self.size = self.parts[len(kept)][1].offset - ALIGNED
            os.truncate(self.path, self.size)
            self.parts = kept


def take_over(directory: Path) -> Path:
    """Rename the folder of logs below ``directory``, and return it. An earlier process that still
    runs no longer finds the folder, so it can neither add results nor form groups."""
    mine = directory / uuid.uuid4().hex
    directory.mkdir(parents=True, exist_ok=True)
    for folder in directory.iterdir():
        return folder.rename(mine)
    mine.mkdir()
    return mine


class Gathered:
    """Gathered results of all queries.

    Attributes:
        committed: batches before this one are committed.
        running: the queries that have not ended; None: unknown.
    """

    def __init__(self, directory: Path, next_batch: int, grouped: Mapping[str, int]) -> None:
        """Open the logs; delete results of ``next_batch`` and later, and results in groups already.

        Args:
            grouped: query -> last batch of its newest group.
        """
        self.committed = next_batch
        self.running: Collection[str] | None = None
        self._directory = directory
        self._logs: dict[str, _Log] = {}
        for file in sorted(directory.glob(f"*{_GROUP}")):
            file.unlink()
        for file in sorted(directory.glob(f"*{_LOG}")):
            query = file.name.removesuffix(_LOG)
            log = _Log.open(file, grouped.get(query, -1), next_batch)
            if log is not None:
                self._logs[query] = log

    def queries(self) -> list[str]:
        """Return the queries for which results are gathered."""
        return list(self._logs)

    def parts(self, query: str) -> list[tuple[int, StagedRows]]:
        """Return a query's gathered rows with their batches, in order."""
        log = self._logs.get(query)
        return [] if log is None else list(log.parts)

    def sink(self, query: str) -> SinkSpec:
        """Return the sink of a query with gathered results."""
        return self._logs[query].sink

    def is_full(self, query: str) -> bool:
        """Whether a query has gathered so many results that its group is due."""
        log = self._logs.get(query)
        return log is not None and (log.size >= MOST_BYTES or len(log.parts) >= MOST_FILES)

    def begin(self, batch: int) -> None:
        """Begin ``batch``, after a commit of earlier ones; delete an earlier attempt's results."""
        self.committed = batch
        for query in list(self._logs):
            self._logs[query].cut(batch)
            self._forget_empty(query)

    def add(
        self, batch: int, query: str, sink: SinkSpec, staged: Sequence[tuple[int, Path]]
    ) -> tuple[StagedRows, ...]:
        """Move a query's staged results of ``batch``, pairs (task, file), to the query's log, which
        is not durable yet."""
        log = self._logs.get(query)
        if log is None:
            log = _Log.create(self._directory / f"{query}{_LOG}", sink)
            log.since = time.monotonic()
            self._logs[query] = log
        return tuple(log.append(batch, task, file) for task, file in staged)

    def due(self, now: float) -> list[str]:
        """Return the queries whose next group is due at the time ``now``."""
        return [query for query, log in self._logs.items() if self._is_due(query, log, now)]

    def _is_due(self, query: str, log: _Log, now: float) -> bool:
        return (
            now >= log.since + log.sink.commit_interval / 1e6
            or self.is_full(query)
            or (self.running is not None and query not in self.running)
        )

    def group(self, query: str) -> Delivery | None:
        """Write a query's gathered results of committed batches as one file (a group), which is not
        durable yet; None if there are none.

        Raises:
            OSError, ArrowException: a file can't be read or written.
        """
        parts = [(batch, rows) for batch, rows in self.parts(query) if batch < self.committed]
        if not parts:
            return None
        (first, rows), last = parts[0], parts[-1][0]
        draft = self._directory / f"{query}{_GROUP}"
        writer = ResultWriter(draft, rows.pages().schema, PAGE)
        for _, rows in parts:
            pages = rows.pages()
            for number in range(pages.num_record_batches):
                writer.add(pages.get_batch(number))
        writer.close()
        return Delivery(query, self._logs[query].sink, last, (draft,), first)

    def drop(self, query: str, last: int) -> None:
        """Delete a query's gathered results up to batch ``last``, which a durable group has."""
        log = self._logs[query]
        log.parts = [(batch, rows) for batch, rows in log.parts if batch > last]
        log.since = time.monotonic()
        self._forget_empty(query)

    def _forget_empty(self, query: str) -> None:
        if not self._logs[query].parts:
            self._logs.pop(query).path.unlink()


def _record(kind: bytes, batch: int, task: int, length: int) -> bytes:
    """Return the head of a record in the log of gathered results."""
    return _filled(_HEAD.pack(kind, batch, task, length))


def _records(file: BinaryIO) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the complete records of a log: kind, batch, and the content's position and length."""
    size, start = os.fstat(file.fileno()).st_size, ALIGNED
    while start <= size:
        file.seek(start - ALIGNED)
        kind, batch, _, length = _HEAD.unpack(file.read(_HEAD.size))
        if kind not in (_SINK, _ROWS) or start + length > size:
            # The rest of the file belongs to a batch that did not commit.
            return
        yield kind, batch, start, length
        start += _whole(length) + ALIGNED


def _whole(length: int) -> int:
    return -(-length // ALIGNED) * ALIGNED


def _filled(content: bytes) -> bytes:
    return content.ljust(_whole(len(content)), b"\0")
