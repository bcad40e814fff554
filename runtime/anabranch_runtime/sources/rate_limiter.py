"""The driver's end of back-pressure: limits the rows of the next batch.

The sources plan in a process of their own, so the limit and their progress go through the control
plane's Redis.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch_contract.protocol.intake import StreamIntake
from anabranch_runtime.control import Control
from anabranch_runtime.sources.back_pressure import BackPressure, observe
from anabranch_runtime.state.unread import FeedState


@dataclass(slots=True)
class RateLimiter:
    """Holds batches to ``target`` seconds (None: any number), and to their share of memory where
    there is a limit (``frugal``); without either it lets everything through.
    """

    control: Control
    target: float | None
    frugal: bool = False
    #: Seconds that the last batch took, from its planning to its commit.
    seconds: float = 0.0
    #: Progress of the input when it was done.
    standing: dict[str, StreamIntake] = field(default_factory=dict)
    #: Age in seconds of the oldest row, per stream of the last batch, when that was done.
    ages: tuple[float, ...] = ()
    _pressure: BackPressure = field(default_factory=BackPressure)
    #: Unix time at which the last batch was done; one that was planned before is not timed.
    _done: float = field(default_factory=time.time)

    def open(self) -> None:
        """Before the first batch: take over the limit that an earlier run found, if any."""
        if self._holds:
            known = self.control.limit()
            if known is not None:
                self._pressure = BackPressure(limit=known, full=known)
        self.control.set_limit(self.limit)

    @property
    def limit(self) -> int | None:
        """Rows that the next batch may bring; None: any number."""
        return self._pressure.limit if self._holds else None

    @property
    def _holds(self) -> bool:
        return self.target is not None or self.frugal

    def done(self, rows: int, seconds: float, full: float, allowed: float | None = None) -> None:
        """A batch of ``rows`` rows is committed, ``seconds`` of its time spent in the driver.

        Args:
            full: the part of its share of memory that its fullest task took; 0: no limit.
            allowed: seconds that a batch may take where a latency is promised: the fixed cost
                counts for less, the longer batches are.
        """
        now, intake = time.time(), self.control.intake()
        self.ages = ()
        if intake.planned > self._done:
            # From its planning: what Spark does around the driver's part takes time as well.
            seconds = max(now - intake.planned, seconds)
            # The batch begins with the rows that had waited longest at its planning.
            waited = [s.seconds for s in intake.streams.values() if s.waiting]
            self.ages = tuple(age + now - intake.planned for age in waited)
        self._done, self.seconds, self.standing = now, seconds, intake.streams
        if not self._holds:
            return
        self._pressure = observe(self._pressure, rows, seconds, self._target(allowed), full)
        self.control.set_limit(self.limit)

    def _target(self, allowed: float | None) -> float | None:
        return self.target if self.target is None or allowed is None else max(self.target, allowed)

    def intake(
        self, left_out: Mapping[str, str], feeds: Iterable[FeedState] = ()
    ) -> dict[str, StreamIntake]:
        """Stream -> progress of its input.

        Args:
            left_out: streams whose source can't be opened.
            feeds: states of the feeds that are read.
        """
        found = dict(self.control.intake().streams)
        for feed in feeds:
            known = found.get(feed.stream, StreamIntake())
            held = None if feed.held is None else feed.held.error
            found[feed.stream] = replace(
                known, lost=feed.unread.lost, unread=feed.unread, error=known.error or held
            )
        for stream, error in left_out.items():
            found[stream] = replace(found.get(stream, StreamIntake()), error=error)
        return found
