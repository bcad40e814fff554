"""The batch protocol (``semantics.md``): what happens around the job of every micro-batch.

1. The batch's epoch is decided and recorded before it starts, so a repeat makes the same choice.
2. Tasks write segments and staged results under names that carry the attempt.
3. Results move to names that carry query and batch, replacing those of an earlier attempt.
4. The manifest commits the batch atomically. Until here a crash leaves garbage only.
5. Spark commits its offsets. A batch that the manifest has is skipped when Spark repeats it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from anabranch_planner.exchange import Boundary, Mode, Progress
from anabranch_planner.ruleset import store_from_json
from anabranch_runtime.context import BatchContext, exchange_directory
from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.fold import fold, snapshot, steps_seen, stream_counts
from anabranch_runtime.sinks.parquet import STAGING, clear_staging, publish, write_empty
from anabranch_runtime.state.access import accesses
from anabranch_runtime.state.layout import StoreLayout
from anabranch_runtime.state.lifecycle import enter_epoch
from anabranch_runtime.state.manifest import Manifests
from anabranch_runtime.state.retention import drop_unused, expire, merges, watermarks

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch_planner.exchange import Activation
    from anabranch_planner.ruleset import Ruleset
    from anabranch_planner.statistics import JoinSample
    from anabranch_runtime.context import Access
    from anabranch_runtime.control import Control
    from anabranch_runtime.state.manifest import State, StoreState
    from anabranch_runtime.task.worker import TaskReport

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
    """

    state: Path
    results: Path
    epoch_batches: int = 4
    epoch_seconds: float = 5.0
    mode: Mode = Mode.LIVE
    patience: float = 300.0
    attempts: int = 2


