"""A running pipeline: opens the sources of all streams, and runs batch after batch.

Recorded streams share one planned source; Redis Streams, directories of files and landed batches of
Spark's own sources share another (``sources``, ``ingest``). One thread runs the batches
(``batch_loop``), while the main thread looks after requests, streams and hanging tasks.

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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from redis.exceptions import RedisError

from anabranch_contract.connectors.sources import RECORDED
from anabranch_contract.errors import StructuredError
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.spark_settings import is_local
from anabranch_runtime.control import Control
from anabranch_runtime.driver.batch_loop import BatchLoop
from anabranch_runtime.driver.beside import Beside, spark_writers
from anabranch_runtime.driver.cluster import Cluster
from anabranch_runtime.driver.compactor import Compactor
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.exit_cause import redis_away
from anabranch_runtime.driver.reporting.heartbeat import LONG, Heart
from anabranch_runtime.driver.reporting.source_health import SourceHealth
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.driver.tables import OF_SPARK
from anabranch_runtime.driver.turn import Standby, turn
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.exchange.lines import TaskListener
from anabranch_runtime.sources.awaited import awaited_marks
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.feeds import Feeds, make_feed
from anabranch_runtime.sources.ingest.landing import Apart
from anabranch_runtime.sources.ingest.queries import Ingest
from anabranch_runtime.sources.permitted import masked, permitted_source
from anabranch_runtime.sources.planned import InputControl, PlannedSource
from anabranch_runtime.sources.recordings.recorded import Recorded
from anabranch_runtime.sources.recordings.recording import Recording, batches_of, convert
from anabranch_runtime.spark.executors import Executors
from anabranch_runtime.spark.job import unfit_workers
from anabranch_runtime.spark.merges import by_owner
from anabranch_runtime.spark.session import await_loss, parallelism, starting, warm_up
from anabranch_runtime.spark.watchdog import Watchdog
from anabranch_runtime.spark.workers import Workers
from anabranch_runtime.storage.disk_errors import diagnosed
from anabranch_runtime.storage.durable import attach, durable
from anabranch_runtime.task.compact import compact
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.memory import check_limit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = structlog.get_logger("anabranch.runtime")

#: Seconds between two trials to open the sources of streams that were left out.
TRIAL = 10.0
#: Seconds between two checks of the batches and the stop key.
WATCH = 0.05
#: Folder with recordings, in the state directory and in the object store.
RECORDINGS = "recordings"
#: Longest wait in seconds for Spark's session, after all work is done that can be done without it.
SESSION = 180.0
#: Seconds that stopping Spark's session may take.
STOP = 10.0
#: Seconds between two checks of the registry.
LOOK = 0.5


@dataclass(slots=True)
class Opened:
    """Opened sources, and errors of sources that can't be opened.

    Attributes:
        planned: the planned sources by name. ``feeds``: ids of the feeds that they read.
        errors: stream -> the error of its source.
        recordings: names of the recordings in the object store; empty on one machine.
        total_batches: total number of batches, if it is known.
    """

    planned: dict[str, PlannedSource] = field(default_factory=dict)
    feeds: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    recordings: set[str] = field(default_factory=set)
    total_batches: int | None = None


@dataclass(slots=True)
class SparkPipeline:
    """One pipeline: all registered streams, one driver.

    Attributes:
        begun: Spark's session, if its start has begun already; otherwise :meth:`run` starts it.
        abandon: ends the process at once with an error, if an orderly end is impossible.
        standby: whether to wait, ready to take over, while another process runs the pipeline.
        workers: resident workers of batches on one machine, once Spark has started.
    """

    settings: DriverSettings
    control: Control
    master: str
    begun: Future[SparkSession] | None = None
    abandon: Callable[[StructuredError], None] | None = None
    standby: bool = False
    workers: Workers | None = field(default=None, init=False)
    _session: SparkSession | None = field(default=None, init=False)
    _warmed: bool = field(default=False, init=False)

    def run(self) -> None:
        """Run until a stop is requested, or until a batch fails.

        Sources are opened again whenever the set of streams changes. They keep their offsets; a new
        stream is read from its beginning.
        """
        # The state is checked while the JVM starts.
        begun = self.begun or starting(self.master, self.settings.spark)
        standby = Standby(self.control, partial(self._warm, begun)) if self.standby else None
        try:
            self.settings.state.mkdir(parents=True, exist_ok=True)
            (self.settings.state / RECORDINGS).mkdir(exist_ok=True)
            kept = attach(self.settings.state, self.settings.object_store)
            with turn(self.settings.state, kept, standby) as mine:
                if mine:
                    with Heart(self.control).beating() as heart:
                        self._run(begun, heart)
        except Exception as error:
            found = self._cause_of(error)
            if found is error:
                raise
            raise found from error
        finally:
            _stop(begun)

    def _warm(self, begun: Future[SparkSession]) -> None:
        """Wait for Spark's session, and start workers in advance, so that batches find them."""
        session = self._started(begun)
        if self.workers is not None:
            self.workers.warm()
        elif not self._warmed:
            self._warmed = True
            # Executors may get no slots before the end of the process that now runs the pipeline.
            threading.Thread(target=_warm_up, args=(session,), name="warm-up", daemon=True).start()

    def _started(self, begun: Future[SparkSession]) -> SparkSession:
        """Wait for Spark's session; afterwards this process ends if the session's JVM does."""
        session = _session(begun)
        if self._session is None:
            self._session = session
            if is_local(self.master):
                self.workers = self._workers(session)
            threading.Thread(target=self._await_loss, name="jvm", daemon=True).start()
        return session

    def _await_loss(self) -> None:
        """Abandon the process when Spark's JVM ends: an orderly end would wait for its calls."""
        assert self._session is not None
        code = await_loss(self._session)
        if self.abandon is not None:
            durable(self.settings.state).give_up()
            self.abandon(_lost(f"it has ended, exit code {code}"))

    def _cause_of(self, error: Exception) -> Exception:
        """The cause of ``error`` if it is known, otherwise ``error`` itself."""
        found = diagnosed(error, (self.settings.state, self.settings.results))
        if isinstance(found, (Py4JError, ConnectionError)):
            return _lost(str(error))
        return redis_away(found, self.control) if isinstance(found, RedisError) else found

    def _cause_of_batch(self, error: BaseException) -> BaseException:
        """Return the cause of a batch's failure ``error``: an error of this package, if known."""
        try:
            # Files of the batch may be missing because a successor took over and deleted them.
            durable(self.settings.state).check()
        except StateError as taken:
            return taken
        if isinstance(error, Py4JJavaError):
            return unfit_workers(error) or PipelineError(
                "query-failed", masked(f"a batch has failed: {error}")
            )
        return error

    def _run(self, begun: Future[SparkSession], heart: Heart) -> None:
        driver = Driver(self.settings, self.control)
        driver.announce()
        session = self._started(begun)
        local, workers = is_local(self.master), self.workers or self._workers(session)
        # Only on one machine: on a cluster, only the tasks know how many of them share a host.
        check_limit(
            self.settings.memory.workers, session.sparkContext.defaultParallelism if local else 1
        )
        # Workers start while sources are opened; the first batch waits for the rest. On a cluster,
        # not all executors may be there yet.
        if not self._warmed:
            ready = workers.start if local else partial(_warm_up, session)
            threading.Thread(target=ready, name="warm-up", daemon=True).start()
        sinks = self._sinks(session, driver)
        cluster = driver.cluster = None if local else self._cluster(workers)
        driver.compactor = _compactor(self.settings.state, cluster)
        apart = None
        if cluster is not None and self.settings.object_store is not None:
            apart = Apart(cluster.cache, self.settings.object_store)
        ingest = Ingest(session, self.settings.state, local, self.settings.access, apart)
        records = self.control.streams()
        ingest.committed(driver.state, driver.durability.choices)
        health = SourceHealth(self.control, ingest, driver.progress.rate_limiter.input)
        heart.working()
        try:
            while not self.control.stop_requested():
                heart.well()
                records = self.control.streams()
                driver.belong()
                health.look(records)
                if records:
                    self._stream(session, workers, driver, records, health, heart)
                else:
                    driver.publisher.retry()
                    driver.report("idle")
                    time.sleep(WATCH)
            heart.well(LONG)
            driver.publisher.retry(now=True)
            if self.settings.mode is Mode.STEP:
                driver.tables.drain()
            driver.finish()
        except Exception as error:
            with contextlib.suppress(RedisError):
                driver.report("failed", masked(str(self._cause_of(error))))
            raise
        finally:
            driver.compactor.close()
            workers.close()
            workers.listener.close()
            health.ingest.close()
            driver.tables.close()
            if sinks is not None:
                sinks.close()
        driver.report("stopped")

    def _workers(self, session: SparkSession) -> Workers:
        """The resident workers of batches, and the listener to which they connect."""
        spark, port = session.sparkContext, self.settings.cluster.port
        local, conf = is_local(self.master), spark.getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        listener = TaskListener(host, 0 if local else port, conf.get("spark.driver.bindAddress"))
        tasks = spark.defaultParallelism
        slots = (lambda: (tasks, None)) if local else Executors(session).slots
        return Workers(session, listener, slots)

    def _cluster(self, workers: Workers) -> Cluster | None:
        """Return the coordinator of tasks whose hosts share only the object store; None without an
        object store, where tasks share the state directory."""
        if self.settings.object_store is None:
            return None
        token = workers.listener.address.token
        return Cluster(token, self.settings.cluster.cache, self.settings.cache_size)

    def _sinks(self, session: SparkSession, driver: Driver) -> Beside | None:
        """Add the writers of Spark's sinks to the publisher; return their process, if any."""
        settings, namespace = self.settings, self.control.keys.namespace
        if is_local(self.master):
            driver.publisher.writers |= spark_writers(session, settings, namespace)
            return None
        beside = Beside(settings, namespace)
        driver.publisher.writers |= dict.fromkeys(OF_SPARK, beside.write)
        return beside

    def _stream(
        self,
        session: SparkSession,
        workers: Workers,
        driver: Driver,
        records: list[StreamRecord],
        health: SourceHealth,
        heart: Heart,
    ) -> None:
        """Run batches over ``records`` until a stop is requested or the streams change."""
        heart.well(LONG)
        health.ingest.forget_others()
        tasks = parallelism(session)
        control = driver.progress.rate_limiter.input
        opened = self._open(records, tasks, control)
        health.left_out = opened.errors
        health.opened = frozenset(r.registration for r in records)
        driver.progress.left_out = health.unread()
        driver.read(
            Sources(opened.planned, tasks, tuple(records), frozenset(opened.feeds), opened.errors)
        )
        if not opened.errors:
            # A stream that can't be read now may still need its recording later.
            durable(self.settings.state).withdraw(f"{RECORDINGS}/", opened.recordings)
        if not opened.planned:
            driver.publisher.retry()
            driver.report("idle")
            time.sleep(LOOK)
            return
        driver.reporting.total_batches = opened.total_batches
        watchdog = Watchdog(self.settings.stuck_after)
        workers.shared = not is_local(self.master) and bool(health.ingest.statuses())

        def job(context: BatchContext) -> list[TaskReport]:
            workers.start()
            with watchdog.over(context.batch, workers.signs, workers.short):
                return workers.run(context)

        def committed() -> None:
            health.ingest.committed(driver.state, driver.durability.choices)

        loop = BatchLoop(driver, job, committed, partial(workers.start, idle=True))
        driver.report("running")

        def look() -> None:
            """Check the running batch: if it hangs, cancel it, or else abandon the process.

            Raises:
                Py4JError: the JVM has ended. Between batches, this is its only call.
            """
            session.sparkContext._jsc.sc().isStopped()
            try:
                watchdog.look(workers.cancel)
            except PipelineError as error:
                if self.abandon is None:
                    raise
                self.abandon(error)

        loop.start()
        try:
            self._watch(loop, driver, tasks, records, health, heart, look)
        finally:
            while not loop.leave(LOOK):
                # The call enters the JVM: if the JVM hangs, the heartbeat expires.
                look()
                heart.well()
            heart.well(LONG)

    def _open(self, records: list[StreamRecord], tasks: int, control: InputControl) -> Opened:
        """Open the sources of all streams, divided among ``tasks`` tasks. In step mode, a source
        that can't be opened is an error."""
        opened = Opened()
        url, namespace = self.control.url, self.control.keys.namespace
        state, access = str(self.settings.state), self.settings.access
        results = str(self.settings.results)
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
                    feed = make_feed(record, url, Keys(namespace), state, access, results)
                    opened.feeds.add(feed.id)
                    fed.append(record)
            except StructuredError as error:
                if self.settings.mode is Mode.STEP:
                    raise
                reason = masked(str(error))
                _LOG.error("stream left out", stream=record.name, error=reason)
                opened.errors[record.name] = reason
        live = self.settings.mode is Mode.LIVE
        waiting = awaited_marks(records) if live else {}
        if recordings:
            opened.planned["recorded"] = Recorded(
                recordings, tasks, url, namespace, control, waiting
            )
        if fed:
            opened.planned["feeds"] = Feeds(
                fed, tasks, url, namespace, state, access, control, live=live, results=results
            )
        if recordings and not fed and not waiting:
            opened.total_batches = batches_of(recordings)
        return opened

    def _watch(
        self,
        loop: BatchLoop,
        driver: Driver,
        tasks: int,
        records: list[StreamRecord],
        health: SourceHealth,
        heart: Heart,
        look: Callable[[], None],
    ) -> None:
        """Wait for a stop request, a change of the streams, or a failure of a batch."""
        idle, looked = False, time.monotonic()
        tried = looked
        while not self.control.stop_requested():
            if loop.error is not None:
                raise self._cause_of_batch(loop.error)
            heart.well()
            driver.watch()
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
                    tried_now = self._open(records, tasks, InputControl())
                    if tried_now.errors.keys() != health.left_out.keys():
                        return
                    tried = time.monotonic()
                driver.progress.left_out = health.unread()
                with loop.between_batches() as between:
                    if between:
                        # Delivering results that wait for a sink may take long.
                        heart.well(LONG)
                        driver.tick()
                        driver.reporting.intake(driver.state)
            time.sleep(WATCH)


