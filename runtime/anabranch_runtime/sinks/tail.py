"""The live tail: committed results for followers of a query, in a small Redis Stream.

A row's ordinal is its number among all results of the query, in the order of batch, task and file
(for views and outer joins: version and row). It is computed from counts in the manifest, or in a
file beside the results, so gaps in the ordinals show how many rows a reader has missed. The tail
drops rows rather than delay batches: it gets only the last ``BATCH_ROWS`` rows of a batch, and the
Redis Stream keeps only the last ``ENTRIES`` entries. If Redis fails or a result file is removed,
only the tail loses rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import redis
import structlog
from redis.exceptions import RedisError, ResponseError

from anabranch_contract.protocol.keys import TAIL_SECONDS, Keys, tail_entry
from anabranch_runtime.sinks.delivery import WrittenVersion
from anabranch_runtime.sinks.gathered import StagedRows
from anabranch_runtime.sinks.parquet import batch_of, version_of
from anabranch_runtime.sinks.rows import json_rows

_LOG = structlog.get_logger("anabranch.runtime")

#: Maximum rows appended per batch, and maximum older rows that a client gets when it begins.
BATCH_ROWS, OPEN_ROWS = 2_000, 10_000
#: Maximum rows and bytes per entry; a single larger row is left out.
ENTRY_ROWS, ENTRY_BYTES = 100, 1 << 16
#: Maximum number of entries in a tail's stream.
ENTRIES = 512
#: Default of ``written``: there are no views and no outer joins.
NOTHING: Mapping[str, tuple[int, int]] = MappingProxyType({})
#: Timeout of Redis in seconds, and seconds without calls after a failure.
PATIENCE, PAUSE = 1.0, 5.0
#: Types of errors that must not fail the batch, since only the tail loses rows.
_HARMLESS = (RedisError, OSError, pa.ArrowException)


class Tails:
    """Writer of the live tails of one pipeline's queries."""

    def __init__(
        self,
        url: str,
        keys: Keys,
        results: Path,
        undelivered: Callable[[str], Sequence[tuple[int, Path | StagedRows]]] = lambda _: (),
    ) -> None:
        """``undelivered``: returns the results that a query's sink does not have yet, by batch."""
        self._redis = redis.Redis.from_url(
            url, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE
        )
        self._keys = keys
        self._results, self._undelivered = results, undelivered
        self._silent_until = 0.0
        #: Held during each call, since different threads append rows of batches and of versions.
        self._lock = Lock()

    def close(self) -> None:
        """Close the live tail's connection to Redis."""
        self._redis.close()

    def feed(
        self,
        batch: int,
        located: Mapping[str, Sequence[Path | StagedRows]],
        totals: Mapping[str, int],
        written: Mapping[str, tuple[int, int]] = NOTHING,
    ) -> None:
        """Append a committed batch's rows to the followed tails, and begin newly requested ones.

        Args:
            batch: number of the batch.
            located: query -> its rows, in order of tasks.
            totals: query -> number of its results so far, including this batch.
            written: view or outer join -> its last version, and number of its rows so far.
        """
        with self._harmless():
            for query in self._listened():
                if query in written:
                    self._begin_versions(query, *written[query])
                elif query not in totals:
                    continue
                elif not self._redis.exists(self._keys.tail(query)):
                    self._begin(query, batch + 1, totals[query], batch_of)
                elif query in located:
                    rows = last_rows(located[query], BATCH_ROWS)
                    self._append(query, batch, totals[query] - rows.num_rows, rows)

    def feed_versions(self, versions: Sequence[WrittenVersion]) -> None:
        """Append the rows of versions of views and outer joins to the followed tails."""
        with self._harmless():
            followed = frozenset(self._listened())
            for one in versions:
                if one.query not in followed:
                    continue
                if not self._redis.exists(self._keys.tail(one.query)):
                    self._begin_versions(one.query, one.version, one.total)
                    continue
                kept = one.rows.slice(max(one.rows.num_rows - BATCH_ROWS, 0))
                self._append(one.query, one.version, one.total - kept.num_rows, kept)

    def open(
        self,
        next_batch: int,
        totals: Mapping[str, int],
        written: Mapping[str, tuple[int, int]] = NOTHING,
    ) -> None:
        """Begin the tails that clients have requested, with the newest published results.

        Args:
            next_batch: results of this batch and later are not committed.
            totals: query -> number of its results so far; other queries have not started.
            written: view or outer join -> its last version, and number of its rows so far.
        """
        with self._harmless():
            for query in self._listened():
                if query in written:
                    self._begin_versions(query, *written[query])
                elif query in totals and not self._redis.exists(self._keys.tail(query)):
                    self._begin(query, next_batch, totals[query], batch_of)

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Run blocks one at a time; errors in a block lose rows of the tail and are not raised."""
        with self._lock:
            try:
                yield
            except _HARMLESS as error:
                self._fall_silent(error)

    def _listened(self) -> list[str]:
        """Return the queries whose tails clients currently follow."""
        if time.monotonic() < self._silent_until:
            return []
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zrange(self._keys.listeners, 0, -1, withscores=True)
            (seconds, _), members = pipe.execute()
        return [bytes(query).decode() for query, until in members if until > seconds]

    def _fall_silent(self, error: Exception) -> None:
        self._silent_until = time.monotonic() + PAUSE
        _LOG.warning("tail not fed", error=str(error))

    def _append(self, query: str, batch: int, ordinal: int, rows: pa.Table) -> None:
        key = self._keys.tail(query)
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                for entry, text in _entries(batch, ordinal, rows):
                    pipe.xadd(key, {"rows": text}, entry, maxlen=ENTRIES, approximate=False)
                pipe.expire(key, TAIL_SECONDS)
                pipe.execute()
        except ResponseError as error:
            # An earlier pipeline of this name has left entries with higher ids: replace the stream.
            _LOG.warning("tail begun again", query=query, error=str(error))
            self._redis.delete(key)

    def _begin_versions(self, query: str, version: int, total: int) -> None:
        """Begin the tail of a view or an outer join, unless it has begun."""
        if not self._redis.exists(self._keys.tail(query)):
            self._begin(query, version + 1, total, version_of)

    def _begin(
        self, query: str, next_batch: int, total: int, number_of: Callable[[Path], int | None]
    ) -> None:
        found: list[tuple[int, int, pa.Table]] = []
        ordinal, left = total, OPEN_ROWS
        files = sorted((self._results / query).glob("*.parquet"))
        parts: list[tuple[int | None, Path | StagedRows]] = [(number_of(f), f) for f in files]
        parts += self._undelivered(query)
        numbered = [(b, part) for b, part in parts if b is not None and b < next_batch]
        for batch, part in reversed(numbered):
            rows = last_rows([part], left)
            ordinal, left = ordinal - rows.num_rows, left - rows.num_rows
            found.append((batch, ordinal, rows))
            # The loop stops at a file that fits in part only, so that the ordinals have no gap.
            if left <= 0:
                break
        key = self._keys.tail(query)
        with self._redis.pipeline(transaction=True) as pipe:
            for batch, first, rows in reversed(found):
                for entry, text in _entries(batch, first, rows):
                    pipe.xadd(key, {"rows": text}, entry, maxlen=ENTRIES, approximate=False)
            pipe.xadd(key, {"count": total}, tail_entry(next_batch - 1, total))
            pipe.expire(key, TAIL_SECONDS)
            pipe.execute()


def last_rows(located: Sequence[Path | StagedRows], limit: int) -> pa.Table:
    """Return the last ``limit`` result rows of several files of one schema, in order."""
    parts: list[pa.Table] = []
    left = limit
    for table in (piece for part in reversed(located) for piece in _from_end(part)):
        parts.append(table.slice(max(table.num_rows - left, 0)))
        left -= parts[-1].num_rows
        if left <= 0:
            break
    return pa.concat_tables(reversed(parts))


def _from_end(part: Path | StagedRows) -> Iterator[pa.Table]:
    """Yield result rows from the end, by page or row group; one empty table if there are none."""
    if isinstance(part, StagedRows):
        pages = part.pages()
        count, schema = pages.num_record_batches, pages.schema
        for number in reversed(range(count)):
            yield pa.Table.from_batches([pages.get_batch(number)])
    else:
        with pq.ParquetFile(part) as file:
            count, schema = file.num_row_groups, file.schema_arrow
            for number in reversed(range(count)):
                yield file.read_row_group(number, use_threads=False)
    if not count:
        yield schema.empty_table()


def _entries(batch: int, ordinal: int, rows: pa.Table) -> Iterator[tuple[str, bytes]]:
    """Yield entries of the tail: id, and the JSON text of the entry's rows."""
    for part in rows.combine_chunks().to_batches(max_chunksize=ENTRY_ROWS):
        text = json_rows(part)
        sizes = pc.binary_length(text).to_pylist()
        first = 0
        while first < len(sizes):
            last, size = first, 0
            while last < len(sizes) and size + sizes[last] < ENTRY_BYTES:
                size += sizes[last] + 1
                last += 1
            if last > first:
                lines = "\n".join(text[first:last].to_pylist())
                yield tail_entry(batch, ordinal + first), lines.encode()
            first = max(last, first + 1)
        ordinal += part.num_rows
