"""Progress of the input, and of the output of views, as reported to the service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from anabranch_contract.protocol.activations import LeftRows
from anabranch_contract.protocol.intake import InputProgress, StreamIntake
from anabranch_runtime.control import Control
from anabranch_runtime.epochs.access import latest_since
from anabranch_runtime.epochs.table_versions import table_progress
from anabranch_runtime.sources.awaited import planned_marks
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.pacing.rate_limiter import RateLimiter
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.unread import FeedState

_LOG = structlog.get_logger("anabranch.runtime")


@dataclass(frozen=True, slots=True)
class ViewOutput:
    """Numbers of rows of views and outer joins, for the report of progress.

    Attributes:
        rows: view -> number of its rows; outer join -> number of its emitted rows.
        left: outer join -> its left rows whose deadlines have passed.
    """

    rows: dict[str, int] = field(default_factory=dict)
    left: dict[str, LeftRows] = field(default_factory=dict)


@dataclass(slots=True)
class ProgressReporter:
    """Reports the progress of the input to the service, and passes the committed state to sources.

    Attributes:
        sources: sources that are read; None: the job itself produces the input of a batch.
        left_out: stream -> error of its source, for errors that the sources don't report.
        sites: sites where executors of the last batch were.
    """

    control: Control
    rate_limiter: RateLimiter
    sources: Sources | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    sites: tuple[str, ...] = ()
    _reported: dict[str, StreamIntake] = field(default_factory=dict)
    #: The sources for which sites without executors have already been checked.
    _warned: Sources | None = None

    def input(self, state: State, *, exhausted: bool) -> InputProgress:
        """Progress of the input as of ``state``; ``exhausted``: all recorded streams are read."""
        self._reported = self.rate_limiter.intake(self.left_out, self._feeds(state.feeds))
        return InputProgress(
            self._reported,
            self.rate_limiter.limit,
            exhausted,
            self.sites,
            latest_since(state),
            table_progress(state),
        )

    def note_sites(self, sites: Iterable[str]) -> None:
        """Record the sites of a batch's executors; warn of streams at sites without executors."""
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

    def intake_changed(self, state: State) -> bool:
        """Whether a source has become unreadable or readable since the last report."""
        return self.rate_limiter.intake(self.left_out, self._feeds(state.feeds)) != self._reported

    def held(self, state: State) -> dict[str, str]:
        """Return stream -> reason why batches do not read its feed at present."""
        feeds = self._feeds(state.feeds)
        return {feed.stream: feed.held.error for feed in feeds if feed.held is not None}

    def direct(self, state: State) -> None:
        """Before the sources plan the next batch, pass on to them the feeds that are held back, the
        streams' definitions, and the next batch's number if results are owed."""
        known, feeds = self.rate_limiter.input, state.feeds.items()
        specs = (stream.spec for stream in state.streams.values())
        known.definitions = planned_marks(spec for spec in specs if spec is not None)
        known.held = {n: (f.held.trials, f.held.start) for n, f in feeds if f.held is not None}
        known.owed = state.next_batch if state.debt.batches else None

    def _feeds(self, feeds: Mapping[str, FeedState]) -> list[FeedState]:
        """Return the feeds whose streams are registered."""
        gone = frozenset() if self.sources is None else self.sources.gone(feeds)
        return [feed for name, feed in feeds.items() if name not in gone]
