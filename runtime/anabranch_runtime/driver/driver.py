"""The batch protocol (``semantics.md``): what happens around the job of every micro-batch.

1. The batch's epoch is decided and recorded before it starts, so a repeat makes the same choice.
2. Tasks write segments and staged results under names that carry the attempt.
3. Results move to names that carry query and batch, replacing those of an earlier attempt.
4. The manifest commits the batch atomically. Until here a crash leaves garbage only.
5. Spark commits its offsets. A batch that the manifest has is skipped when Spark repeats it.
"""

from __future__ import annotations

import shutil
import time
import uuid
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.protocol.progress import Boundary, Mode, Progress
from anabranch_runtime.driver.compactor import Compactor
from anabranch_runtime.driver.fold_reports import (
    fold,
    fullness,
    snapshot,
    steps_seen,
    stream_counts,
    without_batches,
)
from anabranch_runtime.driver.state_publisher import StatePublisher
from anabranch_runtime.epochs import backfill
from anabranch_runtime.epochs.access import (
    accesses,
    latest_since,
    latest_tiles,
    seen_from,
)
from anabranch_runtime.epochs.failed_queries import failed, surviving, take_out, withdraw
from anabranch_runtime.epochs.layout import layouts
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.merging import FANOUT
from anabranch_runtime.epochs.newest_allowed import newest_allowed
from anabranch_runtime.epochs.ownership import without
from anabranch_runtime.epochs.retention import drop_unused, expire, watermarks
from anabranch_runtime.epochs.statistics import Samples, bounds
from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.sinks.late import publish_late
from anabranch_runtime.sinks.parquet import STAGING, clear_staging, write_empty
from anabranch_runtime.sinks.publisher import Publisher, local_writers
from anabranch_runtime.sinks.tail import Tails
from anabranch_runtime.sources.batch_input import BatchInput
from anabranch_runtime.sources.rate_limiter import RateLimiter
from anabranch_runtime.state.checkpoint import decide, look, offsets_of, perform, planned_at
from anabranch_runtime.state.journal import Choice, Journal
from anabranch_runtime.state.logs import check_logs, prefixes
from anabranch_runtime.state.manifest import Manifests
from anabranch_runtime.state.recovery import recover
from anabranch_runtime.state.rulesets import Rulesets
from anabranch_runtime.state.slices import Throttle
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.storage.pipeline_lock import identify, lost
from anabranch_runtime.storage.sync import sync_filesystem
from anabranch_runtime.storage.verify import Verify
from anabranch_runtime.task.context import BatchContext, exchange_directory
from anabranch_runtime.task.memory import largest_merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch_contract.errors import StructuredError
    from anabranch_contract.plans.ruleset import Ruleset
    from anabranch_contract.protocol.measurements import JoinSample
    from anabranch_runtime.control import Control
    from anabranch_runtime.epochs.task_report import TaskReport
    from anabranch_runtime.sources.batch_input import Sources
    from anabranch_runtime.state.checkpoint import Repair
    from anabranch_runtime.state.coverage import Access
    from anabranch_runtime.state.manifest import State
    from anabranch_runtime.state.unread import FeedState
    from anabranch_runtime.storage.durable import Durable
    from anabranch_runtime.views.upkeep import Views

    Job = Callable[[BatchContext], list[TaskReport]]


_LOG = structlog.get_logger("anabranch.runtime")

#: How many times ``Settings.epoch_seconds`` an epoch lasts in which nothing changes or arrives.
IDLE_EPOCHS = 12