@dataclass(slots=True)
class Driver:
    """Runs batches one after the other; everything durable is in ``state``."""

    settings: Settings
    control: Control
    total_batches: int | None = None
    state: State = field(init=False)
    manifests: Manifests = field(init=False)
    _access: dict[str, Access] = field(init=False, default_factory=dict)
    _last_seconds: float = field(init=False, default=0.0)
    #: The epoch that the next batch belongs to, and since when it has been.
    _epoch: int = field(init=False, default=0)
    _since: float = field(init=False, default_factory=time.monotonic)
    _digest: int = field(init=False, default=0)
    _eager: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.manifests = Manifests(self.settings.state)
        self.state = self.manifests.load()
        self._epoch = max(self.state.epoch, 0)
        self._collect_garbage()
        clear_staging(self.settings.results)

    # --- life ----------------------------------------------------------------------------------

    def announce(self) -> None:
        """Tell the control plane where this pipeline stands, so that it can plan."""
        last = self.control.last_boundary()
        if last is None:
            self.control.report_boundary(Boundary(-1, self.state.next_batch))
        elif last.epoch >= self._epoch:
            self._begin(last.epoch + 1)
        if self.state.epoch == self._epoch and self._is_full():
            self._end_epoch()
        self.report("starting")

    def tick(self) -> None:
        """Between batches, live: enter an epoch that has a new ruleset, and end one that has lasted
        long enough, so that what has been registered becomes active although nothing arrives.
        """
        if self.settings.mode is Mode.STEP:
            return
        if self._recorded_choice(self.state.next_batch) is not None:
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
        waiting = published != self.state.ruleset_epoch
        if self._eager or waiting or elapsed >= IDLE_EPOCHS * self.settings.epoch_seconds:
            self._eager = max(self._eager - 1, 0)
            self._end_epoch()

    def _enter_idle(self, published: int) -> None:
        ruleset = self.control.ruleset(published)
        state = self._entered(ruleset, self._epoch)
        state = drop_unused(state, ruleset, accesses(state, ruleset))
        self.manifests.commit(state)
        self.state = state
        self.report("running")

    def report(self, state: str, error: str | None = None) -> None:
        """Write the heartbeat."""
        current = self.state
        self.control.report(
            Progress(
                state=state,
                committed=current.next_batch,
                epoch=current.epoch,
                epoch_starts={str(e): b for e, b in current.epoch_starts},
                ruleset_epoch=current.ruleset_epoch,
                streams=stream_counts(current),
                results={q: a.results for q, a in current.queries.items()},
                probes=current.probes,
                state_bytes=current.bytes,
                batch_seconds=self._last_seconds,
                processing_seconds=current.processing_seconds,
                exhausted=self.exhausted,
                error=error,
            ),
            current.queries,
        )

    @property
    def exhausted(self) -> bool:
        """Whether all recorded streams have been read to their end."""
        return self.total_batches is not None and self.state.next_batch >= self.total_batches

    def finish(self) -> None:
        """After a replay: an empty result file for each query that was active and found nothing."""
        if self.settings.mode is not Mode.STEP:
            return
        for epoch in sorted({e for e, _ in self.state.epoch_starts}):
            published = self.control.newest_epoch(epoch)
            if published is None:
                continue
            for query in self.control.ruleset(published).queries:
                if query.sink == "parquet":
                    write_empty(self.settings.results, query)

    # --- one batch -----------------------------------------------------------------------------

    def run(self, batch: int, job: Job) -> None:
        """Apply batch ``batch`` by ``job``, exactly once however often it is asked for.

        Raises:
            StateError: the batch is not the next one: checkpoint and state do not belong together.
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
        access = accesses(state, ruleset)
        if fresh:
            state = drop_unused(state, ruleset, access)
        context = self._context(state, ruleset, access)
        entered = time.perf_counter()
        context, reports = self._attempt(context, job)
        done = time.perf_counter()
        staged = [
            (query, task, Path(file))
            for task, report in enumerate(reports)
            for query, file in report.files.items()
        ]
        publish(self.settings.results, batch, staged)
        before = state
        state = fold(state, context, reports, time.perf_counter() - started)
        state = expire(state, ruleset)
        self.manifests.commit(state)
        self._forget_segments(before, state)
        self.state = state
        self._last_seconds = time.perf_counter() - started
        clear_staging(self.settings.results)
        if self._is_full():
            self._end_epoch()
        self.report("running")
        _LOG.info(
            "batch committed",
            batch=batch,
            epoch=state.epoch,
            tuples=sum(m["input"] for r in reports for m in r.streams.values()),
            results=sum(sum(r.results.values()) for r in reports),
            task_ms={
                phase: round(1e3 * max(r.phases.get(phase, 0.0) for r in reports))
                for phase in ("read", "store", "wait", "probe", "write")
            },
            enter_ms=round(1e3 * (entered - started)),
            job_ms=round(1e3 * (done - entered)),
            commit_ms=round(1e3 * (time.perf_counter() - done)),
        )

    def _attempt(self, context: BatchContext, job: Job) -> tuple[BatchContext, list[TaskReport]]:
        """Run the batch's job, again under a new name where an attempt fails."""
        for left in reversed(range(self.settings.attempts)):
            attempt = uuid.uuid4().hex[:12]
            staging = str(self.settings.results / STAGING / attempt)
            context = replace(context, attempt=attempt, staging=staging)
            try:
                return context, job(context)
            except Exception as error:
                if not left or self.control.stop_requested():
                    raise
                _LOG.warning("batch attempt failed", batch=context.batch, error=str(error)[:2000])
            finally:
                shutil.rmtree(exchange_directory(context), ignore_errors=True)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _enter(self, batch: int) -> tuple[State, Ruleset, bool]:
        """The state in which the batch starts, its ruleset, and whether an epoch begins."""
        choice = self._recorded_choice(batch)
        if choice is None:
            running = self._epoch == self.state.epoch
            published = self.state.ruleset_epoch if running else self._published(self._epoch)
            choice = (self._epoch, published)
            self._record_choice(batch, choice)
        epoch, published = choice
        self._epoch = epoch
        ruleset = self.control.ruleset(published)
        if epoch == self.state.epoch:
            return self.state, ruleset, False
        return self._entered(ruleset, epoch), ruleset, True

    def _entered(self, ruleset: Ruleset, epoch: int) -> State:
        """The state in which ``epoch`` begins to go by ``ruleset``."""
        return enter_epoch(replace(self.state, steps=self._steps()), ruleset, epoch)

    def _steps(self) -> tuple[JoinSample, ...]:
        """What has been seen of steps, the current epoch's edges included.

        Without the epoch's ruleset (a Redis that has lost it) nothing can be said of its edges.
        """
        if self.state.ruleset_epoch < 0:
            return ()
        try:
            ruleset = self.control.ruleset(self.state.ruleset_epoch)
        except PipelineError as error:
            _LOG.warning("edges of the last epoch not evaluated", error=str(error))
            return self.state.steps
        return steps_seen(self.state, ruleset)

    def _published(self, epoch: int) -> int:
        """The published ruleset that ``epoch`` goes by: its own, or (live) the newest older."""
        if self.settings.mode is Mode.STEP or self.state.ruleset_epoch < 0:
            wanted = epoch if self.settings.mode is Mode.STEP else 0
            self.control.wait_for_epoch(wanted, self.settings.patience)
        newest = self.control.newest_epoch(epoch)
        return self.state.ruleset_epoch if newest is None else newest

    def _record_choice(self, batch: int, choice: tuple[int, int]) -> None:
        """Make the batch's (epoch, ruleset) durable, so that a repeat goes by the same."""
        path = self.settings.state / "choice.json"
        partial = path.with_suffix(".partial")
        with partial.open("w") as file:
            json.dump({"batch": batch, "epoch": choice[0], "ruleset": choice[1]}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)

    def _recorded_choice(self, batch: int) -> tuple[int, int] | None:
        path = self.settings.state / "choice.json"
        if not path.exists():
            return None
        choice = json.loads(path.read_text())
        return (choice["epoch"], choice["ruleset"]) if choice["batch"] == batch else None

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
            segments={name: s.segments for name, s in state.stores.items() if s.segments},
            access=access,
            visible={q.id: _limits(state.queries[q.id], q.members) for q in ruleset.queries},
            activated={q.id: state.queries[q.id].activated_batch for q in ruleset.queries},
            stores={name: _layout(name, store) for name, store in state.stores.items()},
            merges=merges(state, ruleset),
        )

    # --- after a batch -------------------------------------------------------------------------

    def _is_full(self) -> bool:
        """Whether the epoch of the last batch has had all its batches."""
        every = self.settings.epoch_batches
        if self.settings.mode is Mode.STEP:
            return self.state.next_batch > 0 and self.state.next_batch % every == 0
        return self.state.next_batch - self.state.epoch_starts[-1][1] >= every

    def _end_epoch(self) -> None:
        """Report the end of the current epoch with its statistics, and begin the next."""
        statistics = replace(snapshot(self.state, self._steps()), epoch=self._epoch).to_json()
        self.control.report_boundary(Boundary(self._epoch, self.state.next_batch, statistics))
        self._begin(self._epoch + 1)

    def _begin(self, epoch: int) -> None:
        self._epoch, self._since = epoch, time.monotonic()

    def _forget_segments(self, before: State, after: State) -> None:
        """Delete packs that the new manifest no longer names."""
        for path in (_packs(before) | _packs(self.state)) - _packs(after):
            (self.settings.state / path).unlink(missing_ok=True)

    def _collect_garbage(self) -> None:
        """Delete what an interrupted batch has left: packs that the manifest does not name, and
        messages between tasks.
        """
        shutil.rmtree(self.settings.state / "exchange", ignore_errors=True)
        alive = _packs(self.state)
        directory = self.settings.state / "segments"
        if directory.exists():
            for file in directory.iterdir():
                if f"segments/{file.name}" not in alive:
                    file.unlink()


def _packs(state: State) -> set[str]:
    return {segment.path for store in state.stores.values() for segment in store.segments}


def _limits(
    activation: Activation, members: tuple[tuple[str, str, str], ...]
) -> dict[str, tuple[int, int | None]]:
    """Label -> what its visibility begins with, for labels that do not see everything."""
    limits = {}
    for alias, label, _ in members:
        seen = activation.visible_from[alias]
        if seen.batch > 0 or seen.event_time is not None:
            limits[label] = (seen.batch, seen.event_time)
    return limits


def _layout(name: str, store: StoreState) -> StoreLayout:
    spec = store_from_json(store.spec)
    return StoreLayout(
        name, spec.members, spec.partition, spec.partitions, store.is_base, store.filter
    )
