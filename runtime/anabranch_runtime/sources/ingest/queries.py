"""The ingest queries: each of Spark's own sources is read by a separate Spark query.

Design. When a source of a query fails, Spark ends the query and does not name the source. So each
of Spark's sources has an ingest query of its own, kept running by a thread, which writes the rows
to disk as *landed batches* (``landing``). The pipeline reads these as a feed. A failing source ends
only its own ingest query, which is restarted from its own checkpoint after increasing pauses, and
affects only its own stream.

In local mode all ingest jobs share one task slot, which batches leave free: each job has one task,
and jobs run one at a time (``session.with_spare_slots``). On a cluster they use the slots that
batches leave free (``spark.workers``).

An ingest query waits before a batch while more than ``MOST_BYTES`` have landed but not been read.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.postgres.options import POSTGRES
from anabranch_contract.errors import StructuredError
from anabranch_contract.protocol.intake import SourceState, SourceStatus
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.cpu import metered
from anabranch_runtime.recovery.journal import Journal
from anabranch_runtime.recovery.logs import prefixes
from anabranch_runtime.sources.ingest import landing
from anabranch_runtime.sources.ingest.appearances import appearances
from anabranch_runtime.sources.ingest.checkpoints import mend, offsets_of
from anabranch_runtime.sources.ingest.evaluate import Evaluation
from anabranch_runtime.sources.ingest.feed import LANDED
from anabranch_runtime.sources.ingest.source import LOOK, IngestSource
from anabranch_runtime.sources.ingest.spark_stream import has_files, reason, source_name, spark_rows
from anabranch_runtime.sources.loads import LONGEST_FIRST, QUIET, QUIET_FIRST, longest_pause
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Seconds after the newest file at which a source of files is checked for more files.
LOOKS = (QUIET, *(QUIET_FIRST * 2**n for n in range(6)), LONGEST_FIRST)
#: Seconds by which a file system's clock may be behind this machine's.
EARLY = 0.02
SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Milliseconds between two checks of the source by a query that has nothing to read.
    "spark.sql.streaming.pollingDelay": "20",
}


@dataclass(slots=True, eq=False)
class _Source(IngestSource):
    """One of Spark's sources, and the thread that keeps its ingest query running.

    Attributes:
        query: Spark's query, while it runs.
    """

    ingest: Ingest = field(kw_only=True)
    query: StreamingQuery | None = None
    #: Last record that input is exhausted: number of landed batches, seconds since the last file.
    _noted: tuple[int, float] = (-1, 0.0)
    _raised: Exception | None = None

    def _judged(self, error: Exception) -> StructuredError | None:
        if isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError):
            # Spark's JVM has ended, which the pipeline's main thread handles.
            return None
        return self._source_error(reason(error))

    def _read(self) -> None:
        """Run the source's ingest query until the thread is to end.

        Raises:
            Exception: the query has failed.
        """
        self._take_stock()
        frame, evaluation = spark_rows(self.ingest.session, self.record, self.ingest.access)
        self._raised = None
        self.query = query = (
            frame.writeStream.foreachBatch(partial(self._land, evaluation))
            .option("checkpointLocation", f"file://{self.home / 'checkpoint'}")
            .start()
        )
        ended = threading.Event()
        follower = threading.Thread(target=self._follow, args=(query, ended), daemon=True)
        follower.start()
        try:
            while not self._leaving.wait(LOOK):
                self._tidy()
                if not query.isActive:
                    raise self._cause(query)
                if self.status.state is not SourceState.READING and _looked(query):
                    self._reads()
        finally:
            ended.set()
            with contextlib.suppress(Py4JError, ConnectionError):
                query.stop()
            follower.join()
            self.query = None

    def drain(self) -> None:
        """Wait until all input that has arrived in the source has landed."""
        if self.query is not None:
            self.query.processAllAvailable()

    def _follow(self, query: StreamingQuery, ended: threading.Event) -> None:
        """Until ``query`` has ``ended``, record when its source has no more input: for a source of
        files, if none is new for a while; for other sources, once the backlog is read."""
        from pyspark.errors import PySparkException

        try:
            follow = self._follow_files if has_files(self.record) else self._follow_backlog
            follow(query, ended)
        except (Py4JError, ConnectionError, PySparkException):
            # The query has ended; the thread that runs it reports the reason.
            return
        except Exception as error:  # noqa: BLE001 - whatever fails, it is this source
            self._raised = error
            query.stop()

    def _follow_files(self, query: StreamingQuery, ended: threading.Event) -> None:
        while not ended.is_set():
            landed, newest = self._next, _newest_of(self._last)
            quiet = self._noted[1] if self._noted[0] == landed else 0.0
            due = next((moment for moment in LOOKS if moment > quiet), None)
            if due is None:
                ended.wait(LOOK)
                continue
            pause = newest + due - time.time()
            if pause > 0:
                ended.wait(min(pause + EARLY, LOOK))
                continue
            began = time.time()
            # Wait for a check of the source that begins after now and finds no input.
            query.processAllAvailable()
            if self._next == landed and not ended.is_set():
                self._note(landed, began - newest)

    def _follow_backlog(self, query: StreamingQuery, ended: threading.Event) -> None:
        while self._noted[0] < 0 and not ended.wait(LOOK):
            landed = self._next
            if _has_caught_up(query) and self._next == landed:
                self._note(landed, 0.0)

    def _note(self, landed: int, quiet: float) -> None:
        self._noted = landed, quiet
        landing.note_caught_up(self.home, landed, quiet)

    def _cause(self, query: StreamingQuery) -> Exception:
        """Return the error that ended Spark's ingest query."""
        return self._raised or RuntimeError(str(query.exception()))

    def _take_stock(self) -> None:
        """List the landed batches on disk, and make Spark's checkpoint agree with them."""
        self._list_landed()
        self._noted = landing.read_caught_up(self.home)
        mend(self.home, self._last, self.reached, self._next)

    def _land(self, evaluation: Evaluation, frame: DataFrame, batch: int) -> None:
        try:
            if self._last is None or batch > self._last.batch:
                self._hold()
                with metered(CpuGroup.SOURCE, self.record.name):
                    self._write(evaluation, frame, batch)
            if self.status.state is not SourceState.READING:
                self._reads()
        except Exception as error:
            # The exception is kept, since Spark passes on only its text.
            self._raised = error
            raise

    def _write(self, evaluation: Evaluation, frame: DataFrame, batch: int) -> None:
        folder = landing.begin(self.home)
        try:
            columns = [(c.name, c.type) for c in self.record.columns]
            with self.ingest.slot:
                frame = frame.coalesce(1) if self.ingest.local else frame
                write = landing.file_writer(
                    str(folder), columns, evaluation, self.ingest.access, self.ingest.apart
                )
                written = frame.mapInArrow(write, landing.WRITTEN).collect()
            if not written:
                return
            offsets = offsets_of(self.home / "checkpoint", batch)
            assert offsets is not None
            files = tuple(sorted((r["name"], r["rows"], r["bytes"]) for r in written))
            last = self._last
            logs = prefixes(self.home, {} if last is None else last.logs)
            seen = None
            if has_files(self.record):
                times = appearances(self.home, None if last is None else last.offsets, offsets)
                before = _newest_of(last)
                newest = max([before, *times])
                first = min(times, default=newest)
                seen = landing.Appearance(before, first, newest, longest_pause(times))
            landed = landing.Landed(batch, offsets, files, logs, seen)
            self._finish(folder, landed)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class Ingest:
    """All ingest queries of one pipeline.

    Attributes:
        session: the pipeline's Spark session, from which ingest queries get their own.
        home: the state directory.
        local: whether Spark runs on this machine only; then a job has one task, as slots are few.
        access: the access policy for sources.
        apart: where tasks write landed rows if hosts share only an object store; None: in the state
            directory.
        slot: lock held while a job runs.
    """

    session: SparkSession
    home: Path
    local: bool
    access: AccessPolicy
    apart: landing.Apart | None = None
    _sources: dict[str, IngestSource] = field(default_factory=dict)
    slot: AbstractContextManager[Any] = field(init=False)
    _offsets: Offsets | None = None

    def __post_init__(self) -> None:
        self.slot = threading.Lock() if self.local else contextlib.nullcontext()
        self.session = self.session.newSession()
        for key, value in SETTINGS.items():
            self.session.conf.set(key, value)

    def keep(self, records: Iterable[StreamRecord]) -> None:
        """Run ingest queries for the sources of ``records``, and end all others."""
        wanted = {source_name(record): record for record in records}
        for name in self._sources.keys() - wanted.keys():
            gone = self._sources.pop(name)
            gone.join()
            gone.retire()
        for name in wanted.keys() & self._sources.keys():
            self._sources[name].record = wanted[name]
        for name in wanted.keys() - self._sources.keys():
            record, home = wanted[name], landing.home_of(self.home, name)
            reached = _numbers(self._offsets).get(LANDED + name, 0)
            if record.source.format == POSTGRES:
                # Imported only here, since it imports a large client library.
                from anabranch_runtime.sources.postgres.following import TableSource

                self._sources[name] = TableSource(
                    record, home, reached, access=self.access, apart=self.apart
                )
            else:
                self._sources[name] = _Source(record, home, reached, ingest=self)

    def forget_others(self) -> None:
        """Delete the landed batches of sources that are no longer read; only between batches."""
        home = self.home / landing.INGEST
        for folder in home.iterdir() if home.is_dir() else ():
            if folder.name not in self._sources:
                landing.forget_all(folder)

    def committed(self, state: State, choices: Journal) -> None:
        """After the commit of ``state``, allow deletion of landed batches that have been read,
        except input of batches that, by the journal ``choices``, may be repeated."""
        self._offsets = state.offsets
        if not self._sources:
            return
        reached = _numbers(state.offsets)
        floors = _numbers(choices.offsets_before)
        for name, source in list(self._sources.items()):
            source.reached = reached.get(LANDED + name, 0)
            source.floor = floors.get(LANDED + name, 0)

    def statuses(self) -> dict[str, SourceStatus]:
        """Return stream -> status of its source, for sources with an ingest query or thread."""
        return {s.record.name: s.status for s in self._sources.values()}

    def check(self) -> None:
        """Raise the error of a source that fails at present, if there is one."""
        for source in self._sources.values():
            if source.error is not None:
                raise source.error

    def drain(self) -> None:
        """Wait until all input that has arrived at readable sources has landed."""
        for source in self._sources.values():
            while source.status.state is SourceState.NOT_TRIED:
                time.sleep(LOOK)
            if source.status.state is SourceState.READING:
                source.drain()

    def close(self) -> None:
        """End the ingest queries of all sources."""
        for source in self._sources.values():
            source.leave()
        for source in self._sources.values():
            source.join()
        self._sources.clear()


def _newest_of(landed: landing.Landed | None) -> float:
    """Return the time of the newest file in landed batches up to ``landed``; 0: no files."""
    return 0.0 if landed is None or landed.files_seen is None else landed.files_seen.newest


def _looked(query: StreamingQuery) -> bool:
    """Whether an ingest query has checked its source at least once without failing."""
    return query.lastProgress is not None or query.status["message"].startswith("Waiting for")


def _has_caught_up(query: StreamingQuery) -> bool:
    """Whether an ingest query has read all input that its last check of the source found."""
    if query.status["message"].startswith("Waiting for data"):
        return True
    progress = query.lastProgress
    return progress is not None and all(
        source["latestOffset"] is not None and source["latestOffset"] == source["endOffset"]
        for source in progress["sources"]
    )


def _numbers(offsets: Offsets | None) -> dict[str, int]:
    """Return feed id -> number of the next landed batch, from the offsets of all feeds."""
    feeds = {} if offsets is None else offsets.feeds
    return {key: value[0] for key, value in feeds.items() if key.startswith(LANDED)}
