"""A run without Spark and without the service: the real planner, driver and workers, with the
tasks of a batch as threads. Only Spark and REST are missing, so a random scenario takes about a
second; others run through the whole system (``tests/e2e``).

A :class:`tests.support.scenarios.script.Script` gives the run's faults and changes. After every
batch the invariants of :mod:`tests.support.oracles.invariants` are checked; ``events`` counts the
run's events.
"""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest.mock import patch

import redis

from anabranch_contract.plans.patches import is_patch
from anabranch_contract.plans.plan import Backfilling
from anabranch_contract.plans.rations import Ration, RationSchedule
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.reporting import state_publisher as state_teller
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.driver.tables import MaintainedTables
from anabranch_runtime.epochs.failed_queries import failed, surviving
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.index import filters
from anabranch_runtime.probe import probe
from anabranch_runtime.recovery.rulesets import KIND, task_ruleset
from anabranch_runtime.sinks.parquet import write_empty
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.sources.recordings.recording import Recording, convert, read_rows
from anabranch_runtime.state.debt import Debt
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.slices import Throttle
from anabranch_runtime.storage.documents import at_once, read_text
from anabranch_runtime.storage.segment_cache import close_all
from anabranch_runtime.task.context import BatchContext, context_of, order_of
from anabranch_runtime.task.memory import Budget, budget
from tests.support.cases.random_rations import planned_rations, random_rations
from tests.support.oracles.invariants import Watch
from tests.support.oracles.ledger import made_good, read_rations
from tests.support.oracles.oracle import Oracle, Withheld
from tests.support.plain_service import (
    PlainService,
    Planner,
    gathering_sinks,
    last_snapshot,
    odd_plans,
    plan_normally,
)
from tests.support.scenarios.file import Scenario, called, read_document, read_scenario
from tests.support.scenarios.script import ATTEMPTS, Death, Fault, Point, Script
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.kept_tables import here
from tests.support.worlds.task_threads import FaultError, fail, run_tasks


def _short(limit: int | None, tasks: int) -> Budget:
    """Less memory than a scenario needs: nearly everything is done in pieces."""
    return Budget(pairs=7, combinations=5, page=300)


class CrashError(BaseException):
    """A scripted death of the driver: no ``except Exception`` gets to handle it."""