def _compactor(root: Path, cluster: Cluster | None) -> Compactor:
    """Compactor that merges on the hosts of a cluster, or else in this process."""
    if cluster is None:
        return Compactor(root, beside=True)
    work = by_owner(cluster.office_of, cluster.token, compact)
    return Compactor(root, work, beside=True, queue=cluster.office_of)


def _lost(reason: str) -> PipelineError:
    return PipelineError(
        "spark-lost",
        f"Spark's JVM does not answer any more: {reason}",
        remedy="see the log above for why; start the runtime again, nothing is lost",
    )


def _session(begun: Future[SparkSession]) -> SparkSession:
    """Wait for Spark's session, which ``begun`` starts.

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
    """Stop a started session, within :data:`STOP` seconds: Spark waits for a hanging daemon of its
    workers for ever. A session that is still starting ends with this process."""

    def stop() -> None:
        # The connection to the JVM may be lost.
        with contextlib.suppress(Py4JError, ConnectionError):
            begun.result().stop()

    if begun.done() and begun.exception() is None:
        thread = threading.Thread(target=stop, name="stop", daemon=True)
        thread.start()
        thread.join(STOP)


def _warm_up(session: SparkSession) -> None:
    try:
        warm_up(session)
    except (Py4JError, ConnectionError, PipelineError) as error:
        # The first batch reports the actual error of the workers.
        _LOG.warning("workers not warmed up", error=str(error)[:500])
