"""The batch protocol (``semantics.md``): what happens around the job of every micro-batch.

1. The batch's epoch is decided and recorded before it starts, so a repeat makes the same choice.
2. Tasks write segments and staged results under names that carry the attempt.
3. Results move to names that carry query and batch, replacing an earlier attempt's results.
4. The manifest commits the batch atomically. Until here a crash leaves garbage only.
5. Spark commits its offsets. A batch that the manifest has is skipped when Spark repeats it.

Decisions are pure: ``epoch_cycle`` when epochs begin and end, ``batch`` what the state is before
and after a batch, ``recovery.checkpoint`` and ``recovery.recovery`` from where a start goes on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import structlog

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.errors import StructuredError
from anabranch_contract.plans.rations import PaidBatches
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.plans.steps import CountedStep
from anabranch_contract.protocol.activations import Failure
from anabranch_contract.protocol.progress import Boundary, Mode
from anabranch_runtime.control import Control
from anabranch_runtime.driver import batch as batches
from anabranch_runtime.driver.attempts import Job, attempt, written
from anabranch_runtime.driver.batch import Batch
from anabranch_runtime.driver.beside import Beside
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
from anabranch_runtime.driver.fold_reports import fullness, snapshot, steps_seen, without_batches
from anabranch_runtime.driver.progress import ProgressReporter, ViewOutput, shown_on_disk
from anabranch_runtime.driver.reporting.batch_report import Times, batch_report, log_batch
from anabranch_runtime.driver.reporting.interim_reporter import EARLY, InterimReporter, Written
from anabranch_runtime.driver.reporting.state_publisher import StatePublisher
from anabranch_runtime.driver.reporting.telemetry import Counters
from anabranch_runtime.driver.revisions import Revisions
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs import backfill
from anabranch_runtime.epochs.access import latest_tiles, seen_from
from anabranch_runtime.epochs.arrival_costs import arrival_costs
from anabranch_runtime.epochs.failed_queries import failed, surviving, withdraw
from anabranch_runtime.epochs.layout import layouts
from anabranch_runtime.epochs.lookups import looking_up
from anabranch_runtime.epochs.retention import clocks, watermarks
from anabranch_runtime.epochs.table_versions import begin_versions, end_versions, looked_up
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.event_time.newest_allowed import newest_allowed
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.measure.join_samples import Steps
from anabranch_runtime.measure.statistics import Samples, bounds
from anabranch_runtime.placement.moves import coming
from anabranch_runtime.rations import catch_up
from anabranch_runtime.rations.freshness import present
from anabranch_runtime.rations.rationer import Rationer
from anabranch_runtime.recovery.checkpoint import brings_nothing, planned_at
from anabranch_runtime.recovery.durability import Durability
from anabranch_runtime.recovery.journal import JournalEntry
from anabranch_runtime.sinks.completeness import CompletenessFiles
from anabranch_runtime.sinks.late import publish_late
from anabranch_runtime.sinks.ledger import Ledger
from anabranch_runtime.sinks.parquet import clear_staging, write_empty
from anabranch_runtime.sinks.publisher import Publisher, local_writers
from anabranch_runtime.sinks.tail import Tails
from anabranch_runtime.sources.batch_input import BatchInput
from anabranch_runtime.sources.loads import end_loads, loads_upto, open_loads
from anabranch_runtime.sources.rate_limiter import RateLimiter
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.storage.pipeline_lock import identify, lost
from anabranch_runtime.storage.sync import sync_filesystem
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.memory import largest_merge
from anabranch_runtime.views.left_out import sampled
from anabranch_runtime.views.upkeep import Views

_LOG = structlog.get_logger("anabranch.runtime")


@dataclass(frozen=True, slots=True)
class _Clock:
    """Running time of the pipeline, without interruptions (``event_time.idleness``).

    Attributes:
        before: microseconds, in earlier drivers. ``since``: start of this one.
    """

    before: int
    since: float

    def reading(self) -> int:
        """Microseconds."""
        return self.before + int((time.monotonic() - self.since) * 1e6)


class Driver:
    """Runs batches one after the other; everything durable is in ``state``.

    Attributes:
        state: as committed. ``durability``: its records. ``cycle``: the next batch's epoch.
        total_batches: how many there will be, where that is known.
        rewound: a batch came otherwise than it had been begun: the query must be started again.
        failure: why the last batch failed, where this package says so.
        publisher: ``pipeline`` adds writers that need Spark.
        compactor: merges between batches; ``pipeline`` puts one in its place that merges beside.
        cluster: where tasks share nothing but the object store, how they meet.
        views: maintains post-join views; None: joined rows wait for a driver that does.
        tails: newest results, for clients that follow them.
        progress: reports of progress. ``rationer``: decides the rations of each batch's probes.
    """

    def __init__(
        self, settings: DriverSettings, control: Control, total_batches: int | None = None
    ) -> None:
        """Recover the state.

        Raises:
            StateError: it is damaged, or not that of this pipeline; nothing has been deleted.
        """
        root = settings.state
        self.settings, self.control = settings, control
        self.total_batches = total_batches
        self.rewound = False
        self.failure: StructuredError | None = None
        self.views: Views | Beside | None = None
        self.cluster: Cluster | None = None
        storage = attach(root, settings.object_store, settings.cache_size)
        live = settings.mode is Mode.LIVE
        self.durability = Durability(root, storage, control, replay=not live)
        self.state = self.durability.recover(settings.verify)
        clear_staging(settings.results)
        url, keys, results = control.url, control.keys, settings.results
        writers = local_writers(
            url=url, namespace=keys.namespace, state=root, access=settings.access
        )
        self.publisher = Publisher(results, self.state.next_batch, writers)
        self.compactor = Compactor(root)
        self._counters = Counters()
        self._completeness = CompletenessFiles(results)
        self._ledger = Ledger(results)
        self.tails = Tails(url, keys, results)
        self._state_publisher = StatePublisher(root, control)
        limit = settings.memory_limit
        target = settings.target_latency if live else None
        self._rate_limiter = RateLimiter(control, target, frugal=live and limit is not None)
        self._revisions = Revisions(control, self.durability.rulesets)
        self.rationer = Rationer(control, settings.mode, self.durability.choices.load)
        self.progress = ProgressReporter(
            control,
            self._rate_limiter,
            self._revisions,
            self.rationer,
            limit,
            str(results.absolute()),
        )
        self._samples = Samples()
        self._step_names = Steps()
        # Where a replay waits for revisions, periods are of as many batches.
        seconds = math.inf if settings.revise_batches else settings.interim_seconds
        # A replay without revisions reports no drift early: no decision waits for it.
        early = EARLY if live else math.inf if settings.revise_batches else None
        self._interims = InterimReporter(control, self.state, self._step_names, seconds, early)
        self._identity = ""
        self._clock = _Clock(self.state.clock or 0, time.monotonic())
        self.cycle = Cycle(max(self.state.epoch, 0), time.monotonic())

    # --- life ----------------------------------------------------------------------------------

    def announce(self) -> None:
        """Report the pipeline's progress to the control plane, so that it can plan.

        Raises:
            StateError: state and Redis belong to different pipelines (``storage.pipeline_lock``).
        """
        fresh = self.state.next_batch == 0 and self.state.epoch < 0
        self._identity = identify(self.settings.state, self.control, fresh=fresh)
        self.durability.rulesets.restore(self.durability.used)
        self._rate_limiter.open()
        self._completeness.begin(self.state.queries, self.state.next_batch - 1)
        self._advance(Started(self.control.last_boundary()))
        self.report("starting")

    def belong(self) -> None:
        """Check that Redis still knows this pipeline.

        Raises:
            StateError: ``redis-lost``: it came back without its data.
        """
        if self._identity and self.control.pipeline() != self._identity:
            raise lost(self.control)

    def align(self) -> None:
        """Make Spark's checkpoint agree with the state; before a query starts.

        Raises:
            StateError: it can't be (``recovery.checkpoint``).
        """
        self.rewound = False
        self.durability.align(self.state)
        self.progress.report_held(self.state)

    def tick(self) -> None:
        """Between batches: begin requested tails, deliver results that wait for a sink.

        Live also: begin and end epochs (``epoch_cycle``).
        """
        self.tails.open(self.state.next_batch, self._totals(), self._written())
        self.publisher.retry()
        if (self._problems(), self._shown()) != (self.progress.problems, self.progress.shown):
            self.report("running")
        self._state_publisher.show(self.state, self._rules)
        # Views decide left rows after the batch.
        self._completeness.show(self.state.queries, self.state.next_batch - 1, self._shown().left)
        if self.settings.mode is Mode.STEP:
            return
        self.belong()
        if self.durability.choices.get(self.state.next_batch) is not None:
            # An interrupted batch will be repeated, in the epoch that was chosen for it.
            return
        self._look_for_changes()

    def _look_for_changes(self) -> None:
        """Begin or end an epoch by time, live."""
        cycle = self.cycle
        published = self.control.newest_epoch(cycle.epoch)
        due = published is not None and cycle.is_due(self.settings, time.monotonic())
        self._advance(Quiet(published, self.control.registry_digest() if due else cycle.digest))

    def _advance(self, event: Event) -> None:
        """Carry out the instructions for ``event``: report boundaries, begin an epoch."""
        cycle, todo = step(self.cycle, self.state, event, self.settings, time.monotonic())
        for one in todo:
            if isinstance(one, EnterIdle):
                self._enter_idle(one.published)
            elif isinstance(one, ReportEnd):
                self._report_end(one.epoch)
            else:
                self.control.report_boundary(Boundary(-1, self.state.next_batch))
        self.cycle = cycle

    def _enter_idle(self, published: int) -> None:
        ruleset = surviving(self.durability.rulesets.get(self._newest_of(published)), self.state)
        state = batches.enter_idle(self.state, ruleset, self.cycle.epoch, self._steps())
        self.durability.manifests.commit(state)
        self.state = state
        self.progress.report_held(state)
        self.show_views(ruleset)
        self._interims.committed(state, ruleset)
        self.durability.forget(())
        self.report("running")

    def _report_end(self, epoch: int) -> None:
        """Report the end of ``epoch`` with its statistics.

        Planning of the next epoch needs the failed queries, so these are written first.
        """
        if failed(self.state):
            self.report("running")
        steps = steps_seen(self.state, self._steps())
        found = replace(snapshot(self.state, steps), epoch=epoch)
        if epoch != self.state.epoch:
            found = without_batches(found)
        changed = self._samples.changed()
        self.control.report_samples({name: s.dumps() for name, s in changed.items()})
        boundary = Boundary(epoch, self.state.next_batch, codec.dumps(found))
        reach(Point.BOUNDARY)
        self.control.report_boundary(boundary)

    def _totals(self) -> dict[str, int]:
        """Query -> its results so far; views and outer joins report theirs with their versions."""
        versions = self._written()
        return {q: a.results for q, a in self.state.queries.items() if q not in versions}

    def _written(self) -> dict[str, tuple[int, int]]:
        """Results that versions of views and outer joins have written."""
        return {} if self.views is None else self.views.written()

    def show_views(self, ruleset: Ruleset | None = None) -> None:
        """Pass the committed state to views, with the ruleset of the epoch."""
        rules = self._rules() if ruleset is None else ruleset
        if self.views is not None and rules is not None:
            # Owed results may still arrive: clocks of views wait for them.
            state = self.state
            self.views.committed(state.next_batch, clocks(state), rules, state.queries)

    def report_intake(self) -> None:
        """Between batches: report a source that can't be read any more, or can again."""
        if self.progress.intake_changed(self.state):
            self.report("idle" if self.exhausted else "running")

    def report(self, phase: str, error: str | None = None) -> None:
        """Write the progress."""
        lag = {} if self.views is None else self.views.lag()
        parked, due = self.publisher.parked(), self.compactor.due_bytes
        self.progress.telemetry = self._counters.telemetry(self.state, parked, lag, due)
        self.progress.report(
            phase,
            self.state,
            self._problems(),
            self._shown(),
            exhausted=self.exhausted,
            error=error,
        )

    def _problems(self) -> dict[str, str]:
        """Query -> why its results are not where they should be."""
        views = {} if self.views is None else self.views.problems()
        return {**self.publisher.problems(), **views}

    def _shown(self) -> ViewOutput:
        """Rows of views and outer joins; from disk while Spark starts."""
        views = self.views
        if views is None:
            return shown_on_disk(self.settings.results, self._rules())
        return ViewOutput(views.shown(), views.left_rows())

    @property
    def exhausted(self) -> bool:
        """Whether all recorded streams have been read to their end."""
        return self.total_batches is not None and self.state.next_batch >= self.total_batches

    def finish(self) -> None:
        """After a replay: deliver results that wait for a sink, and make an empty result file for
        each active query without results.

        Raises:
            SinkError: a sink does not take its waiting results, which are kept.
        """
        self.tails.close()
        state, left = self.state, self._shown().left
        self._completeness.show(state.queries, state.next_batch - 1, left, at_once=True)
        if self.settings.mode is not Mode.STEP:
            return
        self.publisher.finish()
        for epoch in sorted({e for e, _ in self.state.epoch_starts}):
            published = self.control.newest_epoch(epoch)
            if published is None:
                continue
            for query in self.control.ruleset(RulesetId(published)).queries:
                if query.sink.kind is SinkKind.PARQUET and query.left_of is None:
                    write_empty(self.settings.results, query)

    # --- one batch -----------------------------------------------------------------------------

    def run(self, number: int, job: Job) -> None:
        """Apply batch ``number`` by ``job``, exactly once however often it is called for.

        Raises:
            StateError: the batch is not the next one: checkpoint and state do not belong together.
            PipelineError: ``rewound``: it is not the batch that was begun under this number;
                the query must be started again (:meth:`align`).
        """
        if number < self.state.next_batch:
            return
        if number > self.state.next_batch:
            raise StateError(
                "batch-gap",
                f"Spark asks for batch {number}, the state's next is {self.state.next_batch}",
                remedy="restore state and checkpoint from the same moment",
            )
        started = time.perf_counter()
        choice, ruleset = self._choose(number)
        with structlog.contextvars.bound_contextvars(epoch=choice.epoch, batch=number):
            self._apply(number, job, choice, ruleset, started)

    def _apply(
        self, number: int, job: Job, choice: JournalEntry, ruleset: Ruleset, started: float
    ) -> None:
        """Run the batch by its choice, and commit it."""
        settings = self.settings
        entering = (choice.epoch, choice.ruleset) != (self.state.epoch, self.state.ruleset)
        steps = self._steps() if entering else {}
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
        read = self._plan_input(choice)
        context, reports = attempt(
            context,
            job,
            read,
            results=settings.results,
            attempts=settings.attempts,
            stopping=self.control.stop_requested,
            discard=self.durability.storage.discard,
        )
        if read is not None:
            self._note_left_out(number, choice, read)
        storage = self.durability.storage
        staged = [] if self.cluster is None else take_staged(context, reports, storage)
        done = time.perf_counter()
        failures = withdraw(reports, ruleset)
        paid = catch_up.paid(context.catch_up, failures)
        located = self._publish(context, paid, ruleset, reports, read)
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
        self.durability.manifests.commit(state)
        reach(Point.COMMITTED)
        self.state = state
        self.durability.storage.discard(staged)
        if self.cluster is not None:
            self.cluster.met(state.placement, reports)
        self._after(ruleset, reports, located, failures, Times(started, entered, done))

    def _choose(self, number: int) -> tuple[JournalEntry, Ruleset]:
        """Choose and record the batch's journal entry, or repeat an interrupted run's.

        Returns:
            The choice, and its ruleset without the queries that have failed.
        """
        offsets = self.durability.offsets(number)
        choice = self.durability.choices.get(number)
        if choice is None:
            epoch = self.cycle.epoch
            running = epoch == self.state.epoch
            published = self._revised(number) if running else self._published(epoch)
            ruleset = self.durability.rulesets.get(published)
            reach(Point.CHOOSING)
            logs = self.durability.keep_logs()
            rations = self.rationer.rations(surviving(ruleset, self.state), looking_up(ruleset))
            if self.state.debt.batches and brings_nothing(self.state.offsets, offsets):
                rations = ()
            owed = bool(rations) and self.rationer.catches_up
            load = self.rationer.known
            choice = JournalEntry(
                *(epoch, published, offsets, logs),
                rations=rations,
                owed=owed,
                load=load,
                costs=self._costs(),
            )
            self.durability.choices.record(number, choice)
            reach(Point.CHOSEN)
        elif choice.offsets != offsets:
            self.rewound = True
            raise PipelineError("rewound", f"batch {number} was begun with other offsets")
        else:
            ruleset = self.durability.rulesets.get(choice.ruleset)
        self.cycle = replace(self.cycle, epoch=choice.epoch)
        return choice, surviving(ruleset, self.state)

    def _published(self, epoch: int) -> RulesetId:
        """The published ruleset for ``epoch``: its own, or (live) the newest older."""
        if self.settings.mode is Mode.STEP or self.state.ruleset_epoch < 0:
            wanted = epoch if self.settings.mode is Mode.STEP else 0
            self.control.wait_for_epoch(wanted, self.settings.patience, self.belong)
        self.belong()
        newest = self.control.newest_epoch(epoch)
        return self.state.ruleset if newest is None else self._newest_of(newest)

    def _newest_of(self, published: int) -> RulesetId:
        """The ruleset of that epoch, as revised so far."""
        return self._revisions.entering(self.state, published, self.control.revision())

    def _revised(self, number: int) -> RulesetId:
        """The newest revision of the running epoch's ruleset that is valid for batch ``number``."""
        settings, state = self.settings, self.state
        if settings.mode is Mode.LIVE:
            return self._revisions.newest(state, self.control.revision())
        every, since = settings.revise_batches, number - state.epoch_starts[-1][1]
        if not every or (since % every and not self._interims.drifted):
            return state.ruleset
        self._interims.require(state)
        answer = self.control.wait_for_answer(number, settings.patience)
        return self._revisions.newest(state, answer)

    def _steps(self) -> Mapping[str, CountedStep]:
        """Edge -> step of the state's ruleset; empty if the ruleset is not found."""
        ruleset = self._rules()
        return {} if ruleset is None else self._step_names.of(ruleset)

    def _rules(self) -> Ruleset | None:
        """The state's ruleset; None before the first, and where neither the state folder nor Redis
        has it any more.
        """
        if self.state.ruleset_epoch < 0:
            return None
        try:
            return self.durability.rulesets.get(self.state.ruleset)
        except PipelineError as error:
            _LOG.warning("ruleset of the epoch not found", error=str(error))
            return None

    def _context(self, batch: Batch, choice: JournalEntry) -> BatchContext:
        state, ruleset, sources = batch.state, batch.ruleset, self.progress.sources
        live, planned = self.settings.mode is Mode.LIVE, self._planned(choice)
        storage, manifests = self.durability.storage, self.durability.manifests
        committed = {name: store.segments for name, store in self.state.stores.items()}
        owed = None if choice.rations else catch_up.next_catch_up(state)
        return BatchContext(
            batch=state.next_batch,
            epoch=state.epoch,
            ruleset=ruleset.id,
            attempt="",
            root=str(self.settings.state),
            staging="",
            redis_url=self.control.url,
            namespace=self.control.keys.namespace,
            watermarks=watermarks(state),
            newest_allowed=newest_allowed(state.streams, planned),
            now=present(state, planned),
            clock=self._clock.reading() if live else None,
            failed=failed(state),
            manifest=manifests.checksum(state.next_batch) if any(committed.values()) else None,
            replaced=batches.replaced_segments(committed, state),
            access=batch.access,
            visible={q.id: seen_from(state.queries[q.id], q.members) for q in ruleset.queries},
            activated={q.id: state.queries[q.id].activated_batch for q in ruleset.queries},
            stores=layouts(state),
            bounds=bounds(state, self._samples),
            # Under overload the past waits, and of it what readers wait for comes first.
            backfill=None if choice.rations or owed else backfill.next_slice(state, ruleset),
            catch_up=owed,
            latest=latest_tiles(state, ruleset),
            looked_up=looked_up(state),
            memory_limit=self.settings.memory_limit,
            objects=storage.uri,
            cache_size=self.settings.cache_size,
            redefined=frozenset() if sources is None else sources.redefined(ruleset),
            rations=choice.rations,
            placement=state.placement,
            coming=coming(state),
            sampled=sampled(
                ruleset, choice.rations, catch_up.owing(ruleset) if choice.owed else ()
            ),
        )

    def _planned(self, choice: JournalEntry) -> int | None:
        """Planning time of a batch; None in step mode, where speed must not matter."""
        return planned_at(choice.offsets) if self.settings.mode is Mode.LIVE else None

    def _plan_input(self, choice: JournalEntry) -> BatchInput | None:
        """The input from the sources that the runtime reads itself."""
        sources, state = self.progress.sources, self.state
        if sources is None or choice.offsets is None:
            return None
        return BatchInput(
            sources,
            state.feeds,
            state.next_batch,
            state.offsets,
            choice.offsets,
            choice.left_out,
            choice.costs,
        )

    def _costs(self) -> dict[str, float]:
        """Stream -> measured seconds of probing per tuple; empty without feeds to assign."""
        sources = self.progress.sources
        rules = self._rules() if sources is not None and sources.feeds else None
        return {} if rules is None else arrival_costs(self.state, rules)

    def _note_left_out(self, number: int, choice: JournalEntry, read: BatchInput) -> None:
        """Before any publication: record the input that a repetition has to leave out as well."""
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
    ) -> dict[str, tuple[Path, ...]]:
        """Publish results, late tuples and ledger; the files of each query, in order of tasks."""
        number, rations = context.batch, context.rations
        numbered = list(enumerate(reports))
        staged = [(q, task, Path(file)) for task, r in numbered for q, file in r.files.items()]
        late = [(s, task, Path(file)) for task, r in numbered for s, file in r.late.items()]
        reach(Point.STAGED)
        located = self.publisher.publish(number, ruleset.queries, staged, context.sampled)
        publish_late(self.settings.results, number, late)
        wanted = rations or self.rationer.schedule is not None or self._ledger.records(number)
        known = batches.reads(context, self.state, read.ranges()) if read and wanted else None
        marks, now = context.watermarks, context.now
        if self._ledger.publish(number, rations, marks, now, paid, known) or located or late:
            sync_filesystem(self.settings.results)
        reach(Point.PUBLISHED)
        return located

    # --- after a batch -------------------------------------------------------------------------

    def _after(
        self,
        ruleset: Ruleset,
        reports: list[TaskReport],
        located: dict[str, tuple[Path, ...]],
        failures: dict[str, Failure],
        times: Times,
    ) -> None:
        """Do the work that a commit allows: delete, measure, merge, deliver, report."""
        state, progress = self.state, self.progress
        progress.report_held(state)
        progress.note_sites(report.site for report in reports)
        self.show_views(ruleset)
        self.compactor.settled(state)
        self._samples.add(reports)
        merged = Written(merges=self.compactor.take_spent())
        self._interims.wrote([merged, *(Written(r.inserts, r.emitted) for r in reports)])
        self._interims.committed(state, ruleset)
        self.durability.forget(written(reports))
        self.durability.tidy(self.compactor.pending, state.next_batch)
        seconds = time.perf_counter() - times.started
        progress.batch_seconds, progress.private = seconds, sum(r.memory for r in reports)
        tuples, length = _tuples(reports), self.rationer.length
        self._rate_limiter.done(tuples, seconds, fullness(reports), length)
        if length is not None:
            probing = max(r.phases.get("probe", 0.0) for r in reports)
            limiter = self._rate_limiter
            self.rationer.done(tuples, limiter.seconds, probing, limiter.standing.values())
        self.tails.feed(state.next_batch - 1, located, self._totals(), self._written())
        self._completeness.show(state.queries, state.next_batch - 1, self._shown().left)
        self.publisher.retry()
        clear_staging(self.settings.results)
        most = largest_merge(self.settings.memory_limit, len(reports))
        self.compactor.begin(state, ruleset, self.settings.fanout, most)
        self.durability.storage.trim(self.durability.manifests.named)
        for query, failure in failures.items():
            _LOG.error("query failed", query=query, **asdict(failure))
        self._advance(Committed(failed=bool(failures)))
        if self._is_overdue():
            self._look_for_changes()
        times = times._replace(committed=time.perf_counter())
        spent, phases = times.committed - times.started, times.phases(reports)
        self._counters.committed(time.time(), spent, phases, self._rate_limiter.ages)
        report = batch_report(state, reports, times)
        log_batch(report, reports)
        self.control.report_batch(report)
        self.report("running")
        self._state_publisher.show(self.state, self._rules, at_once=self.exhausted)

    def _is_overdue(self) -> bool:
        """Whether the epoch goes on, live, and may end by time: where batches follow each other at
        once there may be no time for a :meth:`tick` between them.
        """
        cycle, settings = self.cycle, self.settings
        live, goes_on = settings.mode is Mode.LIVE, cycle.epoch == self.state.epoch
        return live and goes_on and cycle.is_due(settings, time.monotonic())


def _tuples(reports: list[TaskReport]) -> int:
    return sum(r.tuples for r in reports)
