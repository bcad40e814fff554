"""The batch protocol (``semantics.md``): the driver's work before and after a batch's job.

1. Input, epoch and rules of a batch are recorded while its job runs, and durable before its results
   are published, so a repetition of the batch uses the same.
2. Tasks write segments and staged results under names that contain the attempt.
3. Staged result files are renamed to their query and batch, and replace an earlier attempt's.
4. The manifest commits the batch atomically. A crash before this step leaves garbage only.

Decisions are pure functions: ``epoch_cycle`` begins and ends epochs, ``batch`` computes the states
before and after a batch, ``recovery`` the state that a start continues from.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import structlog

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.rations import PaidBatches
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.activations import Failure
from anabranch_contract.protocol.progress import Boundary, Mode
from anabranch_runtime.control import Control
from anabranch_runtime.driver import batch as batches
from anabranch_runtime.driver.attempts import Job, attempt, written
from anabranch_runtime.driver.batch import Batch
from anabranch_runtime.driver.cluster import Cluster, take_staged
from anabranch_runtime.driver.compactor import Compactor
from anabranch_runtime.driver.epoch_cycle import (
    Committed,
    Cycle,
    EnterIdle,
    Event,
    Quiet,
    ReportEnd,
    Started,
    step,
)
from anabranch_runtime.driver.fold_reports import fullness
from anabranch_runtime.driver.reporting.batch_report import Times
from anabranch_runtime.driver.reporting.progress import ProgressReporter
from anabranch_runtime.driver.reporting.reporting import Reporting
from anabranch_runtime.driver.revisions import Revisions
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.driver.tables import MaintainedTables, TablesApart
from anabranch_runtime.epochs import backfill
from anabranch_runtime.epochs.failed_queries import surviving, withdraw
from anabranch_runtime.epochs.layout import layouts
from anabranch_runtime.epochs.lookups import looking_up
from anabranch_runtime.epochs.table_versions import begin_versions, end_versions
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.event_time.newest_allowed import BatchTimes
from anabranch_runtime.exchange.fleet import BatchHosts
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.measure.statistics import arrival_costs, bounds
from anabranch_runtime.placement.moves import coming
from anabranch_runtime.probe.scope import ProbeScope
from anabranch_runtime.rations import catch_up
from anabranch_runtime.rations.catch_up import Shedding
from anabranch_runtime.rations.rationer import Rationer
from anabranch_runtime.recovery.durability import Durability
from anabranch_runtime.recovery.journal import JournalEntry
from anabranch_runtime.sinks.gathered import StagedRows
from anabranch_runtime.sinks.late import publish_late
from anabranch_runtime.sinks.ledger import Ledger
from anabranch_runtime.sinks.parquet import clear_staging, write_empty
from anabranch_runtime.sinks.publisher import Publisher, beside_batches, local_writers
from anabranch_runtime.sources.batch_input import BatchInput, Sources
from anabranch_runtime.sources.dealing import InputShares
from anabranch_runtime.sources.loads import end_loads, loads_upto, open_loads
from anabranch_runtime.sources.pacing.rate_limiter import RateLimiter
from anabranch_runtime.sources.planned import next_offsets
from anabranch_runtime.state.offsets import Offsets
from anabranch_runtime.storage.documents import at_once, sync_filesystem
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.storage.pipeline_lock import identify, lost
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.memory import largest_merge
from anabranch_runtime.views.left_out import sampled

#: Least seconds between two checks for newly published rulesets.
LOOK = 0.05
#: Least seconds between two batches without input, in which only time has passed.
TICK = 0.5

_LOG = structlog.get_logger("anabranch.runtime")


class Driver:
    """Runs batches one after the other; ``state`` is all that it has to recover after a crash.

    Attributes:
        state: the committed state. ``durability``: its files. ``cycle``: the next batch's epoch.
        publisher: delivers results; module ``pipeline`` adds the writers that need Spark.
        compactor: merges between batches; module ``pipeline`` replaces it by one that merges in the
            background.
        tables: tables that post-join parts maintain.
        cluster: coordinator of tasks that share only the object store; None: they share the state
            directory.
        progress: sources, and their progress. ``rationer``: chooses the rations of batches.
        reporting: reports of committed batches.
    """

    def __init__(
        self,
        settings: DriverSettings,
        control: Control,
        total_batches: int | None = None,
        tables: MaintainedTables | None = None,
    ) -> None:
        """Recover the state.

        Args:
            tables: maintains tables; None: in a process of its own.

        Raises:
            StateError: the state is damaged, or belongs to another pipeline; nothing was deleted.
        """
        root = settings.state
        self.settings, self.control = settings, control
        self.cluster: Cluster | None = None
        storage = attach(root, settings.object_store, settings.cache_size)
        live = settings.mode is Mode.LIVE
        self.durability = Durability(root, storage, control, replay=not live)
        self.state = self.durability.recover(settings.verify)
        results, namespace = settings.results, control.keys.namespace
        clear_staging(results)
        writers = local_writers(
            url=control.url, namespace=namespace, state=root, access=settings.access, role="results"
        )
        self.publisher = Publisher(results, beside_batches(writers))
        self.compactor = Compactor(root)
        apart = TablesApart(settings, control.url, namespace, self.publisher.writers)
        self.tables = tables or MaintainedTables(root, apart)
        self._ledger = Ledger(results)
        limit = settings.memory.workers
        target = settings.target_latency if live else None
        self._rate_limiter = RateLimiter(control, target, frugal=live and limit is not None)
        self._revisions = Revisions(control, self.durability.rulesets)
        self.rationer = Rationer(control, settings.mode, self.durability.choices.load)
        self.progress = ProgressReporter(control, self._rate_limiter)
        self.reporting = Reporting(
            *(settings, control, self.durability, self.publisher, self.progress),
            *(self._revisions, self.rationer, self.tables, self.state, total_batches),
        )
        #: The pipeline's identity, and the name of this start.
        self._identity, self._start = "", uuid.uuid4().hex[:12]
        #: Zero of the clock by which streams become idle; time between runs does not count.
        self._since = time.monotonic() - (self.state.clock or 0) / 1e6
        self.cycle, self._looked = Cycle(max(self.state.epoch, 0), time.monotonic()), 0.0
        self._ticked = float("-inf")
        #: Thread that syncs published results to disk while the next manifest is written.
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="sync")
        #: Digest of the registry (streams, queries, settings), and the time it was first seen.
        self._registry = self.cycle.digest, float("-inf")

    # --- lifecycle -----------------------------------------------------------------------------

    def announce(self) -> None:
        """Report the pipeline's progress to the service, so that it can plan.

        Raises:
            StateError: state and Redis belong to different pipelines (``storage.pipeline_lock``).
        """
        self.tables.begin(self.state)
        fresh = self.state.next_batch == 0 and self.state.epoch < 0
        self._identity = identify(self.settings.state, self.control, fresh=fresh)
        self.publisher.begin(self.state.next_batch, self._identity)
        self.durability.rulesets.restore(self.durability.used)
        self._rate_limiter.open()
        self.reporting.begin(self.state)
        self._advance(Started(self.control.last_boundary()))
        self.report("starting")

    def belong(self) -> None:
        """Check that Redis still knows this pipeline.

        Raises:
            StateError: ``redis-lost``: Redis has restarted without its data.
        """
        if self._identity and self.control.pipeline() != self._identity:
            raise lost(self.control)

    def read(self, sources: Sources) -> None:
        """Begin to read the planned ``sources`` with the next batch."""
        self.progress.sources = sources
        self.progress.direct(self.state)

    def tick(self) -> None:
        """Between batches, report changes, and commit the progress of tables. In live mode, begin
        and end epochs (``epoch_cycle``)."""
        self._note_tables()
        self.reporting.tick(self.state)
        if self.settings.mode is Mode.STEP:
            return
        self.belong()
        self.watch()
        self._look_for_changes()

    def watch(self) -> None:
        """In live mode, notice changes of the registry, even in a batch; called by one thread."""
        if self.settings.mode is Mode.LIVE:
            digest = self.control.registry_digest()
            if digest != self._registry[0]:
                self._registry = digest, time.monotonic()

    def look(self) -> None:
        """In live mode, look for new rulesets and changes, at most once in :data:`LOOK` seconds."""
        if self.settings.mode is Mode.LIVE and time.monotonic() - self._looked >= LOOK:
            self._look_for_changes()

    def _look_for_changes(self) -> None:
        """Begin or end an epoch while no batch runs, because of time or changes of the registry."""
        if self.durability.choices.get(self.state.next_batch) is not None:
            # The interrupted batch has to be repeated first, in the epoch that was chosen for it.
            return
        epoch, self._looked = self.cycle.epoch, time.monotonic()
        coming = self.control.newest_epochs(epoch + 1, 2)
        published = next((one for one in coming if one <= epoch), None)
        newest = coming[0] if coming else None
        self._advance(Quiet(published, newest, *self._registry))

    def _advance(self, event: Event) -> None:
        """Perform ``epoch_cycle``'s instructions for ``event``: report boundaries, begin epochs."""
        cycle, todo = step(self.cycle, self.state, event, self.settings, time.monotonic())
        for one in todo:
            if isinstance(one, EnterIdle):
                self._enter_idle(one.published)
            elif isinstance(one, ReportEnd):
                self.reporting.end_epoch(self.state, one.epoch)
            else:
                self.control.report_boundary(Boundary(-1, self.state.next_batch))
        self.cycle = cycle

    def _enter_idle(self, published: int) -> None:
        ruleset = surviving(self.durability.rulesets.get(self._newest_of(published)), self.state)
        steps = self.reporting.steps(self.state)
        state = batches.enter_idle(self.state, ruleset, self.cycle.epoch, steps)
        state = self.tables.entered(state, ruleset)
        self.durability.manifests.commit(state)
        self.state = state
        self.publisher.committed(state.next_batch, ruleset.queries)
        self.reporting.committed(state, ruleset)
        self.durability.forget(())
        self.report("running")

    def report(self, phase: str, error: str | None = None) -> None:
        """Report the progress of the pipeline in ``phase``."""
        self.reporting.report(phase, self.state, error)

    def _note_tables(self) -> None:
        """Commit the progress of maintained tables between batches, to know it after a restart."""
        state = self.tables.progressed(self.state)
        if state is self.state:
            return
        self.durability.manifests.commit(state)
        self.state = state
        rules = self.durability.rules(state)
        if rules is not None:
            self.tables.committed(state, surviving(rules, state))
        self.durability.forget(())

    def finish(self) -> None:
        """End the run. After a replay, deliver results that wait for a sink, and write an empty
        result file for each query without results.

        Raises:
            SinkError: a sink rejects its waiting results, which are kept.
        """
        self._note_tables()
        self.reporting.close(self.state)
        if self.settings.mode is not Mode.STEP:
            return
        self.publisher.finish()
        for epoch in sorted({e for e, _ in self.state.epoch_starts}):
            published = self.control.newest_epoch(epoch)
            if published is None:
                continue
            for query in self.control.ruleset(RulesetId(published)).queries:
                if query.sink.kind is SinkKind.PARQUET and query.registered == query.id:
                    write_empty(self.settings.results, query)

    # --- one batch -----------------------------------------------------------------------------

    def plan(self) -> Offsets | None:
        """Return the end of the next batch's input; None if no input waits.

        For an interrupted batch, this is the end recorded in the journal.
        """
        begun, sources = self.durability.choices.get(self.state.next_batch), self.progress.sources
        if begun is not None:
            return begun.offsets
        found = None if sources is None else next_offsets(sources.planned, self.state.offsets)
        return self._without_input() if found is None else found

    def _without_input(self) -> Offsets | None:
        """In live mode, return the end of a batch without input if views gain or lose rows just
        because time has passed; at most one such batch in :data:`TICK` seconds."""
        before, now = self.state.offsets, time.time_ns() // 1000
        if self.settings.mode is not Mode.LIVE or before is None:
            return None
        if time.monotonic() - self._ticked < TICK or not self.tables.due(now):
            return None
        self._ticked = time.monotonic()
        return replace(before, planned=now)

    def run(self, job: Job, offsets: Offsets | None = None) -> int:
        """Run the next batch, and return the number of its tuples.

        An interrupted batch is repeated with its recorded input, and ``offsets`` are ignored.

        Args:
            job: executes the tasks of the batch.
            offsets: end of the batch's input; None: ``job`` produces its own input.
        """
        started, number = time.perf_counter(), self.state.next_batch
        self.reporting.cpu.lap("plan")
        try:
            choice, ruleset = self._choose(number, offsets)
            with structlog.contextvars.bound_contextvars(epoch=choice.epoch, batch=number):
                return self._apply(number, job, choice, ruleset, started)
        finally:
            self.durability.choices.settle()

    def _apply(
        self, number: int, job: Job, choice: JournalEntry, ruleset: Ruleset, started: float
    ) -> int:
        """Run the batch as its journal entry ``choice`` says, and commit it."""
        settings = self.settings
        entering = (choice.epoch, choice.ruleset) != (self.state.epoch, self.state.ruleset)
        steps = self.reporting.steps(self.state) if entering else {}
        loads = loads_upto(choice.offsets)
        batch = batches.begin(
            begin_versions(end_loads(self.state, choice.offsets), loads),
            ruleset,
            choice.epoch,
            steps,
            settings.throttle,
            rationed=bool(choice.rations),
            planned=self._planned(choice),
        )
        context = self._context(batch, choice)
        if self.cluster is not None:
            context = self.cluster.enter(context)
        entered = time.perf_counter()
        self.reporting.cpu.lap("begin")
        read, choices = self._plan_input(choice, ruleset), self.durability.choices

        def recorded(context: BatchContext) -> list[TaskReport]:
            try:
                return job(context)
            finally:
                choices.wait()

        context, reports = attempt(
            context,
            recorded,
            read,
            results=settings.results,
            attempts=settings.attempts,
            stopping=self.control.stop_requested,
            discard=self.durability.storage.discard,
        )
        # If the journal entry could not be written, no further attempt is made: it would not help.
        self.reporting.cpu.add("begin", choices.settle())
        if read is not None:
            self._note_left_out(number, choice, read)
        storage = self.durability.storage
        staged = [] if self.cluster is None else take_staged(context, reports, storage)
        done = time.perf_counter()
        self.reporting.cpu.lap("run tasks")
        failures = withdraw(reports, ruleset)
        paid = catch_up.paid(context.shedding.catch_up, failures)
        located, synced = self._publish(context, paid, ruleset, reports, read)
        self.reporting.cpu.lap("publish")
        spent = time.perf_counter() - started
        feeds = self.state.feeds if read is None else read.feeds()
        state, ruleset = batches.finish(
            batch,
            context,
            reports,
            failures,
            spent,
            time.time(),
            settings.throttle,
            owed=choice.owed,
            open_loads=open_loads(choice.offsets, feeds),
        )
        state = end_versions(state, loads, feeds, time.time())
        state = replace(self.compactor.settle(state), offsets=choice.offsets, feeds=feeds)
        state = self.tables.settled(state, ruleset, reports, choice.time)
        self.durability.manifests.commit(state, at_once if synced is None else synced.result)
        reach(Point.COMMITTED)
        self.state = state
        self.publisher.committed(state.next_batch, ruleset.queries)
        self.reporting.cpu.lap("commit")
        self.durability.storage.discard(staged)
        if self.cluster is not None:
            self.cluster.met(state.hosts.placement, reports)
        self._after(ruleset, reports, located, failures, Times(started, entered, done))
        return sum(report.tuples for report in reports)

    def _choose(self, number: int, offsets: Offsets | None) -> tuple[JournalEntry, Ruleset]:
        """Choose and begin to record a batch's journal entry, or take an interrupted batch's.

        Returns:
            The entry, and its ruleset without the queries that have failed.
        """
        choice = self.durability.choices.get(number)
        if choice is None:
            epoch = self.cycle.epoch
            running = epoch == self.state.epoch
            published = self._revised(number) if running else self._published(epoch)
            ruleset = self.durability.rulesets.get(published)
            reach(Point.CHOOSING)
            logs = self.durability.keep_logs()
            rations = self.rationer.rations(surviving(ruleset, self.state), looking_up(ruleset))
            if self.state.debt.batches and offsets is not None:
                rations = rations if offsets.reads_after(self.state.offsets) else ()
            owed = bool(rations) and self.rationer.catches_up
            load = self.rationer.known
            choice = JournalEntry(
                *(epoch, published, offsets, logs),
                rations=rations,
                owed=owed,
                load=load,
                costs=self._costs(),
                time=time.time_ns() // 1000,
            )
            # The entry is durable once the job returns: until then nothing of the batch is visible.
            self.durability.choices.begin(number, choice)
            reach(Point.CHOSEN)
        else:
            ruleset = self.durability.rulesets.get(choice.ruleset)
        self.cycle = replace(self.cycle, epoch=choice.epoch)
        return choice, surviving(ruleset, self.state)

    def _published(self, epoch: int) -> RulesetId:
        """Return the id of ``epoch``'s ruleset: the newest up to it, or its newest revision."""
        if self.settings.mode is Mode.STEP or self.state.ruleset.epoch < 0:
            wanted = epoch if self.settings.mode is Mode.STEP else 0
            self.control.wait_for_epoch(wanted, self.settings.patience, self.belong)
        self.belong()
        newest = self.control.newest_epoch(epoch)
        return self.state.ruleset if newest is None else self._newest_of(newest)

    def _newest_of(self, published: int) -> RulesetId:
        """Return the id of the newest valid revision of the ruleset of epoch ``published``."""
        return self._revisions.entering(self.state, published, self.control.revision())

    def _revised(self, number: int) -> RulesetId:
        """Return the id of the running ruleset's newest revision valid for batch ``number``."""
        settings, state = self.settings, self.state
        if settings.mode is Mode.LIVE:
            return self._revisions.newest(state, self.control.revision())
        every, since = settings.revise_batches, number - state.epoch_starts[-1][1]
        if not every or (since % every and not self.reporting.interims.drifted):
            return state.ruleset
        self.reporting.interims.require(state)
        answer = self.control.wait_for_answer(number, settings.patience)
        return self._revisions.newest(state, answer)

    def _context(self, batch: Batch, choice: JournalEntry) -> BatchContext:
        state, ruleset, sources = batch.state, batch.ruleset, self.progress.sources
        redefined = frozenset[str]() if sources is None else sources.redefined(ruleset)
        planned, live = self._planned(choice), self.settings.mode is Mode.LIVE
        clock = int((time.monotonic() - self._since) * 1e6) if live else None
        storage, manifests = self.durability.storage, self.durability.manifests
        committed = {name: store.segments for name, store in self.state.stores.items()}
        owing = catch_up.owing(ruleset) if choice.owed else ()
        scaled = sampled(ruleset, choice.rations, owing)
        shedding = Shedding.of(state, choice.rations, scaled, planned)
        late = choice.rations or shedding.catch_up
        return BatchContext(
            batch=state.next_batch,
            epoch=state.epoch,
            ruleset=ruleset.id,
            attempt="",
            root=str(self.settings.state),
            staging="",
            redis_url=self.control.url,
            namespace=self.control.keys.namespace,
            times=BatchTimes.of(state, choice.time, planned, clock),
            scope=ProbeScope.of(state, ruleset, batch.access, self._start),
            shedding=shedding,
            input=InputShares(redefined=redefined),
            hosts=BatchHosts(state.hosts.placement, coming(state)),
            manifest=manifests.checksum(state.next_batch) if any(committed.values()) else None,
            replaced=batches.replaced_segments(committed, state),
            stores=layouts(state),
            bounds=bounds(state, self.reporting.samples),
            # Backfills wait during overload, and for catch-ups, whose results readers wait for.
            backfill=None if late else backfill.next_slice(state, ruleset),
            memory_limit=self.settings.memory.workers,
            objects=storage.uri,
        )

    def _planned(self, choice: JournalEntry) -> int | None:
        """Return the batch's planning time (microseconds); None in step mode, without a clock."""
        if choice.offsets is None or self.settings.mode is not Mode.LIVE:
            return None
        return choice.offsets.planned

    def _plan_input(self, choice: JournalEntry, ruleset: Ruleset) -> BatchInput | None:
        """Return the batch's input from the runtime's own sources; None if there are none."""
        sources, state = self.progress.sources, self.state
        if sources is None or choice.offsets is None:
            return None
        given = choice.offsets, choice.left_out, choice.costs, ruleset.streams
        return BatchInput(sources, state.feeds, state.next_batch, state.offsets, *given)

    def _costs(self) -> dict[str, float]:
        """Return stream -> measured seconds of probing per tuple; empty without assigned feeds."""
        sources = self.progress.sources
        rules = self.durability.rules(self.state) if sources is not None and sources.feeds else None
        return {} if rules is None else arrival_costs(self.state, rules)

    def _note_left_out(self, number: int, choice: JournalEntry, read: BatchInput) -> None:
        """Journal the input that is left out, before results are published, for repetitions."""
        if read.left_out != choice.left_out:
            self.durability.choices.record(number, replace(choice, left_out=read.left_out))
            reach(Point.LEFT_OUT)

    def _publish(
        self,
        context: BatchContext,
        paid: PaidBatches | None,
        ruleset: Ruleset,
        reports: list[TaskReport],
        read: BatchInput | None,
    ) -> tuple[dict[str, tuple[Path | StagedRows, ...]], Future[None] | None]:
        """Publish a batch's results, late tuples and ledger.

        Returns:
            Query -> its rows, by task; and the end of the sync that makes them durable, if any.
        """
        number, shedding, rations = context.batch, context.shedding, context.shedding.rations
        numbered = list(enumerate(reports))
        staged = [(q, task, Path(file)) for task, r in numbered for q, file in r.files.items()]
        late = [(s, task, Path(file)) for task, r in numbered for s, file in r.late.items()]
        reach(Point.STAGED)
        located = self.publisher.publish(number, ruleset.queries, staged, context.epoch)
        publish_late(self.settings.results, number, late)
        wanted = rations or self.rationer.schedule is not None or self._ledger.records(number)
        known = batches.reads(context, self.state, read.ranges()) if read and wanted else None
        marks, now = context.times.watermarks, shedding.now
        synced = None
        if self._ledger.publish(number, rations, marks, now, paid, known) or located or late:
            synced = self._syncer.submit(sync_filesystem, self.settings.results)
        reach(Point.PUBLISHED)
        return located, synced

    # --- after a batch -------------------------------------------------------------------------

    def _after(
        self,
        ruleset: Ruleset,
        reports: list[TaskReport],
        located: dict[str, tuple[Path | StagedRows, ...]],
        failures: dict[str, Failure],
        times: Times,
    ) -> None:
        """Follow up a batch's commit: delete files, report measurements, merge, deliver."""
        state = self.state
        self.compactor.settled(state)
        self.reporting.measured(ruleset, reports, self.compactor.take_spent())
        self.reporting.committed(state, ruleset)
        self.durability.forget(written(reports))
        self.durability.tidy(self.compactor.pending, state.next_batch)
        seconds = time.perf_counter() - times.started
        tuples, length = sum(r.tuples for r in reports), self.rationer.length
        self._rate_limiter.done(tuples, seconds, fullness(reports), length)
        if length is not None:
            probing = max(r.phases.get("probe", 0.0) for r in reports)
            limiter = self._rate_limiter
            self.rationer.done(tuples, limiter.seconds, probing, limiter.standing.values())
        self.reporting.results(state, located, seconds, sum(r.memory for r in reports))
        self.publisher.retry(ahead=seconds)
        clear_staging(self.settings.results)
        most = largest_merge(self.settings.memory.workers, len(reports))
        self.compactor.begin(state, ruleset, self.settings.fanout, most)
        self.reporting.merge_bytes = self.compactor.due_bytes
        self.durability.storage.trim(self.durability.manifests.named)
        for query, failure in failures.items():
            _LOG.error("query failed", query=query, **asdict(failure))
        self._advance(Committed(failed=bool(failures)))
        if self.cycle.epoch == state.epoch:
            self.look()
        self.reporting.batch(state, reports, times, self._rate_limiter.ages)
        self.reporting.progress_made(self.state)
        self.reporting.show_stores(self.state)
        self.reporting.cpu.lap("report")
        self.reporting.cpu.report()
