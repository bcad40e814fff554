"""The Structured Streaming query: named sources, one stream of blocks, one job per micro-batch.

Recorded streams share one source (``source``). Every other stream is a ``readStream`` of its own
format under its own name; its rows become blocks in one ``mapInArrow`` pass, so that what is
unioned, and all that ever crosses a shuffle, is blocks.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog
from redis.exceptions import RedisError

from anabranch_planner.exchange import Mode
from anabranch_planner.types import parse_type
from anabranch_runtime.driver import Driver
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.job import run_batch
from anabranch_runtime.sources.recorded import (
    FORMAT,
    SCHEMA,
    RecordedSource,
    block_row,
    source_options,
)
from anabranch_runtime.sources.recording import Recording, batches_of, convert
from anabranch_runtime.vectors.arrow_types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch_runtime.control import Control, StreamRecord
    from anabranch_runtime.driver import Settings

_LOG = structlog.get_logger("anabranch.runtime")

#: Tuples per block of a source that is not a recording.
BLOCK_ROWS = 1 << 16
#: Seconds between two looks at the query and the stop key.
WATCH = 0.05
#: Seconds between two looks at the registry.
LOOK = 0.5

_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
#: Measured on small batches. A Unix socket to the workers spares delayed acknowledgements; the
#: daemon spares a garbage collection per task; this checkpoint manager over the raw local file
#: system spares a forked process per permission; the first compiler tier suffices for short jobs.
SPARK_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "anabranch_runtime.daemon",
    "spark.sql.streaming.checkpointFileManagerClass": _MANAGER,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
    " -Djdk.lang.Process.launchMechanism=VFORK",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # A retried stage could read messages of its failed attempt: the driver retries the batch.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
}


def spark_session(master: str) -> SparkSession:
    """A session configured for small, frequent batches.

    Workers run under this process's interpreter, whatever ``python3`` the search path has.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("anabranch")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def warm_up(session: SparkSession) -> None:
    """Start the workers and load what they need, before the first batch has to wait for it."""
    tasks = session.sparkContext.defaultParallelism
    frame = session.range(0, tasks, 1, tasks)
    frame.mapInArrow(_nothing, "x long", barrier=True).collect()


@dataclass(slots=True)
class Pipeline:
    """One pipeline: all registered streams, one Spark query, one driver."""

    settings: Settings
    control: Control
    master: str

    def run(self) -> None:
        """Run until asked to stop, or until the Spark query fails.

        The Spark query is restarted from its checkpoint whenever the set of streams changes: named
        sources keep their offsets, a new one starts from its own beginning.
        """
        self.settings.state.mkdir(parents=True, exist_ok=True)
        (self.settings.state / "recordings").mkdir(exist_ok=True)
        driver = Driver(self.settings, self.control)
        driver.announce()
        session = spark_session(self.master)
        warm_up(session)
        try:
            while not self.control.stop_requested():
                records = self.control.streams()
                if records:
                    self._stream(session, driver, records)
                else:
                    driver.report("idle")
                    time.sleep(WATCH)
        except Exception as error:
            with contextlib.suppress(RedisError):
                driver.report("failed", str(error))
            raise
        finally:
            session.stop()
        driver.finish()
        driver.report("stopped")

    def _stream(self, session: SparkSession, driver: Driver, records: list[StreamRecord]) -> None:
        """Run the Spark query over ``records`` until asked to stop or they change."""
        recorded = [r for r in records if r.source.format == "recorded"]
        others = [r for r in records if r.source.format != "recorded"]
        recordings = [r for r in map(self._recording, recorded) if r is not None]
        if not recordings and not others:
            time.sleep(LOOK)
            return
        driver.total_batches = None if others else batches_of(recordings)
        busy, leaving = threading.Lock(), threading.Event()

        def apply(frame: DataFrame, batch: int) -> None:
            with busy:
                if leaving.is_set():
                    raise PipelineError("stopped", "asked to stop before the batch began")
                driver.run(batch, lambda context: run_batch(frame, context))

        frame = self._blocks(session, recordings, others)
        query = (
            frame.writeStream.foreachBatch(apply)
            .option("checkpointLocation", str(self.settings.state / "checkpoint"))
            .start()
        )
        driver.report("running")
        try:
            self._watch(query, driver, records, busy)
        finally:
            with busy:
                leaving.set()
            # Not under the lock: Spark waits for a batch that waits for it, to be refused.
            query.stop()

    def _recording(self, record: StreamRecord) -> Recording | None:
        """A stream's recording; live, one that can't be read is left out and the others go on."""
        try:
            return convert(record, self.settings.state / "recordings")
        except PipelineError as error:
            if self.settings.mode is Mode.STEP:
                raise
            _LOG.error("stream left out", stream=record.name, error=str(error))
            return None

    def _blocks(
        self,
        session: SparkSession,
        recordings: list[Recording],
        others: list[StreamRecord],
    ) -> DataFrame:
        """One streaming frame of blocks over all sources."""
        tasks = session.sparkContext.defaultParallelism
        frames = []
        if recordings:
            session.dataSource.register(RecordedSource)
            options = source_options(
                recordings, tasks, self.control.url, self.control.keys.namespace
            )
            reader = session.readStream.format(FORMAT).options(**options)
            frames.append(reader.name("recorded").load())
        for record in others:
            columns = ", ".join(f"`{c.name}` {c.type}" for c in record.columns)
            reader = session.readStream.format(record.source.format).options(
                **record.source.options
            )
            if record.source.format in ("parquet", "json", "csv", "orc"):
                reader = reader.schema(columns)
            named = reader.name(record.name).load(record.source.path)
            casts = [f"cast(`{c.name}` as {c.type}) as `{c.name}`" for c in record.columns]
            frames.append(named.selectExpr(*casts).mapInArrow(_to_blocks(record), SCHEMA))
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.union(other)
        return frame if not others else frame.repartition(tasks)

    def _watch(
        self,
        query: StreamingQuery,
        driver: Driver,
        records: list[StreamRecord],
        busy: threading.Lock,
    ) -> None:
        """Wait for a stop request, a change of the streams, or a failure of the query."""
        idle, looked = False, time.monotonic()
        while not self.control.stop_requested():
            if not query.isActive:
                cause = query.exception()
                raise PipelineError("query-failed", f"the Spark query has ended: {cause}")
            if driver.exhausted and not idle:
                driver.report("idle")
                idle = True
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                if self.settings.mode is Mode.LIVE and self.control.streams() != records:
                    return
                if busy.acquire(blocking=False):
                    try:
                        driver.tick()
                    finally:
                        busy.release()
            time.sleep(WATCH)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Drain the input."""
    for _ in batches:
        pass
    yield from ()


def _to_blocks(
    record: StreamRecord,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows of one source to blocks of its stream."""
    name = record.name
    schema = pa.schema([(c.name, arrow_type(parse_type(c.type))) for c in record.columns])

    def convert_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for first in range(0, batch.num_rows, BLOCK_ROWS):
                part = batch.slice(first, BLOCK_ROWS)
                columns = [c.cast(f.type) for c, f in zip(part.columns, schema, strict=True)]
                yield block_row(name, pa.RecordBatch.from_arrays(columns, schema=schema))

    return convert_rows
