"""Tells the control plane what the stores hold: often enough to be looked at, not every batch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch_runtime.failed_queries import surviving
from anabranch_runtime.state.report import state_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from anabranch_planner.ruleset import Ruleset
    from anabranch_runtime.control import Control
    from anabranch_runtime.state.manifest import State

#: Seconds between two reports: with many stores making one takes some milliseconds.
INTERVAL = 1.0


@dataclass(slots=True)
class StateTeller:
    """Reports each state that it is shown, unless it is the one reported last or that was just
    now: then whoever shows it again later reports it.
    """

    root: Path
    control: Control
    _told: State | None = None
    _at: float = float("-inf")

    def show(
        self, state: State, ruleset: Callable[[], Ruleset | None], *, at_once: bool = False
    ) -> None:
        """``ruleset`` gives what ``state`` goes by, if anybody knows."""
        now = time.monotonic()
        if state is self._told or (not at_once and now - self._at < INTERVAL):
            return
        rules = ruleset()
        if rules is not None:
            rules = surviving(rules, state)
        self.control.report_state(state_report(self.root, state, rules))
        self._told, self._at = state, now
