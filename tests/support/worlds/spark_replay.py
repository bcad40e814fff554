"""Replays of many scenarios on Spark in one process, with the real pipeline, its sources and
checkpoints.

What ``anabranch replay`` adds is the service's process; here plans and rulesets are made as in
:mod:`tests.support.worlds.local_replay`, so that they may be random ones. One Spark session serves
all runs, which is what most of the seconds of a replay go into.

A process may have one Spark session only, with its settings: this is for a process of its own
(``python -m tests.support.scenarios.run --engine spark``).
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import redis

from anabranch_contract import codec
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary, Mode, Progress
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.spark_settings import is_local
from anabranch_runtime.control import Control
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.pipeline import SparkPipeline
from anabranch_runtime.driver.reporting.heartbeat import Heart
from anabranch_runtime.driver.reporting.source_health import SourceHealth
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.sources import batch_input
from anabranch_runtime.sources.ingest.queries import Ingest
from anabranch_runtime.spark.session import spark_session, warm_up
from tests.support.oracles.oracle import Oracle
from tests.support.plain_service import PlainService, odd_plans, plan_normally
from tests.support.scenarios.file import read_document, read_scenario
from tests.support.scenarios.script import Script
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.records import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
#: Seconds between two checks of what the pipeline has reported.
_LOOK = 0.02


def start_spark(master: str = MASTER) -> SparkSession:
    """Return the Spark session of all replays of this process."""
    session = spark_session(master)
    warm_up(session)
    return session


@dataclass(slots=True)
class SparkReplay:
    """Replay of one scenario on Spark in step mode, with the streams of ``anabranch replay``.

    Attributes:
        script: of it ``odd``, ``layouts``, ``seed``, ``backfills`` and ``restarts`` are followed.
        objects: folder that is the object store behind the state, if there is one; then every
            restart is on a machine with an empty state directory.
        report, spans, begins, events: as ``LocalReplay`` has them.
    """

    path: Path
    out: Path
    redis_url: str
    session: SparkSession
    script: Script
    objects: Path | None = None
    report: dict[str, Any] = field(init=False, default_factory=dict)
    spans: dict[str, tuple[int | None, int | None]] = field(init=False, default_factory=dict)
    begins: dict[str, list[int]] = field(init=False, default_factory=dict)
    events: Counter[str] = field(init=False, default_factory=Counter)

    def run(self) -> dict[str, Activation]:
        """Run the replay; results are in ``out/results``. Return what became of the queries."""
        scenario, script = read_scenario(self.path), self.script
        connection = redis.Redis.from_url(self.redis_url)
        connection.flushall()
        # Workers survive a replay, and cache rulesets by namespace and epoch.
        namespace = f"run-{uuid.uuid4().hex[:12]}"
        service = PlainService(
            scenario,
            read_document(self.path),
            self.redis_url,
            odd_plans(script.seed) if script.odd else plan_normally,
            script,
            script.backfilling,
            namespace,
        )
        keys, control = Keys(namespace), Control(self.redis_url, namespace)
        for stream in service.streams:
            entry = scenario.streams[stream.name]
            record = StreamRecord(
                name=stream.name,
                columns=tuple(ColumnRecord(name=c, type=str(t)) for c, t in stream.columns),
                event_time=stream.event_time,
                source=SourceRecord(path=str(entry.path), rows_per_batch=entry.rows_per_batch),
            )
            put(connection, keys, "streams", stream.name, record.model_dump_json())
        settings = DriverSettings(
            self.out / "state",
            self.out / "results",
            scenario.every,
            mode=Mode.STEP,
            patience=60,
            access=OPEN,
            object_store=None if self.objects is None else self.objects.as_uri(),
            cache_size=None if self.objects is None else 4096,
        )
        (settings.state / "recordings").mkdir(parents=True)
        pipeline = SparkPipeline(settings, control, self.session.sparkContext.master or MASTER)
        workers = pipeline._workers(self.session)
        local = is_local(pipeline.master)
        cluster = None if local else pipeline._cluster(workers)
        for last in [*sorted(script.restarts), None]:
            connection.delete(keys.stop)
            if last is None:
                connection.delete(keys.gate)
            else:
                connection.set(keys.gate, last)
            driver = Driver(settings, control)
            driver.cluster = cluster
            driver.announce()
            ingest = Ingest(self.session, settings.state, local=local, access=OPEN)
            watch = SourceHealth(control, ingest, driver.progress.rate_limiter.input)
            attendant = _Attendant(service, connection, keys, last)
            attendant.start()
            # Every other replay divides few rows among its tasks too.
            few = batch_input.FEW if script.seed % 2 else 0
            try:
                while not control.stop_requested():
                    with patch.object(batch_input, "FEW", few):
                        pipeline._stream(
                            *(self.session, workers, driver, control.streams(), watch),
                            Heart(control),
                        )
            finally:
                attendant.leaving.set()
                attendant.join()
            if attendant.error is not None:
                raise attendant.error
            self.events["restart"] += last is not None
            if self.objects is not None and last is not None:
                self.events["machine lost"] += 1
                shutil.rmtree(settings.state)
                (settings.state / "recordings").mkdir(parents=True)
        workers.close()
        workers.listener.close()
        driver.finish()
        state = driver.state
        self.spans = {n: scenario.span(n, state.next_batch) for n in scenario.queries}
        epochs = [(e, e) for e in range(-(-state.next_batch // scenario.every))]
        self.begins = {n: service.begins(n, epochs) for n in scenario.queries}
        streams = {n: state.streams[n] for n in scenario.streams}
        self.report = {
            "batches": state.next_batch,
            "input_tuples": sum(s.input for s in streams.values()),
            "late_tuples": {n: s.late for n, s in streams.items()},
            "invalid_tuples": {n: s.invalid for n, s in streams.items()},
            "ahead_tuples": {n: s.ahead for n, s in streams.items()},
        }
        return state.queries

    def oracle(self) -> Oracle:
        """Return the oracle of this replay."""
        return Oracle(read_scenario(self.path))


class _Attendant(threading.Thread):
    """Simulated service: it answers boundaries, and stops the pipeline after the intended batch."""

    def __init__(
        self, service: PlainService, connection: redis.Redis, keys: Keys, last: int | None
    ) -> None:
        super().__init__(daemon=True)
        self.leaving = threading.Event()
        self.error: BaseException | None = None
        self._service = service
        self._redis = connection
        self._keys = keys
        self._last = last

    def run(self) -> None:
        try:
            while not self.leaving.wait(_LOOK):
                self._answer()
                text = self._redis.get(self._keys.runtime)
                progress = None if text is None else Progress.loads(text)
                if progress is None:
                    continue
                reached = self._last is not None and progress.committed >= self._last
                if reached or (progress.input.exhausted and progress.state != "starting"):
                    self._redis.set(self._keys.stop, "1")
        except BaseException as error:  # noqa: BLE001 - raised by the thread that joins
            self.error = error
            self._redis.set(self._keys.stop, "1")

    def _answer(self) -> None:
        for text in self._redis.lrange(self._keys.boundaries, 0, -1):
            boundary = Boundary.loads(text)
            if boundary.epoch + 1 in self._service.done:
                continue
            if boundary.snapshot is not None:
                self._service.snapshot = codec.loads(boundary.snapshot, Snapshot)
            self._service.publish(boundary.epoch + 1)


def draw_for_spark(seed: int, batches: int) -> Script:
    """Return a random script of features that a replay on Spark supports."""
    rng = Random(seed)
    odd = rng.random() < 0.7
    restarts = [b for b in range(1, batches) if rng.random() < 0.05]
    return Script(
        odd=odd,
        layouts=odd and rng.random() < 0.7,
        seed=seed,
        restarts=frozenset(restarts[:2]),
    )
