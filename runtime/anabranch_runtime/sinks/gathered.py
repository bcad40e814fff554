"""Gathering of results of queries with a commit interval: many small batches become one group.

Tasks stage the results of such a query as Arrow files: few rows cost a third of the CPU time that
they would as Parquet, and a quarter to read. A batch's staged files are moved to
``.gathered/<query>/<batch>-<task>.arrow`` in the results directory before the batch commits, and
are durable with the commit. A group consists of a query's gathered results of committed batches, as
one Parquet file. It is formed when the commit interval of its oldest batch has passed, when much
has been gathered, and when the query has ended. Then it is in the outbox (``outbox``), which
delivers it under the number of its last batch.

A group is formed once: as soon as the outbox has it durably, its batches are never gathered again,
even if the state is rolled back and they are repeated. So any two deliveries of a group have the
same rows and the same number.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.parquet import ResultWriter, RowBuffer

#: Suffix of staged files.
SUFFIX = ".arrow"
#: Gathered bytes and files of a query from which on a group is due.
MOST_BYTES, MOST_FILES = 64 << 20, 10_000
#: Bytes of rows buffered for a row group.
PAGE = 8 << 20
_SINK, _GROUP = "sink.json", "group.parquet"


class StagedWriter(RowBuffer):
    """Writes one task's results of one batch for one query, in an existing folder."""

    def __init__(self, path: Path, schema: pa.Schema, page: int) -> None:
        """Open the file; ``page``: maximum bytes of rows buffered."""
        super().__init__(schema, page)
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, schema)

    def close(self) -> None:
        """Write the pending rows and finish the file."""
        super().close()
        self._writer.close()
        self._file.close()

    def _write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)


def write_group(files: Iterable[Path], target: Path) -> None:
    """Write the rows of staged files to a Parquet file, page by page."""
    writer: ResultWriter | None = None
    for file in files:
        with pa.OSFile(str(file)) as source:
            reader = pa.ipc.open_file(source)
            writer = writer or ResultWriter(target, reader.schema, PAGE)
            for number in range(reader.num_record_batches):
                writer.add(reader.get_batch(number))
    if writer is not None:
        writer.close()


@dataclass(slots=True)
class _Batches:
    """Gathered results of one query.

    Attributes:
        files: batch -> its files, in order of tasks.
        since: time of the oldest batch; minus infinity: it is of an earlier run of the process.
    """

    folder: Path
    sink: SinkSpec
    files: dict[int, list[Path]] = field(default_factory=dict)
    since: float = float("-inf")
    bytes: int = 0
    count: int = 0


class Gathered:
    """Gathered results of all queries.

    Attributes:
        committed: batches before this one are committed.
        running: the queries that go on; None: unknown.
    """

    def __init__(self, directory: Path, next_batch: int, grouped: Mapping[str, int]) -> None:
        """Open the folder, and delete results of ``next_batch`` and later batches, and of groups.

        Args:
            grouped: query -> last batch of its newest group.
        """
        self.committed = next_batch
        self.running: Collection[str] | None = None
        self._directory = directory
        self._batches: dict[str, _Batches] = {}
        for folder in sorted(directory.glob("*")):
            (folder / _GROUP).unlink(missing_ok=True)
            last = grouped.get(folder.name, -1)
            for file in sorted(folder.glob(f"*{SUFFIX}")):
                batch = int(file.stem.partition("-")[0])
                if last < batch < next_batch:
                    self._batches_of(folder.name, None).files.setdefault(batch, []).append(file)
                else:
                    file.unlink()
            if folder.name not in self._batches:
                shutil.rmtree(folder)

    def queries(self) -> list[str]:
        """Return the queries with gathered results."""
        return [query for query, known in self._batches.items() if known.files]

    def files(self, query: str) -> list[tuple[int, Path]]:
        """Return a query's gathered files with their batches, in order."""
        known = self._batches.get(query)
        found = {} if known is None else known.files
        return [(batch, file) for batch in sorted(found) for file in found[batch]]

    def begin(self, batch: int) -> None:
        """Begin with ``batch``, after which earlier ones are committed; an earlier attempt's
        results are deleted.
        """
        self.committed = batch
        for known in self._batches.values():
            for file in known.files.pop(batch, ()):
                file.unlink()

    def add(
        self, batch: int, query: str, sink: SinkSpec, staged: Sequence[tuple[int, Path]]
    ) -> tuple[Path, ...]:
        """Move the staged files, (task, file), of a query's results of ``batch`` here; returns
        their new paths. They are not durable yet.
        """
        known = self._batches_of(query, sink)
        if not known.files:
            known.since, known.bytes, known.count = time.monotonic(), 0, 0
        files = known.files[batch] = []
        for task, file in staged:
            known.bytes += file.stat().st_size
            files.append(file.rename(known.folder / f"{batch:010d}-{task:05d}{SUFFIX}"))
        known.count += len(files)
        return tuple(files)

    def due(self, now: float) -> list[str]:
        """Return the queries whose next group is due at the time ``now``."""
        return [query for query, known in self._batches.items() if self._is_due(query, known, now)]

    def _is_due(self, query: str, known: _Batches, now: float) -> bool:
        return bool(known.files) and (
            now >= known.since + known.sink.commit_interval / 1e6
            or known.bytes >= MOST_BYTES
            or known.count >= MOST_FILES
            or (self.running is not None and query not in self.running)
        )

    def group(self, query: str) -> Delivery | None:
        """Write a query's results of committed batches as one file, not durable yet; None: it has
        none.

        Raises:
            OSError, ArrowException: a file can't be read or written.
        """
        known = self._batches.get(query)
        batches = [] if known is None else sorted(b for b in known.files if b < self.committed)
        if known is None or not batches:
            return None
        draft = known.folder / _GROUP
        write_group((file for batch in batches for file in known.files[batch]), draft)
        return Delivery(query, known.sink, batches[-1], (draft,), first=batches[0])

    def drop(self, query: str, last: int) -> None:
        """Delete a query's results of batches up to ``last``, which a durable group has."""
        known = self._batches[query]
        for batch in [batch for batch in known.files if batch <= last]:
            for file in known.files.pop(batch):
                file.unlink()
        known.since, known.bytes, known.count = time.monotonic(), 0, 0
        if not known.files and self.running is not None and query not in self.running:
            shutil.rmtree(known.folder)
            del self._batches[query]

    def _batches_of(self, query: str, sink: SinkSpec | None) -> _Batches:
        """The results of ``query``, whose sink is recorded with its first ones (None)."""
        known = self._batches.get(query)
        if known is None:
            folder = self._directory / query
            recorded = folder / _SINK
            if sink is None:
                sink = codec.from_json(json.loads(recorded.read_text()), SinkSpec)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                recorded.write_text(codec.dumps(sink))
            known = self._batches[query] = _Batches(folder, sink)
        return known
