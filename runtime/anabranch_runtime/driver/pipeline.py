"""The Structured Streaming query: named sources, one stream of blocks, one job per micro-batch.

Recorded streams share one source; Redis Streams, directories of files and landed batches of Spark's
own sources share another (``sources``, ``ingest``). Tasks read their shares of both themselves.

In live mode, a stream whose source can't be opened is left out and reported. The other streams
run, and the source is retried every :data:`TRIAL` seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from redis.exceptions import RedisError

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.connectors.sources import RECORDED
from anabranch_contract.errors import StructuredError
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.spark_settings import is_local
from anabranch_runtime.control import Control
from anabranch_runtime.driver.beside import Beside, checkpoints_of, spark_writers
from anabranch_runtime.driver.cluster import Cluster
from anabranch_runtime.driver.compactor import Compactor
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.exit_cause import redis_away
from anabranch_runtime.driver.reporting.heartbeat import LONG, Heart
from anabranch_runtime.driver.reporting.source_health import SourceHealth
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.recovery.checkpoint import source_offsets
from anabranch_runtime.sources import feeds
from anabranch_runtime.sources.awaited import awaited_marks
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.ingest.landing import Apart
from anabranch_runtime.sources.ingest.queries import Ingest
from anabranch_runtime.sources.permitted import masked, permitted_source
from anabranch_runtime.sources.planned import PlannedReader
from anabranch_runtime.sources.recordings import recorded
from anabranch_runtime.sources.recordings.recording import Recording, batches_of, convert
from anabranch_runtime.spark.executors import Executors
from anabranch_runtime.spark.job import run_batch, unfit_workers
from anabranch_runtime.spark.merges import by_any, by_owner
from anabranch_runtime.spark.session import (
    drivers_python,
    one_each,
    parallelism,
    slots_now,
    starting,
    warm_up,
)
from anabranch_runtime.spark.watchdog import Watchdog, signs
from anabranch_runtime.storage.disk_errors import diagnosed
from anabranch_runtime.storage.durable import attach, durable
from anabranch_runtime.storage.pipeline_lock import exclusive
from anabranch_runtime.task.context import BatchContext, exchange_directory
from anabranch_runtime.task.memory import check_limit
from anabranch_runtime.views.upkeep import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = structlog.get_logger("anabranch.runtime")

#: Seconds between two trials to open the sources of streams that were left out.
TRIAL = 10.0
#: Restarts of the Spark query after losses of a source's process before the pipeline fails.
TRIES = 5
#: Spark's error messages if the process that plans a source has ended, or has not started within
#: Spark's ten seconds because the machine was too busy.
_PLANNER_LOST = (
    "Python worker failed to connect back",
    "Broken pipe",
    "Connection reset",
    "java.io.EOFException",
)
#: Seconds between two checks of the Spark query and the stop key.
WATCH = 0.05
#: Folder with recordings, in the state directory and in the object store.
RECORDINGS = "recordings"
#: Seconds to wait for the start of Spark's session after the work done in parallel.
SESSION = 180.0
#: Seconds between two checks of the registry.
LOOK = 0.5


@dataclass(slots=True)
class Opened:
    """Opened sources, and errors of sources that can't be opened.

    Attributes:
        frames: one streaming frame without rows per source.
        planned: source -> factory of the reader that plans it. ``feeds``: ids of their feeds.
        errors: stream -> the error of its source.
        recordings: names of the recordings in the object store; empty on one machine.
        total_batches: total number of batches, if it is known.
    """

    frames: list[DataFrame] = field(default_factory=list)
    planned: dict[str, Callable[[], PlannedReader]] = field(default_factory=dict)
    feeds: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    recordings: set[str] = field(default_factory=set)
    total_batches: int | None = None

    def union(self) -> DataFrame:
        """The union of all frames."""
        return reduce(lambda one, other: one.union(other), self.frames)

    def plan(
        self,
        session: SparkSession,
        name: str,
        source: type[DataSource],
        reader: Callable[[dict[str, str]], PlannedReader],
        options: dict[str, str],
    ) -> None:
        """Add a source of this runtime, called ``name`` in the Spark query."""
        with drivers_python(session):
            session.dataSource.register(source)
        stream = session.readStream.format(source.name()).options(**options)
        self.frames.append(stream.name(name).load())
        self.planned[name] = partial(reader, options)


@dataclass(slots=True)
class SparkPipeline:
    """One pipeline: all registered streams, one Spark query, one driver.

    Attributes:
        begun: Spark's session, if its start has already begun; otherwise :meth:`run` begins it.
        abandon: ends the process at once with an error, if an orderly end is impossible.
    """

    settings: DriverSettings
    control: Control
    master: str
    begun: Future[SparkSession] | None = None
    abandon: Callable[[StructuredError], None] | None = None
    _tries: int = 0

    def run(self) -> None:
        """Run until a stop is requested, or until the Spark query fails.

        The Spark query is restarted from its checkpoint whenever the set of streams changes. Named
        sources keep their offsets; a new source starts from its beginning.
        """
        # The state is checked while the JVM starts.
        begun = self.begun or starting(self.master, self.settings.spark)
        try:
            self.settings.state.mkdir(parents=True, exist_ok=True)
            (self.settings.state / RECORDINGS).mkdir(exist_ok=True)
            kept = attach(self.settings.state, self.settings.object_store)
            with (
                exclusive(self.settings.state),
                kept.held(),
                Heart(self.control).beating() as heart,
            ):
                self._run(begun, heart)
        except Exception as error:
            found = self._cause_of(error)
            if found is error:
                raise
            raise found from error
        finally:
            _stop(begun)

    def _cause_of(self, error: Exception) -> Exception:
        """The cause of ``error`` if it is known, otherwise ``error`` itself."""
        found = diagnosed(error, (self.settings.state, self.settings.results))
        if isinstance(found, (Py4JError, ConnectionError)):
            return PipelineError(
                "spark-lost",
                f"Spark's JVM does not answer any more: {error}",
                remedy="see the log above for why; start the runtime again, nothing is lost",
            )
        return redis_away(found, self.control) if isinstance(found, RedisError) else found

    def _run(self, begun: Future[SparkSession], heart: Heart) -> None:
        driver = Driver(self.settings, self.control)
        driver.announce()
        session = _session(begun)
        local = is_local(self.master)
        # On a cluster only the tasks know how many of them share a host.
        tasks = session.sparkContext.defaultParallelism if local else 1
        check_limit(self.settings.memory_limit, tasks)
        # Workers start while sources are opened; the first batch waits for the rest.
        threading.Thread(target=_warm_up, args=(session,), name="warm-up", daemon=True).start()
        views = driver.reporting.views = self._views(session, driver)
        driver.reporting.show_views(driver.state)
        cluster = driver.cluster = None if local else self._cluster(session)
        driver.compactor = _compactor(self.settings.state, session, cluster)
        apart = None
        if cluster is not None and self.settings.object_store is not None:
            apart = Apart(cluster.cache, self.settings.object_store)
        ingest = Ingest(session, self.settings.state, local, self.settings.access, apart)
        records = self.control.streams()
        ingest.committed(driver.state, driver.durability.choices)
        health = SourceHealth(self.control, ingest)
        heart.working()
        try:
            while not self.control.stop_requested():
                heart.well()
                records = self.control.streams()
                driver.belong()
                health.look(records)
                if records:
                    self._stream(session, driver, records, health, heart)
                else:
                    driver.report("idle")
                    time.sleep(WATCH)
            heart.well(LONG)
            driver.publisher.retry(now=True)
            if self.settings.mode is Mode.STEP:
                views.drain()
            driver.finish()
        except Exception as error:
            with contextlib.suppress(RedisError):
                driver.report("failed", masked(str(self._cause_of(error))))
            raise
        finally:
            driver.compactor.close()
            if cluster is not None:
                cluster.meeting.shutdown()
            health.ingest.close()
            with contextlib.suppress(Py4JError, ConnectionError):
                views.close()
        driver.report("stopped")

    def _cluster(self, session: SparkSession) -> Cluster | None:
        """Coordinator of tasks whose hosts share only the object store; None without an object
        store, where tasks share the state directory.
        """
        if self.settings.object_store is None:
            return None
        from anabranch_runtime.exchange.meeting import Meeting

        conf, port = session.sparkContext.getConf(), self.settings.cluster.port
        host = conf.get("spark.driver.host") or "127.0.0.1"
        meeting = Meeting(host, port, conf.get("spark.driver.bindAddress"))
        return Cluster(meeting, self.settings.cluster.cache, self.settings.cache_size)

    def _views(self, session: SparkSession, driver: Driver) -> Views | Beside:
        """Add Spark's writers of sinks to the publisher, and start maintaining views."""
        settings, namespace = self.settings, self.control.keys.namespace
        views: Views | Beside
        if is_local(self.master):
            driver.publisher.writers |= spark_writers(session, settings, namespace)
            views = Views(
                session,
                settings.results,
                checkpoints_of(settings),
                driver.publisher.writers,
                self.control.report_view,
                driver.reporting.tails.feed_version,
            )
        else:
            views = Beside(settings, self.control.url, namespace)
            driver.publisher.writers |= dict.fromkeys((SinkKind.FILES, SinkKind.TABLE), views.write)
        views.begin(driver.state.next_batch, driver.state.queries)
        return views

    def _stream(
        self,
        session: SparkSession,
        driver: Driver,
        records: list[StreamRecord],
        health: SourceHealth,
        heart: Heart,
    ) -> None:
        """Run the Spark query over ``records`` until a stop is requested or they change."""
        heart.well(LONG)
        health.ingest.forget_others()
        used = frozenset(source_offsets(driver.state.offsets))
        tasks = parallelism(session)
        opened = self._open(session, records, tasks, used)
        health.left_out = opened.errors
        health.opened = frozenset(r.registration for r in records)
        driver.progress.left_out = health.unread()
        driver.progress.sources = Sources(
            opened.planned, tasks, tuple(records), frozenset(opened.feeds), opened.errors
        )
        if not opened.errors:
            # A stream that can't be read now may still need its recording later.
            durable(self.settings.state).withdraw(f"{RECORDINGS}/", opened.recordings)
        if not opened.frames:
            driver.report("idle")
            time.sleep(LOOK)
            return
        driver.reporting.total_batches = opened.total_batches
        busy, leaving = threading.Lock(), threading.Event()
        slots, cluster = one_each(session, tasks), driver.cluster
        executors = Executors(session)
        watchdog = Watchdog(self.settings.stuck_after)

        def apply(_: DataFrame, batch: int) -> None:
            def job(context: BatchContext) -> list[TaskReport]:
                if cluster is None:
                    with watchdog.over(batch, partial(signs, exchange_directory(context))):
                        return run_batch(slots, context)
                meeting = cluster.meeting
                places, room = executors.slots()
                try:
                    with watchdog.over(
                        batch,
                        partial(meeting.signs, context.attempt),
                        lambda: slots_now(session) < room,
                    ):
                        return run_batch(places, context)
                except Exception as error:
                    found = meeting.failure(context.attempt) or unfit_workers(error)
                    if found is None or isinstance(error, StructuredError):
                        raise
                    raise found from error
                finally:
                    meeting.over(context.attempt)

            with busy:
                if leaving.is_set():
                    raise PipelineError("stopped", "asked to stop before the batch began")
                try:
                    driver.run(batch, job)
                    health.ingest.committed(driver.state, driver.durability.choices)
                    self._tries = 0
                except StructuredError as error:
                    # Spark would pass on only the text of the error.
                    driver.failure = error
                    raise
                except RedisError as error:
                    driver.failure = redis_away(error, self.control)
                    raise
                except Py4JError as error:
                    driver.failure = unfit_workers(error)
                    raise

        driver.align()
        # On a cluster, Spark's default file system may not be this machine's.
        checkpoint = f"file://{self.settings.state / 'checkpoint'}"
        query = (
            opened.union()
            .writeStream.foreachBatch(apply)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        driver.report("running")

        def look() -> None:
            """Cancel the running batch, or abandon the process, if the batch hangs."""
            cancel = partial(session.sparkContext.cancelJobGroup, str(query.runId))
            try:
                watchdog.look(cancel)
            except PipelineError as error:
                if self.abandon is None:
                    raise
                self.abandon(error)

        try:
            self._watch(session, query, driver, records, health, busy, heart, look)
        finally:
            while not busy.acquire(timeout=LOOK):
                look()
                # This calls the JVM: if the JVM hangs, the heartbeat expires.
                if query.isActive:
                    heart.well()
            leaving.set()
            busy.release()
            heart.well(LONG)
            # Not under the lock: a batch that waits for the lock has to end first.
            query.stop()

    def _open(
        self,
        session: SparkSession,
        records: list[StreamRecord],
        tasks: int,
        used: frozenset[str] = frozenset(),
    ) -> Opened:
        """Open the sources of all streams, divided among ``tasks`` tasks. In step mode, a source
        that can't be opened is an error.

        A source of this runtime that was ``used`` before stays even without streams, since Spark
        would drop its offsets otherwise.
        """
        opened = Opened()
        url, namespace = self.control.url, self.control.keys.namespace
        state, access = str(self.settings.state), self.settings.access
        recordings: list[Recording] = []
        fed: list[StreamRecord] = []
        for record in records:
            try:
                permitted_source(record, access, namespace)
                if record.source.format == RECORDED:
                    recordings.append(convert(record, self.settings.state / RECORDINGS))
                    if not is_local(self.master):
                        name = f"{RECORDINGS}/{Path(recordings[-1].path).name}"
                        durable(self.settings.state).offer(name)
                        opened.recordings.add(name)
                else:
                    opened.feeds.add(
                        feeds.make_feed(record, url, Keys(namespace), state, access).id
                    )
                    fed.append(record)
            except StructuredError as error:
                if self.settings.mode is Mode.STEP:
                    raise
                reason = masked(str(error))
                _LOG.error("stream left out", stream=record.name, error=reason)
                opened.errors[record.name] = reason
        live = self.settings.mode is Mode.LIVE
        waiting = awaited_marks(records) if live else {}
        if recordings or "recorded" in used:
            options = recorded.source_options(recordings, tasks, url, namespace, waiting)
            opened.plan(
                session, "recorded", recorded.RecordedSource, recorded.RecordedReader, options
            )
        if fed or "feeds" in used:
            options = feeds.source_options(fed, tasks, url, namespace, state, access, live=live)
            opened.plan(session, "feeds", feeds.FeedsSource, feeds.FeedsReader, options)
        if recordings and not fed and not waiting:
            opened.total_batches = batches_of(recordings)
        return opened

    def _watch(
        self,
        session: SparkSession,
        query: StreamingQuery,
        driver: Driver,
        records: list[StreamRecord],
        health: SourceHealth,
        busy: threading.Lock,
        heart: Heart,
        look: Callable[[], None],
    ) -> None:
        """Wait for a stop request, a change of the streams, or a failure of the query."""
        idle, looked = False, time.monotonic()
        tried = looked
        while not self.control.stop_requested():
            if not query.isActive:
                if driver.rewound:
                    return
                if driver.failure is not None:
                    raise driver.failure
                cause = str(query.exception()).split("\n=== Streaming Query ===")[0]
                if any(sign in cause for sign in _PLANNER_LOST) and self._tries < TRIES:
                    self._tries += 1
                    _LOG.warning("a source's process has ended", tries=self._tries, error=cause)
                    return
                raise PipelineError("query-failed", masked(f"the Spark query has ended: {cause}"))
            heart.well()
            if driver.reporting.exhausted(driver.state) and not idle:
                driver.report("idle")
                idle = True
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                look()
                registered = records
                if self.settings.mode is Mode.LIVE:
                    registered = self.control.streams()
                else:
                    health.ingest.check()
                health.held = driver.progress.held(driver.state)
                health.look(registered)
                if registered != records:
                    return
                if health.left_out and time.monotonic() - tried > TRIAL:
                    heart.well(LONG)
                    tried_now = self._open(session, records, parallelism(session))
                    if tried_now.errors.keys() != health.left_out.keys():
                        return
                    tried = time.monotonic()
                driver.progress.left_out = health.unread()
                if busy.acquire(blocking=False):
                    try:
                        # Delivers results that wait for a sink.
                        heart.well(LONG)
                        driver.tick()
                        driver.reporting.intake(driver.state)
                    finally:
                        busy.release()
            time.sleep(WATCH)


def _compactor(root: Path, session: SparkSession, cluster: Cluster | None) -> Compactor:
    """Compactor that merges in this process, on any executor, or on the hosts of the segments."""
    spark = session.sparkContext
    if is_local(spark.master or "local"):
        return Compactor(root, beside=True)
    if cluster is None:
        return Compactor(root, by_any(spark), beside=True)
    token, anywhere = cluster.meeting.place.token, by_any(spark, cluster.cache)
    work = by_owner(cluster.office_of, token, anywhere)
    return Compactor(root, work, beside=True, queue=cluster.office_of)


def _session(begun: Future[SparkSession]) -> SparkSession:
    """Wait for the session that ``begun`` starts.

    Raises:
        PipelineError: ``spark-not-started``: the start takes too long, or Spark reports an error.
    """
    try:
        return begun.result(SESSION)
    except Py4JJavaError as error:
        # Java's message, without the stack trace.
        said = str(error).split("\n: ", 1)[-1].splitlines()[0]
        raise PipelineError(
            "spark-not-started",
            f"Spark does not start: {said}",
            remedy="correct --master, or the setting (--spark-conf) that it is about; the log "
            "above says more",
        ) from error
    except TimeoutError as error:
        # A session whose start failed by its own timeout raises TimeoutError too.
        if begun.done():
            raise
        raise PipelineError(
            "spark-not-started",
            f"Spark's JVM has not started within {SESSION:.0f} s",
            remedy="see the log above for why; start the runtime again, nothing is lost",
        ) from error


def _stop(begun: Future[SparkSession]) -> None:
    """Stop a started session. If its JVM is lost, the errors of stopping are suppressed. A session
    that is still starting ends with this process.
    """
    if begun.done() and begun.exception() is None:
        with contextlib.suppress(Py4JError, ConnectionError):
            begun.result().stop()


def _warm_up(session: SparkSession) -> None:
    try:
        warm_up(session)
    except (Py4JError, ConnectionError) as error:
        # The first batch reports the actual error of the workers.
        _LOG.warning("workers not warmed up", error=str(error)[:500])
