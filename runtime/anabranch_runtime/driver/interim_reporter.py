"""Report interim measurements between batches, each over some seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from anabranch_runtime.epochs.interims import begin, close, leave_epoch

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        self._last = state
        self._period: Period = begin(state, time.monotonic())
        self._steps: Mapping[str, Step] = {}
        self._ruleset = -1

    def committed(self, state: State, ruleset: Ruleset) -> None:
        """Take note of a new state, which goes by ``ruleset``; report if the period is over."""
        now = time.monotonic()
        if state.epoch != self._last.epoch:
            self._period = leave_epoch(self._period, self._last, self._steps)
        if state.ruleset_epoch != self._ruleset:
            self._steps, self._ruleset = self._names.of(ruleset), state.ruleset_epoch
        self._last = state
        if now - self._period.since < self._seconds:
            return
        interim = close(self._period, state, self._steps, now, time.time())
        self._period = begin(state, now)
        if interim.batches:
            self._control.report_interim(interim)
