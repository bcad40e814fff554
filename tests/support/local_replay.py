"""A replay without Spark and without the service: the real planner, driver and workers, with the
tasks of a batch as threads. What is left out is only what Spark and REST add, so many random
scenarios run in seconds; the same scenarios also run through the whole system (``tests/e2e``).
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import redis
import yaml

from anabranch_planner import ruleset as rulesets
from anabranch_planner.compile import compile_ruleset
from anabranch_planner.exchange import Boundary, Keys, Mode, Snapshot
from anabranch_planner.model import JoinQuery, Stream, StreamName
from anabranch_planner.optimiser.optimise import optimise
from anabranch_planner.plan import Optimizer, Plan
from anabranch_planner.sql.parse import parse_sql
from anabranch_planner.statistics import NoStatistics, Statistics
from anabranch_runtime.control import (
    ColumnRecord,
    Control,
    SourceRecord,
    StreamRecord,
    fetch_ruleset,
)
from anabranch_runtime.driver import Driver, Settings
from anabranch_runtime.sources.recording import Recording, batches_of, convert, read_rows
from anabranch_runtime.task.arrivals import Block
from anabranch_runtime.task.worker import TaskReport, run_task
from anabranch_runtime.vectors.arrow_types import spark_type
from tests.support.scenario_file import Scenario, read_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from anabranch_planner.exchange import Activation
    from anabranch_runtime.context import BatchContext

    #: Makes the plan of an epoch from its queries, statistics, optimizer and parallelism.
    Planner = Callable[[Sequence[JoinQuery], Statistics, Optimizer, int, int], Plan]


def plan_normally(
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    optimizer: Optimizer,
    parallelism: int,
    epoch: int,
) -> Plan:
    """What the service does."""
    return optimise(queries, statistics, optimizer=optimizer, parallelism=parallelism)


@dataclass(slots=True)
class LocalReplay:
    """One scenario, replayed in this process."""

    path: Path
    out: Path
    redis_url: str
    tasks: int = 2
    planner: Planner = plan_normally
    #: Called before each batch's commit; may raise to simulate a crash of the driver.
    crash: Callable[[int], None] = lambda _: None

    def run(self) -> dict[str, Activation]:
        """Replay to the end; results are in ``out/results``. Returns what became of queries."""
        scenario = read_scenario(self.path)
        document = yaml.safe_load(self.path.read_text())
        redis.Redis.from_url(self.redis_url).flushall()
        fetch_ruleset.cache_clear()
        service = _Service(scenario, document, self.redis_url, self.planner)
        control = Control(self.redis_url, "test")
        settings = Settings(
            self.out / "state", self.out / "results", scenario.every, mode=Mode.STEP, patience=5
        )
        settings.state.mkdir(parents=True, exist_ok=True)
        recordings = [_recording(scenario, s, settings.state) for s in service.streams]
        driver = Driver(settings, control, batches_of(recordings))
        batch = 0
        while batch < batches_of(recordings):
            if batch % scenario.every == 0:
                service.publish(batch // scenario.every)
            try:
                driver.run(batch, lambda c: self._job(c, recordings))
            except CrashError:
                driver = Driver(settings, control, batches_of(recordings))
                continue
            driver.state.validate()
            service.snapshot = _last_snapshot(control)
            batch += 1
        driver.finish()
        return driver.state.queries

    def _job(self, context: BatchContext, recordings: Sequence[Recording]) -> list[TaskReport]:
        rules = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        barrier = threading.Barrier(self.tasks)
        messages = [""] * self.tasks
        reports: list[TaskReport | BaseException] = [RuntimeError("unfinished")] * self.tasks

        def work(task: int) -> None:
            def exchange(message: str) -> list[str]:
                messages[task] = message
                barrier.wait(60)
                everybody = list(messages)
                barrier.wait(60)
                return everybody

            try:
                reports[task] = run_task(
                    context,
                    rules,
                    self._blocks(context.batch, task, recordings),
                    task=task,
                    tasks=self.tasks,
                    exchange=exchange,
                )
            except BaseException as error:  # noqa: BLE001 - handed to the caller below
                reports[task] = error
                barrier.abort()

        threads = [threading.Thread(target=work, args=(t,)) for t in range(self.tasks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for report in reports:
            if isinstance(report, BaseException) and not isinstance(
                report, threading.BrokenBarrierError
            ):
                raise report
        self.crash(context.batch)
        return [r for r in reports if isinstance(r, TaskReport)]

    def _blocks(self, batch: int, task: int, recordings: Sequence[Recording]) -> list[Block]:
        found = []
        for recording in recordings:
            first, last = recording.slice_of(batch)
            low = first + (last - first) * task // self.tasks
            high = first + (last - first) * (task + 1) // self.tasks
            found += [Block(recording.stream, r) for r in read_rows(recording.path, low, high)]
        return found


class CrashError(BaseException):
    """A scripted death of the driver: no ``except Exception`` gets to handle it."""


class _Service:
    """Plans and publishes as the service would, by batch numbers of the scenario."""

    def __init__(
        self, scenario: Scenario, document: dict[str, Any], url: str, planner: Planner
    ) -> None:
        self.scenario = scenario
        self.streams = [_stream(scenario, name) for name in sorted(scenario.streams)]
        self.snapshot: Snapshot | None = None
        self._redis = redis.Redis.from_url(url)
        self._keys = Keys("test")
        self._planner = planner
        self._parallelism = int(document.get("parallelism", 1))
        chosen = document.get("optimizer", "clash")
        self._optimizers = chosen if isinstance(chosen, dict) else {0: chosen}
        by_name: dict[str, Stream] = {s.name: s for s in self.streams}
        self.queries = {
            name: parse_sql(name, entry.sql, by_name, entry.window)
            for name, entry in scenario.queries.items()
        }

    def publish(self, epoch: int) -> None:
        """Plan ``epoch`` from the calls made before the last epoch's batches."""
        start = epoch * self.scenario.every
        entries = self.scenario.queries
        active = [
            query
            for name, query in self.queries.items()
            if self.scenario.next_epoch(entries[name].register_at) <= start
            and not self._expired(entries[name].expire_at, start)
        ]
        switched = [b for b in self._optimizers if self.scenario.next_epoch(b) <= start]
        optimizer = Optimizer(self._optimizers[max(switched, default=0)])
        statistics: Statistics = self.snapshot or NoStatistics()
        plan = self._planner(active, statistics, optimizer, self._parallelism, epoch)
        rules = compile_ruleset(
            plan, active, self.streams, epoch=epoch, parallelism=self._parallelism, sinks={}
        )
        text = json.dumps(rulesets.to_json(rules))
        assert rulesets.from_json(json.loads(text)) == rules
        self._redis.set(self._keys.ruleset(epoch), text)
        self._redis.zadd(self._keys.published, {str(epoch): epoch})

    def _expired(self, expire_at: int | None, start: int) -> bool:
        return expire_at is not None and self.scenario.next_epoch(expire_at) <= start


def _stream(scenario: Scenario, name: str) -> Stream:
    entry = scenario.streams[name]
    schema = pq.read_schema(entry.path)
    return Stream(
        StreamName(name),
        tuple((f.name, spark_type(f.type)) for f in schema),
        entry.event_time,
        entry.lateness,
    )


def _recording(scenario: Scenario, stream: Stream, directory: Path) -> Recording:
    entry = scenario.streams[stream.name]
    record = StreamRecord(
        name=stream.name,
        columns=tuple(ColumnRecord(name=c, type=str(t)) for c, t in stream.columns),
        event_time=stream.event_time,
        source=SourceRecord(path=str(entry.path), rows_per_batch=entry.rows_per_batch),
    )
    return convert(record, directory)


def _last_snapshot(control: Control) -> Snapshot | None:
    last: Boundary | None = control.last_boundary()
    return None if last is None or last.snapshot is None else Snapshot.from_json(last.snapshot)
