"""The pipeline's progress as the control plane and the sources hear of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import LeftRows
from anabranch_contract.protocol.progress import Progress, Telemetry
from anabranch_runtime.control import Control
from anabranch_runtime.driver.fold_reports import stream_counts
from anabranch_runtime.driver.revisions import Revisions
from anabranch_runtime.epochs.access import latest_since
from anabranch_runtime.epochs.backfill import progress
from anabranch_runtime.epochs.table_versions import table_progress
from anabranch_runtime.rations.rationer import Rationer
from anabranch_runtime.sources.awaited import planned_marks
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.rate_limiter import RateLimiter
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.slices import Backfill
from anabranch_runtime.state.unread import FeedState
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.views.counts import all_left, all_shown

_LOG = structlog.get_logger("anabranch.runtime")


@dataclass(frozen=True, slots=True)
class ViewOutput:
    """Output of views and outer joins.

    Attributes:
        rows: view or outer join -> rows that it has, or has emitted.
        left: outer join -> its left rows whose deadlines have passed.
    """

    rows: dict[str, int] = field(default_factory=dict)
    left: dict[str, LeftRows] = field(default_factory=dict)


def shown_on_disk(results: Path, rules: Ruleset | None) -> ViewOutput:
    """The counts that an earlier run has left in the ``results`` directory.

    A view without a count has no rows so far, for any number of joined rows, so all views of
    ``rules`` are in the answer.
    """
    queries = () if rules is None else rules.queries
    none = {str(q.id): 0 for q in queries if q.has_post_join and q.left_of is None}
    return ViewOutput(none | all_shown(results), all_left(results))


@dataclass(slots=True)
class ProgressReporter:
    """Reports progress, and held feeds, where either has changed.

    Attributes:
        results_home: the results directory.
        sources: sources that are read; None: the job itself makes the input of a batch.
        left_out: stream -> why its source is not read, where the sources don't report it
            themselves.
        batch_seconds: duration of the last batch. ``private``: private memory of its tasks.
        problems: query -> why its results are not in their place, as reported last.
        shown: output of views, as reported last.
        telemetry: figures for monitoring.
        sites: of the executors of the last batch.
    """

    control: Control
    rate_limiter: RateLimiter
    revisions: Revisions
    rationer: Rationer
    memory_limit: int | None
    results_home: str = ""
    sources: Sources | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    batch_seconds: float = 0.0
    private: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    shown: ViewOutput = field(default_factory=ViewOutput)
    telemetry: Telemetry = field(default_factory=Telemetry)
    sites: tuple[str, ...] = ()
    #: The sources that were looked at for streams whose sites have no executors.
    _warned: Sources | None = None
    #: The feeds that were last reported as held; None: an earlier run may have reported some.
    _held: dict[str, tuple[int, Any]] | None = None
    #: Store -> its segments and backfill in the last report, and their bytes.
    _stored: dict[str, tuple[tuple[Segment, ...], Backfill | None, int]] = field(
        default_factory=dict
    )
    #: Number of owed batches last reported; -1: an earlier run may have reported some.
    _owed: int | None = -1
    _retained: dict[str, str] | None = None

    def report(
        self,
        phase: str,
        state: State,
        problems: dict[str, str],
        shown: ViewOutput,
        *,
        exhausted: bool,
        error: str | None = None,
    ) -> None:
        """Write the progress of a pipeline that is in ``phase`` and has committed ``state``."""
        self.problems, self.shown = problems, shown
        self.control.report(
            Progress(
                state=phase,
                committed=state.next_batch,
                epoch=state.epoch,
                epoch_starts={str(e): b for e, b in state.epoch_starts},
                ruleset_epoch=state.ruleset_epoch,
                revision=state.revision,
                revisions=self.revisions.counts,
                refused_revision=self.revisions.refused,
                streams=stream_counts(state),
                latest_since=latest_since(state),
                tables=table_progress(state),
                results={q: a.results for q, a in state.queries.items()},
                shown=shown.rows,
                probes=state.probes,
                state_bytes=self._bytes(state),
                batch_seconds=self.batch_seconds,
                processing_seconds=state.processing_seconds,
                exhausted=exhausted,
                error=error,
                sinks=problems,
                intake=self.rate_limiter.report(self.left_out, self._feeds(state.feeds)),
                row_limit=self.rate_limiter.limit,
                private_bytes=self.private,
                memory_limit=self.memory_limit,
                backfill=progress(state),
                rationing=replace(
                    self.rationer.rationing,
                    owed=len(state.debt.numbers),
                    left_rows=shown.left,
                ),
                telemetry=self.telemetry,
                run=self.control.run,
                results_home=self.results_home,
                sites=self.sites,
            ),
            state.queries,
        )

    def note_sites(self, sites: Iterable[str]) -> None:
        """Record the ``sites`` of a batch's executors, and warn of streams without one."""
        found = tuple(sorted({site for site in sites if site}))
        if not found or self.sources is None:
            return
        if found == self.sites and self.sources is self._warned:
            return
        self.sites, self._warned = found, self.sources
        for record in self.sources.records:
            if record.site and record.site not in found:
                _LOG.warning(
                    "no executor is at the site of a stream, so any read it",
                    stream=record.name,
                    site=record.site,
                    sites=found,
                )

    def _bytes(self, state: State) -> int:
        """``state.bytes``; of stores that are as they were in the last report it is known."""
        known, self._stored = self._stored, {}
        for name, store in state.stores.items():
            found = known.get(name)
            # With other segments or another backfill it is another value.
            if found is None or found[0] is not store.segments or found[1] is not store.backfill:
                found = (store.segments, store.backfill, store.bytes)
            self._stored[name] = found
        return sum(size for _, _, size in self._stored.values())

    def intake_changed(self, state: State) -> bool:
        """Whether a source can't be read any more, or can again, since the last report."""
        now = self.rate_limiter.intake(self.left_out, self._feeds(state.feeds))
        return now != self.rate_limiter.reported

    def held(self, state: State) -> dict[str, str]:
        """Stream -> why no more of it is read for now."""
        feeds = self._feeds(state.feeds)
        return {feed.stream: feed.held.error for feed in feeds if feed.held is not None}

    def report_held(self, state: State) -> None:
        """Report to the sources which feeds are held, which streams are retained, and whether
        anything is owed, before they plan the next batch.
        """
        marks = planned_marks(s.spec for s in state.streams.values() if s.spec is not None)
        if marks != self._retained:
            self.control.set_retained(marks)
            self._retained = marks
        feeds = state.feeds.items()
        held = {name: (f.held.trials, f.held.start) for name, f in feeds if f.held is not None}
        if held != self._held:
            self.control.set_held(held)
            self._held = held
        owed = state.next_batch if state.debt.batches else None
        if owed != self._owed:
            self.control.set_owed(owed)
            self._owed = owed

    def _feeds(self, feeds: Mapping[str, FeedState]) -> list[FeedState]:
        """The registered feeds of ``feeds``."""
        gone = frozenset() if self.sources is None else self.sources.gone(feeds)
        return [feed for name, feed in feeds.items() if name not in gone]
