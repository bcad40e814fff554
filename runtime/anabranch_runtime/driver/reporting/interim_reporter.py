"""Interim measurements, reported between batches every few seconds, or sooner after a drift."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch_contract.codec import fields
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.plans.steps import CountedStep
from anabranch_contract.protocol.counts import Summed
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import Writes
from anabranch_runtime.control import Control
from anabranch_runtime.measure.drift import Edges, Watch, begun_anew, drifts, watch
from anabranch_runtime.measure.interims import Period, begin, close, leave_ruleset
from anabranch_runtime.measure.join_samples import Steps
from anabranch_runtime.state.manifest import State

#: Minimum seconds between a report and an early report after it. With many queries, the service
#: needs up to seconds of CPU to decide on a report, and a period should have a few batches.
EARLY = 1.0
#: Number of recent commits that are kept, so that a period can be ended at one of them.
KEPT = 16


@dataclass(frozen=True, slots=True)
class Written(Summed):
    """Rows written: into stores, as results, and by merges."""

    inserts: Writes = field(default_factory=Writes)
    results: Writes = field(default_factory=Writes)
    merges: Writes = field(default_factory=Writes)


@dataclass(frozen=True, slots=True)
class _Commit:
    """A committed state, its time, and its period.

    Attributes:
        now: time on a monotonic clock, seconds. ``until``: the same time in seconds since 1970.
        steps: edge -> its step in the ruleset of ``state``.
        fresh, written: rows written in its batch, and in all batches since the period began.
    """

    now: float
    until: float
    state: State
    steps: Mapping[str, CountedStep]
    period: Period
    fresh: Written
    written: Written


class InterimReporter:
    """Follows the states of a driver and reports measurements of periods of at least ``seconds``.

    A drift (``measure.drift``) ends the period at once. The period is cut before the first drifted
    batch, so that measurements before and after the change are not mixed.

    A period begins at a driver's start, so time without a driver belongs to no period.

    Args:
        early: minimum seconds between a report and an early one. Infinite: drifts are noticed
            (:attr:`drifted`), but only :meth:`require` reports. None: drifts are ignored.
    """

    def __init__(
        self,
        control: Control,
        state: State,
        names: Steps,
        seconds: float,
        early: float | None = EARLY,
    ) -> None:
        self._control, self._names, self._seconds, self._early = control, names, seconds, early
        self._reported = -1
        now = time.monotonic()
        first = _Commit(now, time.time(), state, {}, begin(state, now), Written(), Written())
        self._commits = deque([first], KEPT)
        self._watch, self._edges = Watch(), Edges.of({})
        self._written = Written()

    def wrote(self, written: Iterable[Written]) -> None:
        """Add rows that a batch's tasks or merges wrote; call before :meth:`committed`."""
        self._written = sum(written, self._written)

    @property
    def drifted(self) -> bool:
        """Whether a statistic has drifted since the last report."""
        return self._watch.alarmed

    def committed(self, state: State, ruleset: Ruleset) -> None:
        """Add a committed state with its ``ruleset``; report measurements at the period's end."""
        last = self._commits[-1]
        now, steps = time.monotonic(), last.steps
        if state.ruleset != last.state.ruleset or not steps:
            steps = self._names.of(ruleset)
            self._edges = Edges.of(steps)
        period = _entered(last.period, last, state)
        fresh, self._written = self._written, Written()
        written = last.written + fresh
        self._commits.append(_Commit(now, time.time(), state, steps, period, fresh, written))
        if self._early is not None and state.next_batch > last.state.next_batch:
            self._observe(last.state, state)
        since = now - period.since
        early = self._early is not None and since >= self._early and self.drifted
        if state.next_batch > period.begun.next_batch:
            if early or since >= self._seconds:
                self._report()
        elif since >= self._seconds:
            self._begin()

    def require(self, state: State) -> None:
        """Report the interim period up to ``state``, unless it is reported already. The driver then
        waits for the service's revision of the ruleset."""
        if self._reported != state.next_batch:
            self._report(asks=True)

    def _observe(self, before: State, after: State) -> None:
        arrived = {
            name: count - before.measured.arrivals.get(name, 0)
            for name, count in after.measured.arrivals.items()
        }
        earlier = {} if _entering(before, after) else before.measured.edges
        self._watch = watch(self._watch, self._edges, after.measured.edges, earlier, arrived)

    def _report(self, *, asks: bool = False) -> None:
        found, lasted = drifts(self._watch)
        before: list[Interim] = []
        if found:
            before = self._cut(lasted)
            self._watch = begun_anew(self._watch)
        last = replace(_closed(self._commits[-1]), asks=asks, drifted=found)
        self._reported = last.next_batch
        # One call for both periods, since the service responds to the newest report only.
        self._control.report_interim(*before, last)
        self._begin()

    def _cut(self, lasted: int) -> list[Interim]:
        """End the period before the last ``lasted`` batches; return measurements to report."""
        end = self._commits[-1].state.next_batch - lasted
        commits = list(self._commits)
        place = next((n for n, c in enumerate(commits) if c.state.next_batch == end), None)
        if place is None or end <= commits[place].period.begun.next_batch:
            return []
        ended = _closed(commits[place])
        del commits[:place]
        self._begin(commits[0])
        for one in commits[1:]:
            last = self._commits[-1]
            period = _entered(last.period, last, one.state)
            self._commits.append(replace(one, period=period, written=last.written + one.fresh))
        return [ended]

    def _begin(self, last: _Commit | None = None) -> None:
        """Begin a period of measurements at the commit ``last`` (None: at the newest commit)."""
        last = last or self._commits[-1]
        self._commits.clear()
        period = begin(last.state, last.now)
        self._commits.append(replace(last, period=period, fresh=Written(), written=Written()))


def _closed(last: _Commit) -> Interim:
    """Return the measurements of the period that ends with the commit ``last``."""
    interim = close(last.period, last.state, last.steps, last.now, last.until)
    return replace(interim, **fields(last.written))


def _entering(before: State, after: State) -> bool:
    return (after.epoch, after.ruleset) != (before.epoch, before.ruleset)


def _entered(period: Period, last: _Commit, state: State) -> Period:
    """Continue ``period`` to ``state``; an ended ruleset's counts by edge become counts by step."""
    return leave_ruleset(period, last.state, last.steps) if _entering(last.state, state) else period