@dataclass(slots=True)
class LocalReplay:
    """One scenario, run in this process.

    Attributes:
        tasks: the number of tasks, where there is no script.
        planner: makes the plans; without one they are as the script says.
        backfilling: epoch -> the setting by which the past of its intermediate results is
            computed. ``throttle``: how much of that a batch does.
        objects: folder that is the object store behind the state, if there is one.
        cache_size: bytes of packs that stay in front of it.
        tables: makes the maintained tables of a driver, from state and results directory.
        losses: batches before which the machine is lost: another goes on with an empty state
            directory. It needs ``objects``.
        report: after the run, what a replay's report says (``tests.support.worlds.replay_check``).
        spans: after the run, query -> (first batch, batch after its last) in which it had to be
            active; None where it never had to, None as the end where it outlives the run.
        begins: after the run, query -> the first batches that its activations had to have.
        withheld: after the run, what batches withheld, by the ledger of the state.
        events: what happened how often.
    """

    path: Path
    out: Path
    redis_url: str
    tasks: int = 2
    planner: Planner | None = None
    script: Script | None = None
    backfilling: Callable[[int], Backfilling] | None = None
    throttle: Throttle = field(default_factory=Throttle)
    objects: Path | None = None
    cache_size: int | None = None
    tables: Callable[[Path, Path], MaintainedTables] = lambda root, results: here(
        root, results, {}, _ignore
    )
    losses: frozenset[int] = frozenset()
    report: dict[str, Any] = field(init=False, default_factory=dict)
    spans: dict[str, tuple[int | None, int | None]] = field(init=False, default_factory=dict)
    begins: dict[str, list[int]] = field(init=False, default_factory=dict)
    withheld: tuple[Withheld, ...] = field(init=False, default=())
    events: Counter[str] = field(init=False, default_factory=Counter)

    def run(self) -> dict[str, Activation]:
        """Run to the end; results are in ``out/results``. Returns what became of queries."""
        return _Run(self, self._script()).play()

    def oracle(self) -> Oracle:
        """The oracle of this run."""
        scenario, script = read_scenario(self.path), self._script()
        every = scenario.every
        return Oracle(
            scenario,
            lambda batch: script.ruleset_of(batch // every, every) * every,
            self.withheld,
            script.fresh,
            gathering_sinks(script.seed, scenario),
        )

    def _script(self) -> Script:
        return self.script or Script(tasks=((self.tasks,),))


def _ignore(views: Mapping[str, ViewRows]) -> None:
    """Drop the rows of views."""


class _Run:
    """The working state of :meth:`LocalReplay.run`."""

    def __init__(self, replay: LocalReplay, script: Script) -> None:
        self.replay = replay
        self.script = script
        self.scenario = read_scenario(replay.path)
        redis.Redis.from_url(replay.redis_url).flushall()
        planner = replay.planner or (odd_plans(script.seed) if script.odd else plan_normally)
        document = read_document(replay.path)
        backfilling = replay.backfilling or script.backfilling
        url = replay.redis_url
        self.service = PlainService(self.scenario, document, url, planner, script, backfilling)
        self.control = Control(replay.redis_url, "test")
        self.settings = DriverSettings(
            replay.out / "state",
            replay.out / "results",
            self.scenario.every,
            # Every batch is a period of measurements.
            interim_seconds=0.0,
            # Epochs end by numbers of batches, however slow the machine is.
            epoch_seconds=3600.0,
            revise_batches=1 if script.revised else None,
            mode=script.mode,
            patience=5,
            access=OPEN,
            attempts=ATTEMPTS,
            throttle=replay.throttle,
            object_store=None if replay.objects is None else replay.objects.as_uri(),
            cache_size=replay.cache_size,
        )
        self.settings.state.mkdir(parents=True, exist_ok=True)
        recordings = replay.out / "recordings"
        recordings.mkdir(exist_ok=True)
        self.recordings = [_recording(self.scenario, s, recordings) for s in self.service.streams]
        self.batches = max(
            len(e.cuts) if e.cuts is not None else r.batches
            for r in self.recordings
            for e in [self.scenario.streams[r.stream]]
        )
        #: Number of batches after the end of the input.
        self.added = 0
        self.debt = Debt()
        #: (batch, query, alias) of debts that were partly paid when they were forgiven.
        self.torn: set[tuple[int, str, str]] = set()
        self.deaths = dict(script.deaths)
        self.drawn = Random(script.seed + 4)
        #: Batch -> (query, label) -> alias. With the bounds of a self-join, as ttls change, its
        #: aliases may exchange their labels.
        self.aliases: dict[int, dict[tuple[str, str], str]] = {}
        self.attempts: Counter[int] = Counter()
        self._context: BatchContext | None = None
        self.lost: set[int] = set()
        #: Last batch for which a revision was or was not drawn, and the ruleset it has to run.
        self.revised, self.before = (-1, RulesetId(-1)), RulesetId(-1)
        self.watch = Watch(self.settings.state, replay.events, replay.objects)

    def play(self) -> dict[str, Activation]:
        driver = self._start()
        batch = 0
        while batch < self.batches or driver.state.debt.batches:
            if batch == self.batches:
                self.batches, self.added = self.batches + 1, self.added + 1
                self.replay.events["debt at the end"] += 1
            if batch in self.replay.losses and batch not in self.lost:
                self.lost.add(batch)
                self.replay.events["machine lost"] += 1
                shutil.rmtree(self.settings.state)
                driver = self._start()
            elif batch in self.script.restarts:
                self.replay.events["restart"] += 1
                driver = self._start()
            for epoch in self._due(batch):
                self.service.publish(epoch)
            self._revise(driver.state, batch)
            fanout = self.script.fanout[min(batch, len(self.script.fanout) - 1)]
            driver.settings = replace(self.settings, fanout=fanout)
            try:
                # Scenarios are small: every other batch probes by partition and builds filters all
                # the same. Every third batch is short of memory. Every state is reported.
                with (
                    patch.object(probe, "FEW", probe.FEW if batch % 2 else 0),
                    patch.object(filters, "LEAST", filters.LEAST if batch % 2 else 1),
                    patch("anabranch_runtime.task.worker.budget", budget if batch % 3 else _short),
                    patch.object(state_teller, "INTERVAL", 0.0),
                ):
                    driver.run(self._job)
            except (CrashError, FaultError) as error:
                why = str(error) if isinstance(error, CrashError) else "out of attempts"
                self.replay.events[f"driver gone: {why}"] += 1
                driver = self._start()
                if driver.state.next_batch == batch:
                    continue
            self._committed(driver.state)
            batch += 1
        driver.tables.drain()
        driver.publisher.retry(now=True)
        driver.finish()
        self._finish(driver.state)
        return {**self._told(), **driver.state.queries}

    def _told(self) -> dict[str, Activation]:
        """Activations in the control plane, including queries that the state has forgotten."""
        server = redis.Redis.from_url(self.replay.redis_url, decode_responses=True)
        told = cast("dict[str, str]", server.hgetall(self.control.keys.activations))
        return {name: Activation.loads(text) for name, text in told.items()}

    def _start(self) -> Driver:
        """Start a driver from disk and Redis alone."""
        fetch_ruleset.cache_clear()
        task_ruleset.cache_clear()
        close_all()
        tables = self.replay.tables(self.settings.state, self.settings.results)
        driver = Driver(self.settings, self.control, self.batches, tables)
        if self.deaths:
            commit = driver.durability.manifests.commit

            def fatal(state: State, ready: Callable[[], object] = at_once) -> None:
                batch = state.next_batch - 1
                self._die(batch, Death.COMMIT)
                commit(state, ready)
                self._die(batch, Death.COMMITTED)

            driver.durability.manifests.commit = fatal  # type: ignore[method-assign]
        if self.script.rationed:

            def drawn(ruleset: Ruleset, never: Collection[str] = ()) -> tuple[Ration, ...]:
                found = self._rations(driver.state.next_batch, ruleset)
                return tuple(r for r in found if registered(r.query) not in never)

            driver.rationer.rations = drawn  # type: ignore[method-assign]
        if self.script.owed:
            driver.rationer.schedule = RationSchedule(0, 0, (), (), catch_up=True)
        driver.announce()
        self.driver = driver
        return driver

    def _rations(self, batch: int, ruleset: Ruleset) -> tuple[Ration, ...]:
        """Draw other rations at every call: a repeated batch has to keep its first ones."""
        if batch not in self.script.rationed:
            return ()
        schedule = self.driver.rationer.schedule
        if schedule is not None:
            owed = batch in self.script.owed
            self.driver.rationer.schedule = replace(schedule, catch_up=owed)
        queries = [self.service.query_in(str(q.id), ruleset.epoch) for q in ruleset.queries]
        if self.script.allocation is not None:
            return planned_rations(ruleset, queries, self.script.allocation, self.drawn)
        return random_rations(ruleset, queries, self.drawn)

    def _die(self, batch: int, moment: Death) -> None:
        if self.deaths.get(batch) == moment:
            del self.deaths[batch]
            raise CrashError(moment)

    def _due(self, batch: int) -> list[int]:
        """Return the epochs whose rulesets are published right before ``batch``."""
        every = self.scenario.every
        due = [
            epoch
            for epoch in range(-(-self.batches // every))
            if self.script.published_before(epoch, every) == batch
            and epoch not in self.service.done
        ]
        late = sum(1 for e in due if e * every < batch)
        self.replay.events.update({"ruleset late": late} if late else {})
        return due

    def _committed(self, state: State) -> None:
        batch = state.next_batch - 1
        epoch = batch // self.scenario.every
        wanted = self.script.ruleset_of(epoch, self.scenario.every)
        assert (state.epoch, state.ruleset.epoch) == (epoch, wanted), (
            f"batch {batch} is of epoch {state.epoch} by ruleset {state.ruleset}, "
            f"not of {epoch} by {wanted}"
        )
        self._check_revision(state)
        if epoch in self.script.missing:
            self.replay.events["ruleset missing"] += 1
        ruleset = self.control.ruleset(state.ruleset)
        epochs, _, revision = str(state.ruleset).partition(".")
        name = f"{int(epochs):08d}.{revision}".rstrip(".") + ".json"
        kept = read_text(self.settings.state / "rulesets" / name, KIND)
        self.replay.events["by a patch"] += is_patch(kept)
        self.watch.committed(state, surviving(ruleset, state))
        logs = list(self.settings.results.glob(".gathered/*/*.log"))
        self.replay.events["results gathered"] += bool(logs)
        self.aliases[batch] = {(q.id, m): a for q in ruleset.queries for a, m, _ in q.members}
        if state.rationed and state.rationed[-1].last == batch:
            for ration in state.rationed[-1].rations:
                kind = "batch" if ration.ranking.by_batch else "key class"
                self.replay.events[f"rationed by {kind}"] += 1
                self.replay.events["nothing let through"] += ration.share == 0
        left = {(one.first, goal) for one in state.debt.batches for goal in one.goals}
        for one in self.debt.withheld:
            for goal in one.goals if one.starts is not None else ():
                if (one.first, goal) not in left:
                    spans = range(one.first, one.last + 1)
                    self.torn |= {(b, goal.query, goal.alias) for b in spans}
        begun = [one.starts is not None for one in state.debt.batches]
        self.replay.events["payment waits for another"] += sum(begun) > 1
        firsts = [one.first for one in state.debt.batches]
        self.replay.events["younger debt first"] += begun[:1] == [True] and firsts[0] > min(firsts)
        parts = [one.past.rows for one in state.queries.values() if one.past is not None]
        self.replay.events["past in parts"] += any(parts)
        self.debt = state.debt
        self.service.snapshot = last_snapshot(self.control)

    def _revise(self, state: State, batch: int) -> None:
        """Make the plan revision from the measurements before ``batch``, once."""
        if not self.script.revised or batch == self.revised[0]:
            return
        wanted = state.ruleset
        if batch in self.script.revised and state.ruleset.epoch >= 0:
            wanted = self.service.revise(self.control.ruleset(state.ruleset), batch)
        else:
            wanted = self.service.answer(state.ruleset, batch)
        self.revised = (batch, wanted)

    def _check_revision(self, state: State) -> None:
        """Check that revisions are adopted at once, except by a batch that begins an epoch."""
        batch, wanted = self.revised
        if not self.script.revised or batch != state.next_batch - 1:
            return
        begins = state.epoch_starts[-1][1] == batch
        fresh = state.ruleset.epoch != self.before.epoch
        self.replay.events["epoch begins revised"] += (
            begins and fresh and state.ruleset.revision > 0
        )
        taken = state.ruleset == wanted
        assert taken or begins or failed(state), f"batch {batch} goes by {state.ruleset}"
        if state.ruleset.revision and taken and wanted != self.before:
            self.replay.events["revision taken"] += 1
            closed = {s.id for s in self.control.ruleset(self.before).stores} - {
                s.id for s in self.control.ruleset(wanted).stores
            }
            self.replay.events["revision closes a store"] += bool(closed)
        self.before = state.ruleset

    def _finish(self, state: State) -> None:
        told = {**self._told(), **state.queries}
        for epoch in {e for e in self.service.done if e * self.scenario.every < self.batches}:
            for query in self.control.ruleset(RulesetId(epoch)).queries:
                if query.id in told:
                    write_empty(self.settings.results, query)
        self.watch.ended(state)
        self.replay.spans = {name: self._span(name) for name in self.scenario.queries}
        epochs = [
            (e, self.script.ruleset_of(e, self.scenario.every))
            for e in range(-(-self.batches // self.scenario.every))
        ]
        self.replay.events["revision by dpPick"] += self.service.picked
        self.replay.withheld = tuple(self._withheld())
        self.replay.begins = {n: self.service.begins(n, epochs) for n in self.scenario.queries}
        for activation in state.queries.values():
            self.replay.events["late result"] += activation.caught_up
            if activation.past is not None:
                self.replay.events[f"past {activation.past.status}"] += 1
                self.replay.events["result of the past"] += activation.past.results
        streams = {n: state.streams[n] for n in self.scenario.streams}
        self.replay.report = {
            "batches": state.next_batch - self.added,
            "input_tuples": sum(s.input for s in streams.values()),
            "late_tuples": {n: s.late for n, s in streams.items()},
            "invalid_tuples": {n: s.invalid for n, s in streams.items()},
            "ahead_tuples": {n: s.ahead for n, s in streams.items()},
            "activations": state.queries,
        }

    def _withheld(self) -> Iterator[Withheld]:
        """Return the rations below 1 whose debts have not been paid."""
        paid = made_good(self.settings.results)
        for run in read_rations(self.settings.results):
            for ration in run.rations:
                alias = self.aliases[run.first][ration.query, ration.start]
                came = (run.first, ration.query, alias) in paid
                if came:
                    self.replay.events["goal made good"] += 1
                    if ration.query not in self.script.fresh:
                        continue
                # Some results may have been too old for the retention when they were made good.
                torn = came or (run.first, ration.query, alias) in self.torn
                self.replay.events["debt forgiven half paid"] += torn and not came
                span, query = (run.first, run.last), str(ration.query)
                yield Withheld(*span, query, called(alias), ration.share, ration.ranking, torn)

    def _span(self, query: str) -> tuple[int | None, int | None]:
        every = self.scenario.every
        epochs = range(-(-self.batches // every))
        active = [
            e for e in epochs if query in self.service.active(self.script.ruleset_of(e, every))
        ]
        if not active:
            return None, None
        end = (active[-1] + 1) * every
        return active[0] * every, None if end >= self.batches else end

    # --- one batch -----------------------------------------------------------------------------

    def _job(self, context: BatchContext) -> list[TaskReport]:
        # Pickled, as a task that stays between batches receives it.
        order = pickle.dumps(order_of(self._context, context))
        context = self._context = context_of(self._context, pickle.loads(order))
        attempt = self.attempts[context.batch]
        self.attempts[context.batch] += 1
        fault = dict(self.script.faults).get((context.batch, attempt))
        tasks = self.script.tasks_of(context.batch, attempt)
        rules = task_ruleset(context.root, context.redis_url, context.namespace, context.ruleset)
        hosts = self.script.hosts_of(context.batch, attempt, tasks)
        self.replay.events["tasks on several hosts"] += len(set(hosts)) > 1

        def blocks(task: int, here: Fault | None) -> Iterator[Block]:
            return self._blocks(context.batch, task, tasks, here)

        try:
            done = run_tasks(context, rules, hosts, blocks, fault)
        except FaultError as error:
            self.replay.events[f"task failed: {error}"] += 1
            raise
        for task, report in enumerate(done):
            self._drawn_elsewhere(report, context.batch, task)
        self.watch.done(context, rules, done)
        self._die(context.batch, Death.JOB)
        return done

    def _drawn_elsewhere(self, report: TaskReport, batch: int, task: int) -> None:
        """Report, in every other batch, so many more tuples here for some partitions that these
        partitions move to this task's host.
        """
        if batch % 2:
            rng = Random(f"{self.script.seed} {batch} {task}")
            report.host.demand = {
                count: [size * rng.choice((0, 1, 1 << 20)) for size in sizes]
                for count, sizes in report.host.demand.items()
            }

    def _blocks(self, batch: int, task: int, tasks: int, fault: Fault | None) -> Iterator[Block]:
        for number, recording in enumerate(self.recordings):
            fail(fault, Point.READ, number)
            first, last = _slice(self.scenario, recording, batch)
            low = first + (last - first) * task // tasks
            high = first + (last - first) * (task + 1) // tasks
            position = low
            for rows in read_rows(recording.path, low, high):
                yield Block(recording.stream, rows, position=position)
                position += rows.num_rows


def _slice(scenario: Scenario, recording: Recording, batch: int) -> tuple[int, int]:
    """Return the index of the first row of ``batch``, and the index after its last row."""
    cuts = scenario.streams[recording.stream].cuts
    if cuts is None:
        return recording.slice_of(batch)
    at = min(batch, len(cuts) - 1)
    return (cuts[batch - 1] if 0 < batch <= len(cuts) else 0 if batch == 0 else cuts[-1]), cuts[at]


def _recording(scenario: Scenario, stream: Stream, directory: Path) -> Recording:
    entry = scenario.streams[stream.name]
    columns = [*stream.columns]
    if stream.changes is not None and stream.changes.operation is not None:
        columns.append((stream.changes.operation, parse_type("string")))
    record = StreamRecord(
        name=stream.name,
        columns=tuple(ColumnRecord(name=c, type=str(t)) for c, t in columns),
        event_time=stream.event_time,
        kind=stream.kind,
        changes=stream.changes,
        source=SourceRecord(path=str(entry.path), rows_per_batch=entry.rows_per_batch),
    )
    return convert(record, directory)
