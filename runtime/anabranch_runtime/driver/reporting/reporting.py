"""Reports of a driver: progress, statistics, stores, batches; new results for views and tails."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from pathlib import Path

from anabranch_contract import codec
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.plans.steps import CountedStep
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.batches import BatchReport
from anabranch_contract.protocol.measurements import Writes
from anabranch_contract.protocol.progress import Boundary, Mode, Progress, Resources, Telemetry
from anabranch_runtime.control import Control
from anabranch_runtime.driver.fold_reports import (
    snapshot,
    steps_seen,
    stream_counts,
    without_batches,
)
from anabranch_runtime.driver.reporting.batch_report import Times, batch_report, counted, log_batch
from anabranch_runtime.driver.reporting.cpu_reporter import CpuReporter
from anabranch_runtime.driver.reporting.interim_reporter import EARLY, InterimReporter, Written
from anabranch_runtime.driver.reporting.progress import ProgressReporter, ViewOutput
from anabranch_runtime.driver.reporting.state_publisher import StatePublisher
from anabranch_runtime.driver.revisions import Revisions
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.driver.tables import MaintainedTables
from anabranch_runtime.epochs import backfill
from anabranch_runtime.epochs.failed_queries import failed
from anabranch_runtime.epochs.retention import watermarks
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.measure.join_samples import Steps
from anabranch_runtime.measure.statistics import LatestTuples, Samples
from anabranch_runtime.rations.rationer import Rationer
from anabranch_runtime.recovery.durability import Durability
from anabranch_runtime.sinks.completeness import CompletenessFiles
from anabranch_runtime.sinks.gathered import StagedRows
from anabranch_runtime.sinks.publisher import Publisher
from anabranch_runtime.sinks.tail import Tails
from anabranch_runtime.state.derived import Derived
from anabranch_runtime.state.manifest import State, StoreState

#: Least seconds between two reports of the progress that are made after batches.
PAUSE = 0.1
#: Number of seconds between two publications of latest rows; one second more for every 20 streams.
LATEST_SECONDS = 1.0


@dataclass(eq=False)
class Reporting:
    """Reports of one run of a driver.

    Attributes:
        total_batches: total number of batches, if it is known.
        tables: tables that post-join parts maintain.
        tails: passes new results to clients that follow queries.
        samples: samples of streams. ``latest``: their latest rows. ``interims``: interim
            measurements. ``stores``: store contents.
        cpu: CPU time by use.
        merge_bytes: bytes of segments due to be merged.
    """

    settings: DriverSettings
    control: Control
    durability: Durability
    publisher: Publisher
    progress: ProgressReporter
    revisions: Revisions
    rationer: Rationer
    tables: MaintainedTables
    state: InitVar[State]
    total_batches: int | None

    def __post_init__(self, state: State) -> None:
        settings, control = self.settings, self.control
        undelivered = self.publisher.undelivered
        self.tails = Tails(control.url, control.keys, settings.results, undelivered)
        self.samples = Samples()
        self.latest = LatestTuples()
        self.stores = StatePublisher(settings.state, control)
        self.cpu = CpuReporter(control)
        self.tables.beside = self.cpu.of_tables
        self.merge_bytes = 0
        self._completeness = CompletenessFiles(settings.results)
        self._names = Steps()
        # In a replay with revisions, periods end when a revision is requested.
        seconds = math.inf if settings.revise_batches else settings.interim_seconds
        # In a replay without revisions, no decision needs early reports of drifts.
        late = math.inf if settings.revise_batches else None
        early = EARLY if settings.mode is Mode.LIVE else late
        self.interims = InterimReporter(control, state, self._names, seconds, early)
        self._telemetry = Telemetry()
        self._latest_due = 0.0
        self._resources = Resources(memory_limit=settings.memory.workers)
        #: Batch reports not yet sent with a progress report; ruleset, failed queries and time of
        #: the last progress report.
        self._batches: list[BatchReport] = []
        self._reported = (state.ruleset, failed(state)), float("-inf")
        #: Last reported problems of queries, output of views, and views that lag behind.
        self._last: tuple[dict[str, str], ViewOutput, frozenset[str]]
        self._last = {}, ViewOutput(), frozenset()
        #: View -> number of batches that its files included at an earlier run's last report. These
        #: files stay in place while this run repeats the versions since the last checkpoint.
        self._included = control.included()
        self._bytes = Derived[StoreState, int](lambda _, store: store.bytes)
        self._results = Derived[Activation, int](lambda _, query: query.results)

    def begin(self, state: State) -> None:
        """Start the reports of the driver's run."""
        self._completeness.begin(state.queries, state.next_batch - 1)

    def exhausted(self, state: State) -> bool:
        """Whether all recordings have been read to their end."""
        return self.total_batches is not None and state.next_batch >= self.total_batches

    def steps(self, state: State) -> Mapping[str, CountedStep]:
        """Edge -> step of the state's ruleset; empty if the ruleset is not found."""
        ruleset = self.durability.rules(state)
        return {} if ruleset is None else self._names.of(ruleset)

    # --- between batches -----------------------------------------------------------------------

    def tick(self, state: State) -> None:
        """Between batches: begin requested tails, deliver waiting results, report changes."""
        self.cpu.lap("watch")
        self.cpu.report()
        self.tails.open(state.next_batch, self._totals(state), self._written())
        self.publisher.retry()
        if self._batches or (self._problems(), self._shown(state), self._behind()) != self._last:
            self.report("running", state)
        self.show_stores(state)
        self._show_latest(state)
        # After the batch, since only then views decide unmatched left rows.
        self._show_completeness(state)

    def progress_made(self, state: State) -> None:
        """Report the progress after a batch. In live mode, only :data:`PAUSE` seconds after the
        last report (:meth:`tick` makes up for it), or if queries may have begun or failed."""
        known, begun = self._reported
        due = self.settings.mode is Mode.STEP or time.monotonic() >= begun + PAUSE
        if due or known != (state.ruleset, failed(state)):
            self.report("running", state)

    def report(self, phase: str, state: State, error: str | None = None) -> None:
        """Report the progress of the pipeline in ``phase``, and the batches since the last call."""
        self._reported = (state.ruleset, failed(state)), time.monotonic()
        batches, self._batches = self._batches, []
        problems, shown, _ = self._last = self._problems(), self._shown(state), self._behind()
        rationing, owed = self.rationer.rationing, len(state.debt.numbers)
        self.control.report(
            Progress(
                state=phase,
                run=self.control.run,
                error=error,
                committed=state.next_batch,
                epoch=state.epoch,
                epoch_starts={str(e): b for e, b in state.epoch_starts},
                ruleset_epoch=state.ruleset.epoch,
                revision=state.ruleset.revision,
                revisions=self.revisions.counts,
                streams=stream_counts(state),
                input=self.progress.input(state, exhausted=self.exhausted(state)),
                results=self._results.of(state.queries),
                shown=shown.rows,
                sinks=problems,
                results_home=str(self.settings.results.absolute()),
                probes=state.measured.probes,
                resources=replace(
                    self._resources,
                    state_bytes=sum(self._bytes.of(state.stores).values()),
                    processing_seconds=state.measured.processing_seconds,
                ),
                backfill=backfill.progress(state),
                rationing=replace(rationing, owed=owed, left_rows=shown.left),
                telemetry=replace(
                    self._telemetry,
                    watermarks=watermarks(state),
                    parked=self.publisher.parked(),
                    view_lag=self._lag(state),
                    merge_bytes=self.merge_bytes,
                ),
            ),
            state.queries,
            batches,
        )

    def intake(self, state: State) -> None:
        """Report sources that have become unreadable or readable, if there are any."""
        if self.progress.intake_changed(state):
            self.report("idle" if self.exhausted(state) else "running", state)

    def show_stores(self, state: State) -> None:
        """Report the contents of stores to the service, if a report is due."""
        rules, last = self.durability.rules, self.exhausted(state)
        costs = self.tables.costs()
        self.stores.show(state, lambda: rules(state), at_once=last, costs=costs)

    def end_epoch(self, state: State, epoch: int) -> None:
        """Report the end of ``epoch`` with its statistics.

        The failed queries are written first, since the service needs them to plan the next epoch.
        """
        if failed(state):
            self.report("running", state)
        found = replace(snapshot(state, steps_seen(state, self.steps(state))), epoch=epoch)
        if epoch != state.epoch:
            found = without_batches(found)
        changed = self.samples.changed()
        self.control.report_samples({name: s.dumps() for name, s in changed.items()})
        self._show_latest(state, at_once=True)
        boundary = Boundary(epoch, state.next_batch, codec.dumps(found))
        reach(Point.BOUNDARY)
        self.control.report_boundary(boundary)

    def close(self, state: State) -> None:
        """End the reports of the driver's run, after the last batch."""
        self.tails.close()
        self._show_completeness(state, at_once=True)

    # --- after a commit ------------------------------------------------------------------------

    def measured(self, ruleset: Ruleset, reports: Sequence[TaskReport], merges: Writes) -> None:
        """Add the measurements of a batch and of merges; call before :meth:`committed`."""
        self.progress.note_sites(report.host.site for report in reports)
        tasks = [report.measured for report in reports]
        self.samples.add(tasks)
        self.latest.add(tasks)
        made = (Written(task.inserts, task.emitted) for task in tasks)
        self.interims.wrote([Written(merges=merges), *made])
        self.cpu.batch(ruleset, (task.cpu for task in tasks))

    def committed(self, state: State, ruleset: Ruleset) -> None:
        """Report measurements of the state that a batch under ``ruleset`` has committed."""
        self.progress.direct(state)
        self.tables.committed(state, ruleset)
        self.interims.committed(state, ruleset)

    def results(
        self,
        state: State,
        located: dict[str, tuple[Path | StagedRows, ...]],
        seconds: float,
        memory: int,
    ) -> None:
        """Pass a batch's result files to tails and sinks; ``memory``: all tasks' private bytes."""
        resources = self._resources
        self._resources = replace(resources, batch_seconds=seconds, private_bytes=memory)
        self.tails.feed(state.next_batch - 1, located, self._totals(state), self._written())
        self._show_completeness(state)

    def batch(
        self, state: State, reports: Sequence[TaskReport], times: Times, ages: Mapping[str, float]
    ) -> None:
        """Log the batch that ended in ``state``, and include it in the next progress report;
        ``ages``: stream -> age of its oldest row in seconds."""
        times = times._replace(committed=time.perf_counter())
        spent, phases = times.committed - times.started, times.phases(reports)
        self._telemetry = counted(self._telemetry, time.time(), spent, phases, ages)
        report = batch_report(state, reports, times)
        log_batch(report, reports)
        self._batches.append(report)

    def _show_latest(self, state: State, *, at_once: bool = False) -> None:
        """Publish the latest rows of streams. Unless ``at_once``, pause between publications, the
        longer the more streams, since each stream takes 0.4 ms."""
        if at_once or time.monotonic() >= self._latest_due:
            latest, gone = self.latest.changed(state.streams)
            if latest or gone:
                self.control.report_latest({n: one.dumps() for n, one in latest.items()}, gone)
                self._latest_due = time.monotonic() + LATEST_SECONDS * (1 + len(latest) / 20)

    def _show_completeness(self, state: State, *, at_once: bool = False) -> None:
        left = self._shown(state).left
        self._completeness.show(state.queries, state.next_batch - 1, left, at_once=at_once)

    def _totals(self, state: State) -> dict[str, int]:
        """Return query -> number of results so far, without queries in :meth:`_written`."""
        results, versions = self._results.of(state.queries), self._written()
        return {q: n for q, n in results.items() if q not in versions} if versions else results

    def _written(self) -> dict[str, tuple[int, int]]:
        """Return view or outer join -> its last written version, and rows written so far."""
        return self.tables.written()

    def _problems(self) -> dict[str, str]:
        """Return query -> error that prevents the delivery of its results."""
        return {**self.publisher.problems(), **self.tables.problems()}

    def _lag(self, state: State) -> dict[str, int]:
        """Return view -> number of committed batches that its files do not include yet."""
        found = self.tables.lag()
        known = ((name, self._included.get(name, 0)) for name in found)
        self._included = {n: max(state.next_batch - found[n], known) for n, known in known}
        return {n: max(state.next_batch - known, 0) for n, known in self._included.items()}

    def _behind(self) -> frozenset[str]:
        """Return the views whose files do not include all committed batches yet."""
        return frozenset(name for name, batches in self.tables.lag().items() if batches)

    def _shown(self, state: State) -> ViewOutput:
        rows = dict.fromkeys(state.tables.held, 0)
        rows |= {name: one.shown for name, one in self.tables.counts().items()}
        return ViewOutput(rows, self.tables.left_rows())
