"""The driver's side of back-pressure: limits the rows of the next batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch_contract.protocol.intake import StreamIntake
from anabranch_runtime.control import Control
from anabranch_runtime.sources.pacing.back_pressure import BackPressure, observe
from anabranch_runtime.sources.pacing.snapshot_pace import SnapshotPace, observed
from anabranch_runtime.sources.planned import InputControl
from anabranch_runtime.state.unread import FeedState


@dataclass(slots=True)
class RateLimiter:
    """Limits the rows of batches: so that they take ``target`` seconds (None: any time) and, if
    ``frugal``, fit into their share of memory."""

    control: Control
    target: float | None
    frugal: bool = False
    input: InputControl = field(default_factory=InputControl)
    #: Seconds of the last batch from its planning to its commit.
    seconds: float = 0.0
    #: Stream -> progress of its input when the last batch was committed.
    standing: dict[str, StreamIntake] = field(default_factory=dict)
    #: Stream of the last batch -> age in seconds of its oldest row at the commit.
    ages: dict[str, float] = field(default_factory=dict)
    _pressure: BackPressure = field(default_factory=BackPressure)
    _pace: SnapshotPace = field(default_factory=SnapshotPace)
    #: Unix time of the last commit; a batch planned before it is not timed.
    _done: float = field(default_factory=time.time)

    def open(self) -> None:
        """Continue with the row limit of an earlier run, if any; called before the first batch."""
        if self._holds:
            known = self.control.limit()
            if known is not None:
                self._pressure = BackPressure(limit=known, full=known)
        self._set_limit()
        self._set_pace()

    @property
    def limit(self) -> int | None:
        """Maximum number of input rows of the next batch; None if there is no limit."""
        return self._pressure.limit if self._holds else None

    @property
    def _holds(self) -> bool:
        return self.target is not None or self.frugal

    def done(self, rows: int, seconds: float, full: float, allowed: float | None = None) -> None:
        """Set the next limit after the commit of a batch of ``rows`` rows.

        Args:
            seconds: duration of the batch in the driver.
            full: the fullest task's fraction of its memory share; 0: no limit.
            allowed: seconds that a batch may take by the promised latency (None: none); raises the
                target, as longer batches spend a smaller part of their time on fixed cost.
        """
        now, planned, streams = time.time(), self.input.planned, self.input.streams
        self.ages = {}
        if planned > self._done:
            # The duration is counted from the batch's planning.
            seconds = max(now - planned, seconds)
            # The batch has the rows that had waited longest when it was planned.
            waited = {name: s.seconds for name, s in streams.items() if s.waiting}
            self.ages = {name: age + now - planned for name, age in waited.items()}
            if rows:
                self._pace = observed(self._pace, min(self.input.paced, rows), seconds)
                self._set_pace()
        self._done, self.seconds, self.standing = now, seconds, dict(streams)
        if not self._holds:
            return
        self._pressure = observe(self._pressure, rows, seconds, self._target(allowed), full)
        if self.limit != self.input.limit:
            self._set_limit()

    def _set_limit(self) -> None:
        self.input.limit = self.limit
        # After a restart, the pipeline continues with this limit.
        self.control.set_limit(self.limit)

    def _set_pace(self) -> None:
        self.input.pace = None if self.target is None else self._pace.limit

    def _target(self, allowed: float | None) -> float | None:
        return self.target if self.target is None or allowed is None else max(self.target, allowed)

    def intake(
        self, left_out: Mapping[str, str], feeds: Iterable[FeedState] = ()
    ) -> dict[str, StreamIntake]:
        """Return the progress of each stream's input.

        Args:
            left_out: stream whose source can't be opened -> reason.
            feeds: states of the feeds that are read.
        """
        found = dict(self.input.streams)
        for feed in feeds:
            known = found.get(feed.stream, StreamIntake())
            held = None if feed.held is None else feed.held.error
            found[feed.stream] = replace(
                known, lost=feed.unread.lost, unread=feed.unread, error=known.error or held
            )
        for stream, error in left_out.items():
            found[stream] = replace(found.get(stream, StreamIntake()), error=error)
        return found
