"""The runtime without Spark: the real planner, driver and workers in this process.

The tasks of a batch are threads; a single task runs in the caller's thread. Only the costs of
Spark, REST and separate processes are missing. The caller passes the rows of every batch, so
batches can have any size and need no files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import redis
import structlog

from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract import codec
from anabranch_contract.collection import collect_rarely
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import (
    Statistics,
    measured,
)
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.hot_keys import (
    HotKeys,
    deal_hot,
    hot_keys,
)
from anabranch_planner.plans.look_ahead import look_ahead
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.worlds.mail import Mail

#: Function from a task's number and the number of tasks to the input of the task in a batch.
Blocks = Callable[[int, int], Iterable[Block]]


#: Prefix of the engine's keys in Redis.
NAMESPACE = "engine"


@dataclass(slots=True)
class Engine:
    """A pipeline below ``home`` that runs one batch per call of :meth:`run`.

    Attributes:
        every: batches per epoch; each epoch is planned with the statistics of the previous one.
        around: wrapper that is called with the work of a task, and runs it (for a profiler).
        rules: ruleset of epoch 0, if this is the only epoch; None: each epoch is planned.
        mir: whether intermediate results may be kept. ``look_ahead``: whether plans may have
            look-ahead filters.
        hosts: number of simulated hosts, to which tasks are assigned in turn; tuples sent between
            hosts are serialised, and plans include that cost. ``hot_keys``: whether plans may
            spread rows of frequent values over hosts. ``near``: whether partitions move to the
            hosts on which their tuples arrive.
        blind: whether plans are made without knowing frequent values and measured steps.
        objective: objective of plans. ``merging``: whether prices include merges of segments.
        interim_seconds: length of a measurement period.
        mode: in live mode, load shedding may ration batches by measured time; needs a single epoch.
        reports: reports of the tasks of the last batch. ``hot``: hot values of the last plan.
    """

    home: Path
    redis_url: str
    streams: Sequence[Stream]
    queries: Sequence[DemoQuery]
    tasks: int = 1
    parallelism: int = 2
    every: int = 1_000_000
    optimizer: Optimizer = Optimizer.CLASH
    substreams: int = 1
    mir: bool = True
    look_ahead: bool = False
    blind: bool = False
    hosts: int = 1
    hot_keys: bool = False
    near: bool = True
    around: Callable[[Callable[[], TaskReport]], TaskReport] = field(default=lambda work: work())
    rules: Ruleset | None = None
    objective: Objective = Objective.TUPLES
    merging: bool = True
    interim_seconds: float = 3.0
    mode: Mode = Mode.STEP
    reports: list[TaskReport] = field(init=False, default_factory=list)
    hot: HotKeys | None = field(init=False, default=None)
    driver: Driver = field(init=False)
    _control: Control = field(init=False)

    def __post_init__(self) -> None:
        # The processes of a pipeline have the same setting of the garbage collector.
        collect_rarely()
        redis.Redis.from_url(self.redis_url).flushall()
        fetch_ruleset.cache_clear()
        # Discard the driver's log: it would go to standard output, which is for the figures.
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
        self._control = Control(self.redis_url, NAMESPACE)
        state = self.home / "state"
        state.mkdir(parents=True)
        settings = DriverSettings(
            state,
            self.home / "results",
            self.every,
            mode=self.mode,
            patience=5,
            interim_seconds=self.interim_seconds,
        )
        self.driver = Driver(settings, self._control)
        self.driver.announce()

    def run(self, blocks: Blocks) -> float:
        """Run the next batch over ``blocks``; return its time in seconds."""
        batch = self.driver.state.next_batch
        if batch % self.every == 0:
            self._publish(batch // self.every)
        started = time.perf_counter()
        self.driver.run(lambda context: self._job(context, blocks))
        return time.perf_counter() - started

    def ruleset(self, epoch: int) -> Ruleset:
        """Return the ruleset of an epoch that has begun."""
        return self._control.ruleset(RulesetId(epoch))

    @property
    def results(self) -> int:
        """Number of results of the last batch."""
        return sum(sum(report.results.values()) for report in self.reports)

    @property
    def work(self) -> int:
        """Sum of probes and matches of all steps of the last batch."""
        edges = (edge for report in self.reports for edge in report.measured.edges.values())
        return sum(edge.probes + edge.matches for edge in edges)

    def statistics(self) -> Statistics:
        """Return the statistics of the last ended epoch, as input of the planner."""
        last = self._control.last_boundary()
        known = None if last is None or last.snapshot is None else last.snapshot
        if known is None:
            return Statistics()
        found = codec.loads(known, Snapshot)
        if self.blind:
            found = replace(found, steps=(), values={})
        batches = float(max(found.total_batches, 1))
        costs = CostConstants(
            calls=batches * self.parallelism, batches=batches if self.merging else 1.0
        )
        hosts = ExchangeModel(self.hosts, locality=found.locality) if self.hosts > 1 else None
        return replace(measured(found), constants=costs, exchange=hosts)

    def finish(self) -> None:
        """End the run: write an empty file for each query without results, and restore logging."""
        self.driver.finish()
        structlog.reset_defaults()

    def _publish(self, epoch: int) -> None:
        rules = self._planned(epoch) if self.rules is None else self.rules
        keys, server = Keys(NAMESPACE), redis.Redis.from_url(self.redis_url)
        server.set(keys.ruleset(epoch), rulesets.dumps(rules))
        server.zadd(keys.published, {str(epoch): epoch})

    @property
    def options(self) -> Options:
        """The planner's options for each epoch."""
        return Options(
            optimizer=self.optimizer,
            objective=self.objective,
            parallelism=self.parallelism,
            mir=self.mir,
            substreams=self.substreams,
            look_ahead=self.look_ahead,
        )

    def _planned(self, epoch: int) -> Ruleset:
        known = self.statistics()
        rules, joins = planned(self.streams, self.queries, known, self.options, epoch)
        if not self.hot_keys:
            return rules
        model = CostModel(
            known,
            parallelism=self.parallelism,
            bounds=LoosestBounds(joins),
            substreams=rules.substreams,
        )
        last = self.hot
        now = {} if last is None else {str(o.store): last.of(o.store) for o in last.values}
        self.hot = hot_keys(rules, joins, model, known.exchange, known.constants, now)
        return deal_hot(rules, self.hot)

    def _job(self, context: BatchContext, blocks: Blocks) -> list[TaskReport]:
        rules = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        barrier, messages = threading.Barrier(self.tasks), [("", "")] * self.tasks
        found: list[TaskReport | BaseException] = [RuntimeError("unfinished")] * self.tasks
        mail = Mail(self.tasks)
        hosts = tuple(f"host-{task % self.hosts}" for task in range(self.tasks))

        def work(task: int) -> None:
            def exchange(message: str, group: str = "") -> list[str]:
                messages[task] = (group, message)
                barrier.wait()
                everybody = [text if theirs == group else "" for theirs, text in messages]
                barrier.wait()
                return everybody

            try:
                found[task] = report = self.around(
                    lambda: run_task(
                        context,
                        rules,
                        blocks(task, self.tasks),
                        task=task,
                        tasks=self.tasks,
                        exchange=exchange,
                        hosts=hosts if self.hosts > 1 else (),
                        post=mail.of(task) if self.hosts > 1 else None,
                    )
                )
                report.host.name = hosts[task] if self.hosts > 1 else ""
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                found[task] = error
                barrier.abort()

        threads = [threading.Thread(target=work, args=(t,)) for t in range(1, self.tasks)]
        for thread in threads:
            thread.start()
        work(0)
        for thread in threads:
            thread.join()
        errors = [e for e in found if isinstance(e, BaseException)]
        errors.sort(key=lambda e: isinstance(e, threading.BrokenBarrierError))
        if errors:
            raise errors[0]
        self.reports = [r for r in found if isinstance(r, TaskReport)]
        if not self.near:
            for report in self.reports:
                report.host.demand = {}
        return self.reports


def planned(
    streams: Sequence[Stream],
    queries: Sequence[DemoQuery],
    statistics: Statistics,
    options: Options,
    epoch: int = 0,
) -> tuple[Ruleset, tuple[JoinQuery, ...]]:
    """Plan an epoch; return its ruleset, and the joins that the ruleset executes."""
    by_name: dict[str, Stream] = {s.name: s for s in streams}
    joins = tuple(parse_sql(q.name, q.sql, by_name) for q in queries)
    plan = optimise(joins, statistics, options)
    rules = compile_ruleset(
        plan, joins, streams, epoch=epoch, parallelism=options.parallelism, sinks={}
    )
    if options.look_ahead:
        model = CostModel(
            statistics,
            parallelism=options.parallelism,
            bounds=LoosestBounds(joins),
            substreams=plan.substreams,
        )
        rules = look_ahead(rules, joins, model, statistics.constants)
    return rules, joins