@dataclass(frozen=True, slots=True)
class Settings:
    """How a pipeline runs.

    Attributes:
        state: directory of manifests, segments and Spark's checkpoint.
        results: directory of result files.
        epoch_batches: batches per epoch.
        epoch_seconds: in live mode an epoch also ends after this time if something has been
            registered or removed, and after ``IDLE_EPOCHS`` times as long in any case.
        patience: seconds to wait for a ruleset that must come.
        attempts: how often a batch's job is tried before the pipeline fails.
        stuck_after: seconds without a sign of its tasks after which an attempt is cancelled.
        verify: how much of the state is read at a start to see whether it is whole.
        fanout: segments of one store partition that are merged into one.
        throttle: how much of a backfill a batch does.
        target_latency: seconds that a batch should take, from its planning to its commit: the
            sources that the runtime reads itself bring as many rows; None: whatever there is.
            Not in step mode, where batches don't depend on how fast they run.
        memory_limit: bytes of private memory that the workers of a host may take together; None:
            any number. See ``task.memory``.
        object_store: address of a store in which the state is durable, as ``pyarrow.fs`` has them;
            the state directory is then a cache of it. None: the directory is all there is.
        cache_size: bytes of packs that the state directory keeps after a commit; None: all. See
            ``storage.cache``.
        access: what sources and sinks may ask for.
    """

    state: Path
    results: Path
    epoch_batches: int = 4
    epoch_seconds: float = 5.0
    mode: Mode = Mode.LIVE
    patience: float = 300.0
    attempts: int = 4
    stuck_after: float = 600.0
    verify: Verify = Verify.FULL
    fanout: int = FANOUT
    throttle: Throttle = field(default_factory=Throttle)
    target_latency: float | None = 1.0
    memory_limit: int | None = None
    object_store: str | None = None
    cache_size: int | None = None
    access: AccessPolicy = field(default_factory=AccessPolicy)


