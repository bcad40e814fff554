"""One pipeline with random queries of all kinds; the results of each are compared with DuckDB's.

The real registration, planner, driver and tasks run in this process. Queries are registered and
dropped, plans are random, rulesets are revised before batches, tasks fail, the driver dies, tasks
are on several hosts, maintained tables lag behind. After every batch, the sum of a query's changes
must equal DuckDB's result over the net input (for queries over queries: when they have read all
versions of these).
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import duckdb
import redis

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.outer_joins import registered
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.failed_queries import surviving
from anabranch_runtime.epochs.retention import watermarks
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.index import filters
from anabranch_runtime.probe import probe
from anabranch_runtime.recovery.rulesets import task_ruleset
from anabranch_runtime.sources import batch_input, loads
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.blocks import Block, read_pieces
from anabranch_runtime.sources.dealing import pieces_of
from anabranch_runtime.sources.feeds import Feeds
from anabranch_runtime.sources.files import feed as files
from anabranch_runtime.sources.files import versions
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.slices import Throttle
from anabranch_runtime.storage.documents import at_once
from anabranch_runtime.storage.segment_cache import close_all
from anabranch_runtime.task.context import BatchContext
from anabranch_service.errors import InvalidInput
from tests.support.combined.answers import Answer
from tests.support.combined.grammar import Grammar, Statement
from tests.support.combined.registry import JointService, Registry, WideError
from tests.support.combined.streams import RandomStream, draw_streams
from tests.support.functions.registered import ENVIRONMENT, in_other_words
from tests.support.oracles.invariants import Watch
from tests.support.plain_service import Planner, last_snapshot, odd_plans, plan_normally
from tests.support.scenarios.script import ATTEMPTS, Death, Fault, Point, draw
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.kept_tables import lagging
from tests.support.worlds.task_threads import FaultError, fail, run_tasks
from tests.support.worlds.view_runs import comparable

#: Number of batches in the longest script of faults; a run has fewer.
_BATCHES = 60
_QUIET = 2
#: Codes of refusals that may be correct.
_DOCUMENTED = ("unsupported-sql", "no-equi-join")


class CrashError(BaseException):
    """A scripted death of the driver, which no ``except Exception`` catches."""


@dataclass
class Combined:
    """The random run of ``seed`` in ``folder``.

    Attributes:
        only: numbers of the statements to register; None: all. Others are still drawn.
        calm: whether nothing fails and all plans are the optimiser's. ``drawn``: function that
            draws the streams.
        planner: makes the plans that are not random.
        twins: whether each accepted statement is registered twice.
        features: numbers of features of accepted statements. ``rows``: rows of their results.
    """

    folder: Path
    redis: str
    seed: int
    only: frozenset[int] | None = None
    calm: bool = False
    planner: Planner = plan_normally
    drawn: Callable[[Path, Random], dict[str, RandomStream]] = draw_streams
    twins: bool = False
    events: Counter[str] = field(init=False, default_factory=Counter)
    features: Counter[str] = field(init=False, default_factory=Counter)
    refusals: Counter[str] = field(init=False, default_factory=Counter)
    #: Query -> text of its statement, for all accepted statements.
    registered: dict[str, str] = field(init=False, default_factory=dict)
    #: Query -> statement, for accepted statements that have not been dropped.
    statements: dict[str, Statement] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        rng = self.rng = Random(self.seed)
        self.streams = self.drawn(self.folder / "in", rng)
        script = draw(self.seed, _BATCHES)
        hosts = tuple(rng.choice((1, 2, 3)) for _ in range(_BATCHES))
        self.script = replace(script, rationed=frozenset(), owed=frozenset(), hosts=hosts)
        if self.calm:
            self.script = replace(
                self.script, faults=(), deaths=(), restarts=frozenset(), revised=frozenset(),
                odd=False, layouts=False, hosts=(1,), tasks=((1,),), ahead=False,
            )  # fmt: skip
        server = redis.Redis.from_url(self.redis)
        server.flushall()
        self.control = Control(self.redis, "test")
        records = [stream.record for stream in self.streams.values()]
        self.registry = Registry(records, self.control.keys, server)
        #: A registry that also has the statements not in ``only``, since later ones may read them.
        self._every = self.registry if self.only is None else Registry(records, self.control.keys)
        self._plans = Random(f"plans {self.seed}")
        planner = odd_plans(self.seed) if self.script.odd else self.planner
        self.service = JointService(
            self.registry, self.redis, planner, self.script, rng.choice((1, 3))
        )
        self.settings = DriverSettings(
            self.folder / "state",
            self.folder / "results",
            epoch_batches=rng.choice((1, 2, 3)),
            epoch_seconds=0.0,
            interim_seconds=1e9,
            patience=5.0,
            access=OPEN,
            attempts=ATTEMPTS,
            target_latency=None,
            throttle=rng.choice((Throttle(), Throttle(first=3, least=2, most=8))),
        )
        self.settings.state.mkdir(parents=True)
        # Faults in at most every third batch, since more would take most of a run's time.
        self._faults = {(b, n): fault for (b, n), fault in self.script.faults if b % 3 == 0}
        self._deaths = {b: death for b, death in self.script.deaths if b % 3 == 1}
        self._restarts = {b for b in self.script.restarts if b % 3 == 2}
        self._attempts: Counter[int] = Counter()
        self._revised = self._minutes = 0
        self._published = -1
        self._checked = 0
        self._answers: dict[str, Answer] = {}
        #: Batch -> its time in microseconds, for views with limits of time.
        self._times: dict[int, int] = {}
        self._duck = duckdb.connect(config={"threads": 1})
        self._duck.execute("SET TimeZone = 'UTC'")
        self._changed = True
        self._dropped: set[str] = set()
        #: Check invariants for every second seed only, since they take a third of a run's time.
        watched = self.seed % 2 == 0
        self._watch = Watch(self.settings.state, self.events) if watched else None
        self._lags = Random(self.seed + 1)

    # --- the driver ------------------------------------------------------------------------------

    def _start(self) -> None:
        fetch_ruleset.cache_clear()
        task_ruleset.cache_clear()
        close_all()
        tables = lagging(self.settings.state, self.settings.results, self._lags)
        self.driver = driver = Driver(self.settings, self.control, tables=tables)
        commit = driver.durability.manifests.commit

        def fatal(state: State, ready: Callable[[], object] = at_once) -> None:
            batch = state.next_batch - 1
            fresh = batch == driver.state.next_batch
            self._die(batch, Death.COMMIT, fresh)
            commit(state, ready)
            self._die(batch, Death.COMMITTED, fresh)

        driver.durability.manifests.commit = fatal  # type: ignore[method-assign]
        driver.announce()
        self._records: list[Any] = []

    def _die(self, batch: int, moment: Death, fresh: bool) -> None:
        if fresh and self._deaths.get(batch) == moment:
            del self._deaths[batch]
            raise CrashError(moment)

    def _again(self, why: str) -> None:
        self.events[why] += 1
        self.driver.tables.close()
        self._start()

    def _publish(self, share: float) -> None:
        """Publish another ruleset if queries have been added or dropped, else only sometimes."""
        state = self.driver.state
        ruleset = None if state.epoch < 0 else self.control.ruleset(state.ruleset)
        running = [] if ruleset is None else [registered(q.id) for q in ruleset.queries]
        self.registry.forget(running)
        if not self._changed and self._plans.random() >= share:
            return
        self._changed = False
        self._published = max(self._published + 1, self.driver.cycle.epoch)
        self.service.publish(self._published)
        self.events["rewires"] += 1

    def _revise(self) -> None:
        state, cycle = self.driver.state, self.driver.cycle
        batch = state.next_batch
        if batch not in self.script.revised or cycle.epoch != state.epoch or batch == self._revised:
            return
        self._revised = batch
        self.service.revise(self.control.ruleset(state.ruleset), batch)

    def _read(self) -> None:
        records = self.control.streams()
        if records == self._records:
            return
        self._records = records
        feeds = Feeds(
            *(records, 3, self.redis, "test", str(self.settings.state), OPEN),
            self.driver.progress.rate_limiter.input,
            results=str(self.settings.results),
        )
        self.driver.read(Sources({"feeds": feeds}, 3, tuple(records), frozenset(feeds.feeds)))

    def turn(self, *, share: float = 0.3) -> bool:
        """Make random changes, then run a batch if there is input; returns whether one ran.

        Args:
            share: probability of another plan.
        """
        self._publish(share)
        if share == 0.0 or self._plans.random() < 0.6:
            self.driver.tick()
        self._read()
        self._revise()
        offsets = self.driver.plan()
        if offsets is None:
            return False
        batch = self.driver.state.next_batch
        marks = watermarks(self.driver.state)
        fanout = self.script.fanout[min(batch, len(self.script.fanout) - 1)]
        self.driver.settings = replace(self.settings, fanout=fanout)
        try:
            with ExitStack() as patches:
                if batch % 2 == 0:
                    patches.enter_context(patch.object(probe, "FEW", 0))
                    patches.enter_context(patch.object(filters, "LEAST", 1))
                    patches.enter_context(patch.object(batch_input, "FEW", 2))
                self.driver.run(self._job, offsets)
        except (CrashError, FaultError) as error:
            self._again(f"driver gone: {type(error).__name__}")
            if self.driver.state.next_batch == batch:
                return True
        state = self.driver.state
        for name, stream in self.streams.items():
            known = state.streams.get(name)
            stream.read(0 if known is None else known.input, marks.get(name))
        if self._watch is not None:
            self._watch.committed(state, surviving(self.control.ruleset(state.ruleset), state))
        self.service.snapshot = last_snapshot(self.control)
        self._times[batch] = state.tables.now
        self.events["batches"] += 1
        self.events["revised batch"] += state.ruleset.revision > 0
        if batch in self._restarts:
            self._again("restart")
        return True

    def _job(self, context: BatchContext) -> list[TaskReport]:
        batch, attempt = context.batch, self._attempts[context.batch]
        self._attempts[batch] += 1
        fault = self._faults.get((batch, attempt))
        rules = task_ruleset(context.root, context.redis_url, context.namespace, context.ruleset)
        tasks = self.script.tasks_of(batch, attempt)
        hosts = self.script.hosts_of(batch, attempt, tasks)
        self.events["tasks on several hosts"] += len(set(hosts)) > 1

        def blocks(task: int, here: Fault | None) -> Iterator[Block]:
            def failed(piece: Any, why: Any) -> None:
                raise AssertionError(f"{piece}: {why}")

            found = read_pieces(pieces_of(context.input.shares, task, tasks), failed)
            for number, block in enumerate(found):
                fail(here, Point.READ, number)
                yield block

        try:
            reports = run_tasks(context, rules, hosts, blocks, fault)
        except FaultError:
            self.events["task failed"] += 1
            raise
        if self._watch is not None:
            self._watch.done(context, rules, reports)
        self._die(batch, Death.JOB, fresh=True)
        return reports

    def settle(self) -> None:
        """Run batches until all versions of queries are read and all past results are emitted."""
        quiet = turns = 0
        while quiet < _QUIET:
            ran = self.turn(share=0.0)
            self.driver.tables.drain()
            entered = self.driver.state.ruleset.epoch == self._published and not self._changed
            quiet = quiet + 1 if entered and not ran else 0
            turns += 1
            assert turns < 200, "batches without end"

    # --- queries ---------------------------------------------------------------------------------

    def register(self, number: int, *, early: bool) -> None:
        """Draw a statement, and register it if it is accepted."""
        kinds = {name: stream.kind for name, stream in self.streams.items()}
        rng = Random(f"statement {number} of {self.seed}")
        drawn, name = Grammar(rng, kinds, self._readable()).statement(), f"q{number}"
        if number % 3 == 0:
            own = in_other_words(drawn.text.spark, rng)
            self.events["with users' functions"] += own != drawn.text.spark
            drawn = replace(drawn, text=replace(drawn.text, spark=own))
        self.events["statements"] += 1
        if not early and not all(self.streams[s].retained for s in self._streams_of(drawn)):
            self.events["not stored"] += 1
            return
        past = not early and not drawn.by_arrival
        try:
            self._every.register(name, drawn.text.spark, past=past)
        except WideError:
            self.events["too wide"] += 1
            return
        except InvalidInput as error:
            if error.code != "past-not-stored":
                raise
            self.events["not stored"] += 1
            return
        except PlannerError as error:
            if not error.remedy or error.code not in _DOCUMENTED:
                raise
            self.refusals[f"{error.code}: {error.message}"] += 1
            self.events["refused"] += 1
            return
        self.events["accepted"] += 1
        self.features.update({feature: 1 for feature, n in drawn.features.items() if n})
        self.statements[name] = drawn
        if self.only is not None:
            if number not in self.only:
                return
            try:
                self.registry.register(name, drawn.text.spark, past=past)
            except PlannerError:
                # The statement reads a query that ``only`` leaves out.
                return
        names = [name, f"{name}t"] if self.twins else [name]
        for twin in names[1:]:
            self._every.register(twin, drawn.text.spark, past=past)
            if self.registry is not self._every:
                self.registry.register(twin, drawn.text.spark, past=past)
        self.statements |= dict.fromkeys(names, drawn)
        self.registered |= dict.fromkeys(names, drawn.text.spark)
        self._changed = True

    def _readable(self) -> dict[str, Any]:
        return {n: s.columns for n, s in self.statements.items() if not s.by_arrival}

    def _streams_of(self, statement: Statement) -> set[str]:
        """Return the streams that a statement reads, directly or through queries."""
        found = set[str]()
        for name in statement.reads:
            found |= {name} if name in self.streams else self._streams_of(self.statements[name])
        return found

    def drop(self) -> None:
        """Drop a query, with its readers."""
        if len(self.statements) < 2:
            return
        name = self.rng.choice(list(self.statements))
        for gone in (name, *self._every.queries.all_readers(name)):
            self.statements.pop(gone, None)
            self.registry.drop(gone)
        self._every.drop(name)
        self.events["dropped"] += 1
        self._changed = True

    # --- comparison ------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare results with DuckDB's, after :meth:`settle`: of queries over streams after each
        batch since the last check, of queries over queries after the last batch.

        Raises:
            AssertionError: a query has wrong results.
        """
        last = self.driver.state.next_batch - 1
        failures = {name: one.failure for name, one in self.driver.state.queries.items()}
        assert not any(failures.values()), f"seed {self.seed}, failed queries: {failures}"
        for name, stream in self.streams.items():
            assert stream.ends[-1][0] == len(stream.rows), f"input of {name} is left"
            assert self.driver.state.streams[name].late == stream.late, f"late tuples of {name}"
        for batch in range(self._checked, last + 1):
            known = [s.fill(self._duck, batch) for s in self.streams.values()]
            if not all(known):
                self.events["delete before its insert"] += 1
                continue
            for name in filter(self.statements.__contains__, self.registered):
                since = self._begun(name)
                text = self.statements[name].text.duck.replace("{since}", str(since))
                text = text.replace("{now}", f"make_timestamptz({self._times[batch]})")
                self._duck.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {text}")
                query = self.registry.forms[name]
                if batch == last or (since == 0 and self._is_flat(query)):
                    self._compare(name, query, batch, ended=batch == last)
        self._checked = last + 1

    def _is_flat(self, query: JoinQuery) -> bool:
        return all(r.stream in self.streams for join in query.planned for r in join.relations)

    def _begun(self, name: str) -> int:
        """Return the batch of a query's activation; all of its joins begin in the same one."""
        found = {
            one.activated_batch
            for join, one in self.driver.state.queries.items()
            if registered(join) == name
        }
        assert len(found) == 1, f"{name} begins in {found}"
        return found.pop()

    def _compare(
        self,
        name: str,
        query: JoinQuery,
        batch: int,
        *,
        ended: bool,
    ) -> None:
        answer = self._answers.setdefault(name, Answer(self.settings.results / name, query.view))
        found = answer.upto(None if ended else batch)
        wanted = comparable(self._duck.execute(f"SELECT * FROM {name}").fetchall())
        if found != wanted:
            extra, missing = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
            raise AssertionError(
                f"seed {self.seed}, {name} after batch {batch} of {self._checked}-{batch}\n"
                f"{self.statements[name].text.spark}\n{self.statements[name].text.duck}\n"
                f"too much: {list(extra.elements())[:10]}\nmissing: {list(missing.elements())[:10]}"
                f"\nof {len(wanted)}"
            )
        self.events["compared"] += 1
        if ended:
            self.events["answers"] += 1
            self.events["answers with rows"] += bool(wanted)
            for feature, count in self.statements[name].features.items():
                self.features[f"{feature}, rows"] += bool(count and wanted)

    # --- the run ---------------------------------------------------------------------------------

    def play(self) -> Combined:
        """Run the whole script, and compare results."""
        with ExitStack() as patches:
            # The input of a batch must not depend on the clock: folders are listed for each batch,
            # and all files found together are one load.
            for module, name, value in (
                (files, "LISTING", 0.0),
                (files, "WRITING", float("inf")),
                (files, "SETTLED", float("inf")),
                (loads, "QUIET_FIRST", 0.0),
                (loads, "QUIET", 0.0),
                (loads, "PAUSES", 0.0),
                (versions, "_REST", 0.0),
                (versions, "_REST_FACTOR", 0.0),
            ):
                patches.enter_context(patch.object(module, name, value))
            patches.enter_context(patch.object(os, "fsync", lambda _: None))
            patches.enter_context(patch.dict(os.environ, ENVIRONMENT))
            try:
                self._play()
            finally:
                self._duck.close()
        return self

    def _play(self) -> None:
        rng, numbers = self.rng, itertools.count()
        for _ in range(rng.randint(2, 4)):
            self.register(next(numbers), early=True)
        self._start()
        for _ in range(rng.choice((2, 3))):
            for _ in range(rng.randint(2, 5)):
                for stream in self.streams.values():
                    if rng.random() < 0.8:
                        stream.write(rng, self._minutes)
                self._minutes += rng.choice((0, 5, 20))
                if rng.random() < 0.3:
                    self.register(next(numbers), early=False)
                if rng.random() < 0.08:
                    self.drop()
                self.turn()
            for stream in self.streams.values():
                stream.finish()
            self.settle()
            self.check()
        self.driver.tables.close()
        if self._watch is not None:
            self._watch.ended(self.driver.state)
