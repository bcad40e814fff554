"""Report interim measurements between batches, each over some seconds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.measurements import Inserts
from anabranch_runtime.epochs.interims import begin, close, leave_ruleset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch_contract.plans.ruleset import Ruleset
    from anabranch_runtime.control import Control
    from anabranch_runtime.epochs.interims import Period
    from anabranch_runtime.epochs.join_samples import Step, Steps
    from anabranch_runtime.state.manifest import State


class InterimReporter:
    """Follows the states of a driver and reports periods of at least ``seconds``.

    A driver that starts begins a period; the time in which no driver ran belongs to none.
    """

    def __init__(self, control: Control, state: State, names: Steps, seconds: float) -> None:
        self._control, self._names, self._seconds = control, names, seconds
        self._reported = -1
        self._last = state
        self._period: Period = begin(state, time.monotonic())
        self._steps: Mapping[str, Step] = {}
        self._ruleset = RulesetId(-1)
        self._inserts = Inserts()

    def inserted(self, inserts: Iterable[Inserts]) -> None:
        """Take note of the inserts of a batch's tasks."""
        self._inserts = sum(inserts, self._inserts)

    def committed(self, state: State, ruleset: Ruleset) -> None:
        """Take note of a new state, which goes by ``ruleset``; report if the period is over."""
        now = time.monotonic()
        if (state.epoch, state.ruleset) != (self._last.epoch, self._last.ruleset):
            self._period = leave_ruleset(self._period, self._last, self._steps)
        if state.ruleset != self._ruleset:
            self._steps, self._ruleset = self._names.of(ruleset), state.ruleset
        self._last = state
        if now - self._period.since < self._seconds:
            return
        if state.next_batch > self._period.begun.next_batch:
            self._report(now)
        else:
            self._period = begin(state, now)

    def require(self, state: State) -> None:
        """Report the period up to ``state``, unless a period has ended there: a revision is waited
        for that answers it.
        """
        if self._reported != state.next_batch:
            self._report(time.monotonic(), asks=True)

    def _report(self, now: float, *, asks: bool = False) -> None:
        interim = close(self._period, self._last, self._steps, now, time.time())
        interim = replace(interim, asks=asks, inserts=self._inserts)
        self._inserts = Inserts()
        self._period, self._reported = begin(self._last, now), interim.next_batch
        self._control.report_interim(interim)