@dataclass(slots=True)
class Driver:
    """Runs batches one after the other; everything durable is in ``state``."""

    settings: Settings
    control: Control
    total_batches: int | None = None
    #: Stream -> why its source is not read, where the job's sources don't say so themselves.
    left_out: dict[str, str] = field(default_factory=dict)
    #: The sources that are read; None: the job knows by itself what a batch brings.
    sources: Sources | None = None
    state: State = field(init=False)
    manifests: Manifests = field(init=False)
    choices: Journal = field(init=False)
    rulesets: Rulesets = field(init=False)
    #: A batch came otherwise than it had been begun: the query must be started again.
    rewound: bool = field(init=False, default=False)
    #: Why the last batch failed, where this package says so.
    failure: StructuredError | None = field(init=False, default=None)
    _durable: Durable = field(init=False)
    _identity: str = field(init=False, default="")
    #: Spark's text of the offsets of the batch that runs.
    _offsets: str | None = field(init=False, default=None)
    #: What the batch that runs reads.
    _input: BatchInput | None = field(init=False, default=None)
    #: The last epoch whose end has been reported.
    _reported: int = field(init=False, default=-1)
    #: Who may add writers that this module knows nothing of (``pipeline``).
    publisher: Publisher = field(init=False)
    #: By itself it merges between batches; who can do better says so (``pipeline``).
    compactor: Compactor = field(init=False)
    #: Who maintains what stands above joins; None: nobody, joined rows wait (``pipeline``).
    views: Views | None = field(init=False, default=None)
    _tails: Tails = field(init=False)
    _state_publisher: StatePublisher = field(init=False)
    _access: dict[str, Access] = field(init=False, default_factory=dict)
    _last_seconds: float = field(init=False, default=0.0)
    _told_problems: dict[str, str] = field(init=False, default_factory=dict)
    #: What has been said of feeds that are held; None: an earlier run may have said something.
    _told_held: dict[str, tuple[int, Any]] | None = field(init=False, default=None)
    #: Private memory of the last batch's tasks.
    _private: int = field(init=False, default=0)
    _rate_limiter: RateLimiter = field(init=False)
    #: The epoch that the next batch belongs to, and since when it has been.
    _epoch: int = field(init=False, default=0)
    _since: float = field(init=False, default_factory=time.monotonic)
    _digest: int = field(init=False, default=0)
    _eager: int = field(init=False, default=0)
    _samples: Samples = field(init=False, default_factory=Samples)
    #: When this driver began, and what the pipeline's clock showed then (``epochs.idleness``).
    _started: float = field(init=False, default_factory=time.monotonic)
    _clock: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._durable = attach(
            self.settings.state, self.settings.object_store, self.settings.cache_size
        )
        self._durable.adopt()
        self.manifests = Manifests(self.settings.state)
        self.choices = Journal(self.settings.state)
        self.rulesets = Rulesets(self.settings.state, self.control)
        self.state = recover(
            self.settings.state, self.manifests, self.choices, self.settings.verify
        )
        # What is refused is refused before anything is deleted.
        check_logs(self.settings.state, self.choices.logs)
        # A driver may run without Spark.
        if self.state.offsets is not None or self._checkpoint.exists():
            self._repair()
        self._epoch = max(self.state.epoch, 0)
        self._clock = self.state.clock or 0
        self._collect_garbage()
        clear_staging(self.settings.results)
        url, keys, results = self.control.url, self.control.keys, self.settings.results
        writers = local_writers(
            url=url,
            namespace=keys.namespace,
            state=self.settings.state,
            access=self.settings.access,
        )
        self.publisher = Publisher(results, self.state.next_batch, writers)
        self.compactor = Compactor(self.settings.state)
        self._tails = Tails(url, keys, results)
        self._state_publisher = StatePublisher(self.settings.state, self.control)
        live = self.settings.mode is Mode.LIVE
        self._rate_limiter = RateLimiter(
            self.control,
            self.settings.target_latency if live else None,
            frugal=live and self.settings.memory_limit is not None,
        )

    # --- life ----------------------------------------------------------------------------------

    def announce(self) -> None:
        """Tell the control plane where this pipeline stands, so that it can plan.

        Raises:
            StateError: state and Redis are not those of one pipeline (``storage.pipeline_lock``).
        """
        fresh = self.state.next_batch == 0 and self.state.epoch < 0
        self._identity = identify(self.settings.state, self.control, fresh=fresh)
        self.rulesets.restore()
        self._rate_limiter.open()
        last = self.control.last_boundary()
        if last is None:
            self.control.report_boundary(Boundary(-1, self.state.next_batch))
        else:
            self._reported = last.epoch
            self._begin(max(last.epoch + 1, self._epoch))
        if self.state.epoch == self._epoch and self._is_full():
            self._end_epoch()
        self.report("starting")

    def belong(self) -> None:
        """See to it that Redis still knows this pipeline.

        Raises:
            StateError: ``redis-lost``: it came back without its data.
        """
        if self._identity and self.control.pipeline() != self._identity:
            raise lost(self.control)

    def align(self) -> None:
        """Make Spark's checkpoint agree with the state; before a query starts.

        Raises:
            StateError: it can't be (``state.checkpoint``).
        """
        self.rewound = False
        repair = self._repair()
        if repair.write or repair.remove:
            _LOG.info("checkpoint aligned", wrote=list(repair.write), removed=list(repair.remove))
        perform(self._checkpoint, repair)
        self._tell_held()

    @property
    def _checkpoint(self) -> Path:
        return self.settings.state / "checkpoint"

    def _repair(self) -> Repair:
        replay = self.settings.mode is Mode.STEP
        state, seen = self.state, look(self._checkpoint)
        anew = self._durable.uri is not None
        offsets, choices = state.offsets, self.choices
        return decide(seen, state.next_batch, offsets, choices, replay=replay, anew=anew)

    def tick(self) -> None:
        """Between batches: begin the tails that somebody waits for, deliver what waits for a sink.

        Live also: enter an epoch that has a new ruleset, and end one that has lasted long enough,
        so that what has been registered becomes active although nothing arrives.
        """
        results = {query: a.results for query, a in self.state.queries.items()}
        self._tails.open(self.state.next_batch, results)
        self.publisher.retry()
        if self._problems() != self._told_problems:
            self.report("running")
        self._state_publisher.show(self.state, self._rules)
        if self.settings.mode is Mode.STEP:
            return
        self.belong()
        if self.choices.get(self.state.next_batch) is not None:
            # An interrupted batch will be repeated, in the epoch that was chosen for it.
            return
        published = self.control.newest_epoch(self._epoch)
        if published is None:
            return
        if self.state.epoch != self._epoch and published != self.state.ruleset_epoch:
            self._enter_idle(published)
        elapsed = time.monotonic() - self._since
        if elapsed < self.settings.epoch_seconds:
            return
        digest = self.control.registry_digest()
        if digest != self._digest:
            # Planned at the end of this epoch, active after the next.
            self._digest, self._eager = digest, 2
        # A ruleset that came after its epoch's first batch waits for the next epoch.
        unused = published != self.state.ruleset_epoch
        if self._eager or unused or elapsed >= IDLE_EPOCHS * self.settings.epoch_seconds:
            self._eager = max(self._eager - 1, 0)
            self._end_epoch()

    def _enter_idle(self, published: int) -> None:
        ruleset = surviving(self.rulesets.get(published), self.state)
        state = self._entered(ruleset, self._epoch)
        state = drop_unused(state, ruleset, accesses(state, ruleset))
        self.manifests.commit(state)
        self.state = state
        self.show_views(ruleset)
        self._forget(())
        self.report("running")

    def show_views(self, ruleset: Ruleset | None = None) -> None:
        """Let views know what has committed, by the ruleset of the epoch."""
        rules = self._rules() if ruleset is None else ruleset
        if self.views is not None and rules is not None:
            self.views.committed(self.state.next_batch, watermarks(self.state), rules)

    def watch_sources(self) -> None:
        """Between batches: report a source that can't be read any more, or can again."""
        if self._rate_limiter.intake(self.left_out, self._read_feeds) != self._rate_limiter.told:
            self.report("idle" if self.exhausted else "running")

    @property
    def _read_feeds(self) -> list[FeedState]:
        """What the state says of the feeds that are registered."""
        gone = frozenset() if self.sources is None else self.sources.gone(self.state.feeds)
        return [feed for name, feed in self.state.feeds.items() if name not in gone]

    @property
    def held(self) -> dict[str, str]:
        """Stream -> why no more of it is read for now."""
        feeds = self._read_feeds
        return {feed.stream: feed.held.error for feed in feeds if feed.held is not None}

    def _tell_held(self) -> None:
        """Tell the sources which feeds are held, before they plan the next batch."""
        feeds = self.state.feeds.items()
        held = {name: (f.held.trials, f.held.start) for name, f in feeds if f.held is not None}
        if held != self._told_held:
            self.control.set_held(held)
            self._told_held = held

    def report(self, state: str, error: str | None = None) -> None:
        """Write the progress."""
        current, self._told_problems = self.state, self._problems()
        self.control.report(
            Progress(
                state=state,
                committed=current.next_batch,
                epoch=current.epoch,
                epoch_starts={str(e): b for e, b in current.epoch_starts},
                ruleset_epoch=current.ruleset_epoch,
                streams=stream_counts(current),
                latest_since=latest_since(current),
                results={q: a.results for q, a in current.queries.items()},
                probes=current.probes,
                state_bytes=current.bytes,
                batch_seconds=self._last_seconds,
                processing_seconds=current.processing_seconds,
                exhausted=self.exhausted,
                error=error,
                sinks=self._told_problems,
                intake=self._rate_limiter.tell(self.left_out, self._read_feeds),
                row_limit=self._rate_limiter.limit,
                private_bytes=self._private,
                memory_limit=self.settings.memory_limit,
                backfill=backfill.progress(current),
                run=self.control.run,
            ),
            current.queries,
        )

    def _problems(self) -> dict[str, str]:
        """Query -> why its results are not where they should be."""
        views = {} if self.views is None else self.views.problems()
        return {**self.publisher.problems(), **views}

    @property
    def exhausted(self) -> bool:
        """Whether all recorded streams have been read to their end."""
        return self.total_batches is not None and self.state.next_batch >= self.total_batches

    def finish(self) -> None:
        """After a replay: deliver what waits for a sink, and make an empty result file for each
        query that was active and found nothing.

        Raises:
            SinkError: a sink does not take what waits for it, which is kept.
        """
        self._tails.close()
        if self.settings.mode is not Mode.STEP:
            return
        self.publisher.finish()
        for epoch in sorted({e for e, _ in self.state.epoch_starts}):
            published = self.control.newest_epoch(epoch)
            if published is None:
                continue
            for query in self.control.ruleset(published).queries:
                if query.sink.kind is SinkKind.PARQUET and query.left_of is None:
                    write_empty(self.settings.results, query)

    # --- one batch -----------------------------------------------------------------------------

    def run(self, batch: int, job: Job) -> None:
        """Apply batch ``batch`` by ``job``, exactly once however often it is asked for.

        Raises:
            StateError: the batch is not the next one: checkpoint and state do not belong together.
            PipelineError: ``rewound``: it is not the batch that was begun under this number;
                the query must be started again (:meth:`align`).
        """
        if batch < self.state.next_batch:
            return
        if batch > self.state.next_batch:
            raise StateError(
                "batch-gap",
                f"Spark asks for batch {batch}, the state's next is {self.state.next_batch}",
                remedy="restore state and checkpoint from the same moment",
            )
        started = time.perf_counter()
        state, ruleset, fresh = self._enter(batch)
        state = backfill.begin(state, ruleset, self.settings.throttle)
        access = accesses(state, ruleset)
        if fresh:
            state = drop_unused(state, ruleset, access)
        context = self._context(state, ruleset, access)
        entered = time.perf_counter()
        self._input = self._plan_input(batch)
        context, reports = self._attempt(context, job)
        self._note_left_out(batch)
        done = time.perf_counter()
        failures = withdraw(reports, batch, ruleset)
        staged = [
            (query, task, Path(file))
            for task, report in enumerate(reports)
            for query, file in report.files.items()
        ]
        reach(Point.STAGED)
        located = self.publisher.publish(batch, ruleset.queries, staged)
        late = [(s, task, Path(f)) for task, r in enumerate(reports) for s, f in r.late.items()]
        publish_late(self.settings.results, batch, late)
        if located or late:
            sync_filesystem(self.settings.results)
        reach(Point.PUBLISHED)
        state = fold(state, context, reports, time.perf_counter() - started, time.time())
        spent = time.perf_counter() - started
        state = backfill.advance(state, context.backfill, reports, spent, self.settings.throttle)
        if failures:
            state = take_out(state, ruleset, failures)
            ruleset = without(ruleset, frozenset(failures))
            state = drop_unused(state, ruleset, accesses(state, ruleset))
        state = self.compactor.settle(expire(state, ruleset))
        state = replace(state, offsets=self._offsets)
        if self._input is not None:
            state = replace(state, feeds=self._input.feeds())
        self.manifests.commit(state)
        reach(Point.COMMITTED)
        self.state = state
        self._tell_held()
        self.show_views(ruleset)
        self.compactor.settled(state)
        self._samples.add(reports)
        self._forget(reports)
        self._last_seconds = time.perf_counter() - started
        tuples = sum(m["input"] for r in reports for m in r.streams.values())
        self._private = sum(r.memory for r in reports)
        self._rate_limiter.done(tuples, self._last_seconds, fullness(reports))
        self._tails.feed(batch, located, {q: a.results for q, a in state.queries.items()})
        self.publisher.retry()
        clear_staging(self.settings.results)
        most = largest_merge(self.settings.memory_limit, len(reports))
        self.compactor.begin(state, ruleset, self.settings.fanout, most)
        self._durable.trim(self.manifests.named)
        for query, failure in failures.items():
            _LOG.error("query failed", query=query, **asdict(failure))
            # Planned without it at the end of this epoch, active after the next.
            self._eager = 2
        if self._is_full() or self._epoch <= self._reported:
            self._end_epoch()
        self.report("running")
        self._state_publisher.show(self.state, self._rules, at_once=self.exhausted)
        _LOG.info(
            "batch committed",
            batch=batch,
            epoch=state.epoch,
            ruleset=state.ruleset_epoch,
            tuples=tuples,
            results=sum(sum(r.results.values()) for r in reports),
            fetched=sum(r.fetched[1] for r in reports),
            task_ms={
                phase: round(1e3 * max(r.phases.get(phase, 0.0) for r in reports))
                for phase in ("read", "store", "wait", "probe", "write", "backfill", "upload")
            },
            enter_ms=round(1e3 * (entered - started)),
            job_ms=round(1e3 * (done - entered)),
            commit_ms=round(1e3 * (time.perf_counter() - done)),
        )

    def _plan_input(self, batch: int) -> BatchInput | None:
        """What the batch reads of the sources that the runtime reads itself."""
        if self.sources is None or self._offsets is None:
            return None
        choice = self.choices.get(batch)
        left_out = {} if choice is None else choice.left_out
        before, feeds = self.state.offsets, self.state.feeds
        return BatchInput(self.sources, feeds, batch, before, self._offsets, left_out)

    def _attempt(self, context: BatchContext, job: Job) -> tuple[BatchContext, list[TaskReport]]:
        """Run the batch's job, again under a new name where an attempt fails, or has met input that
        can't be read.
        """
        left = self.settings.attempts
        while True:
            attempt = uuid.uuid4().hex[:12]
            staging = str(self.settings.results / STAGING / attempt)
            shares = () if self._input is None else self._input.shares()
            context = replace(context, attempt=attempt, staging=staging, shares=shares)
            try:
                reports = job(context)
                notes = [note for report in reports for note in report.unread]
                if self._input is None or self._input.accept(notes):
                    return context, reports
                written = {str(d["path"]) for r in reports for d in (*r.segments, *r.backfilled)}
                self._durable.discard(written)
            except Exception as error:
                left -= 1
                if not left or self.control.stop_requested():
                    raise
                _LOG.warning("batch attempt failed", batch=context.batch, error=str(error)[:2000])
            finally:
                shutil.rmtree(exchange_directory(context), ignore_errors=True)

    def _note_left_out(self, batch: int) -> None:
        """Before anything is published: what a repetition has to leave out as well."""
        choice = self.choices.get(batch)
        if self._input is None or choice is None:
            return
        left_out = self._input.left_out
        if left_out != choice.left_out:
            self.choices.record(batch, replace(choice, left_out=left_out))
            reach(Point.LEFT_OUT)

    def _enter(self, batch: int) -> tuple[State, Ruleset, bool]:
        """The state in which the batch starts, its ruleset, and whether an epoch begins."""
        offsets = offsets_of(self._checkpoint, batch)
        choice = self.choices.get(batch)
        if choice is None:
            running = self._epoch == self.state.epoch
            published = self.state.ruleset_epoch if running else self._published(self._epoch)
            ruleset = self.rulesets.get(published)
            reach(Point.CHOOSING)
            logs = prefixes(self.settings.state, self.choices.logs)
            self._durable.keep(logs, self.choices.logs)
            choice = Choice(self._epoch, published, offsets, logs)
            self.choices.record(batch, choice)
            reach(Point.CHOSEN)
        else:
            if choice.offsets not in (None, offsets):
                self.rewound = True
                raise PipelineError("rewound", f"batch {batch} was begun with other offsets")
            ruleset = self.rulesets.get(choice.ruleset)
        self._epoch = choice.epoch
        self._offsets = offsets
        ruleset = surviving(ruleset, self.state)
        if choice.epoch == self.state.epoch:
            return self.state, ruleset, False
        return self._entered(ruleset, choice.epoch), ruleset, True

    def _entered(self, ruleset: Ruleset, epoch: int) -> State:
        """The state in which ``epoch`` begins to go by ``ruleset``."""
        return enter_epoch(replace(self.state, steps=self._steps()), ruleset, epoch)

    def _steps(self) -> tuple[JoinSample, ...]:
        """What has been seen of steps, the current epoch's edges included.

        Without the epoch's ruleset nothing can be said of its edges.
        """
        ruleset = self._rules()
        return self.state.steps if ruleset is None else steps_seen(self.state, ruleset)

    def _rules(self) -> Ruleset | None:
        """The ruleset that the state goes by; None before the first, and where neither the state
        folder nor Redis has them any more.
        """
        if self.state.ruleset_epoch < 0:
            return None
        try:
            return self.rulesets.get(self.state.ruleset_epoch)
        except PipelineError as error:
            _LOG.warning("ruleset of the epoch not found", error=str(error))
            return None

    def _published(self, epoch: int) -> int:
        """The published ruleset that ``epoch`` goes by: its own, or (live) the newest older."""
        if self.settings.mode is Mode.STEP or self.state.ruleset_epoch < 0:
            wanted = epoch if self.settings.mode is Mode.STEP else 0
            self.control.wait_for_epoch(wanted, self.settings.patience, self.belong)
        self.belong()
        newest = self.control.newest_epoch(epoch)
        return self.state.ruleset_epoch if newest is None else newest

    def _context(self, state: State, ruleset: Ruleset, access: dict[str, Access]) -> BatchContext:
        return BatchContext(
            batch=state.next_batch,
            epoch=state.epoch,
            ruleset=ruleset.epoch,
            attempt="",
            root=str(self.settings.state),
            staging="",
            redis_url=self.control.url,
            namespace=self.control.keys.namespace,
            watermarks=watermarks(state),
            newest_allowed=newest_allowed(state.streams, self._planned()),
            clock=self._running(),
            failed=failed(state),
            segments={name: s.segments for name, s in state.stores.items() if s.segments},
            access=access,
            visible={q.id: seen_from(state.queries[q.id], q.members) for q in ruleset.queries},
            activated={q.id: state.queries[q.id].activated_batch for q in ruleset.queries},
            stores=layouts(state),
            bounds=bounds(state, self._samples),
            backfill=backfill.next_slice(state, ruleset),
            latest=latest_tiles(state, ruleset),
            memory_limit=self.settings.memory_limit,
            objects=self._durable.uri,
            redefined=frozenset() if self.sources is None else self.sources.redefined(ruleset),
        )

    def _planned(self) -> int | None:
        """When the batch that runs was planned; None in step mode, as with :meth:`_running`."""
        return None if self.settings.mode is Mode.STEP else planned_at(self._offsets)

    def _running(self) -> int | None:
        """Microseconds that the pipeline has been running, interruptions left out; None in step
        mode, where nothing may depend on how fast it runs.
        """
        if self.settings.mode is Mode.STEP:
            return None
        return self._clock + int((time.monotonic() - self._started) * 1e6)

    # --- after a batch -------------------------------------------------------------------------

    def _is_full(self) -> bool:
        """Whether the epoch of the last batch has had all its batches."""
        every = self.settings.epoch_batches
        if self.settings.mode is Mode.STEP:
            return self.state.next_batch > 0 and self.state.next_batch % every == 0
        return self.state.next_batch - self.state.epoch_starts[-1][1] >= every

    def _end_epoch(self) -> None:
        """Report the end of the current epoch with its statistics, and begin the next.

        Whoever plans the next must know which queries have failed, so that is written before.
        After a roll back the end may have been reported already, and that of later epochs too.
        """
        if self._epoch <= self._reported:
            self._begin(self._reported + 1)
            return
        if failed(self.state):
            self.report("running")
        found = replace(snapshot(self.state, self._steps()), epoch=self._epoch)
        if self._epoch != self.state.epoch:
            found = without_batches(found)
        changed = self._samples.changed()
        self.control.report_samples({name: s.dumps() for name, s in changed.items()})
        boundary = Boundary(self._epoch, self.state.next_batch, found.to_json())
        reach(Point.BOUNDARY)
        self.control.report_boundary(boundary)
        self._reported = self._epoch
        self._begin(self._epoch + 1)

    def _begin(self, epoch: int) -> None:
        self._epoch, self._since = epoch, time.monotonic()

    def _forget(self, reports: Sequence[TaskReport]) -> None:
        """Delete what no manifest that is kept names (any more) or goes by."""
        written = {str(d["path"]) for r in reports for d in (*r.segments, *r.backfilled)}
        named = self.manifests.named
        self._durable.discard(self.manifests.dropped() | (written - named))
        self.rulesets.forget(self.manifests.rulesets | self.choices.rulesets)

    def _collect_garbage(self) -> None:
        """Delete what an interrupted batch has left: packs that no manifest names, and messages
        between tasks.
        """
        shutil.rmtree(self.settings.state / "exchange", ignore_errors=True)
        self._durable.sweep(self.manifests.named)
