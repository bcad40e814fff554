"""Reports the contents of stores to the control plane, bounded in rate and size.

One document describes all stores, and one document per store its segments. A report consists of the
documents of changed stores up to a size limit, longest unreported first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_runtime.control import Control
from anabranch_runtime.epochs.failed_queries import surviving
from anabranch_runtime.measure.state_report import (
    Readers,
    Weights,
    readers,
    state_report,
    store_parts,
)
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.tables import TableCost
from anabranch_runtime.storage.segment import Segment

#: Minimum seconds between two reports: with many stores, a report takes some milliseconds.
INTERVAL = 1.0
#: Bytes that a report may have per ``INTERVAL`` of pause after it; larger reports pause longer.
PACE = 1 << 20
#: Minimum pause after a report, as a multiple of its duration, since reports delay batches.
RARER = 10
#: Bytes of stores' documents above which a report leaves further documents to the next report.
ROOM = 1 << 19


@dataclass(slots=True)
class StatePublisher:
    """Reports the contents of stores at limited intervals; a later call reports skipped states."""

    root: Path
    control: Control
    _shown: State | None = None
    _costs: Mapping[str, TableCost] | None = None
    _at: float = float("-inf")
    #: Pause until the next report, in multiples of ``INTERVAL``.
    _pause: float = 1.0
    #: Store -> segments and ruleset in its last document, longest unreported first. None before the
    #: first report, which reads the names of an earlier driver's documents.
    _parts: dict[str, tuple[tuple[Segment, ...], RulesetId] | None] | None = None
    _waiting: bool = False
    _weights: Weights = field(default_factory=Weights)

    def show(
        self,
        state: State,
        ruleset: Callable[[], Ruleset | None],
        *,
        at_once: bool = False,
        costs: Mapping[str, TableCost] | None = None,
    ) -> None:
        """Report the stores of ``state`` to the service, if a report is due.

        Args:
            ruleset: returns the ruleset of ``state``, or None if it is unknown.
            at_once: report everything now, as this may be the last call.
            costs: query -> measured cost of its table; a new object whenever a cost has changed.
        """
        now = time.monotonic()
        known = state is self._shown and costs is self._costs and not self._waiting
        if known or (not at_once and now - self._at < INTERVAL * self._pause):
            return
        rules = ruleset()
        if rules is not None:
            rules = surviving(rules, state)
        users = readers(state, rules)
        report = state_report(self.root, state, rules, users, self._weights, costs).dumps()
        gone = self._forget(state)
        parts = self._changed(state, users, ROOM if not at_once else None)
        self.control.report_state(report, parts, gone)
        size = len(report) + sum(map(len, parts.values()))
        spent = time.monotonic() - now
        self._costs = costs
        self._shown, self._at, self._pause = state, now, max(1.0, size / PACE, spent * RARER)

    def _forget(self, state: State) -> set[str]:
        """Forget documents of stores that ``state`` no longer has; return the stores' names."""
        if self._parts is None:
            self._parts = dict.fromkeys(self.control.reported_parts())
        gone = self._parts.keys() - state.stores.keys()
        for name in gone:
            del self._parts[name]
        return gone

    def _changed(self, state: State, users: Readers, room: int | None) -> dict[str, str]:
        """Return up to ``room`` bytes of new documents of changed stores, by store."""
        assert self._parts is not None
        known, found, used = self._parts, {}, 0
        waiting = [name for name in state.stores if name not in known]
        waiting += [name for name, one in known.items() if one != self._now(state, name)]
        for name in waiting:
            if room is not None and used >= room:
                break
            found[name] = store_parts(name, state, users).dumps()
            used += len(found[name])
            known.pop(name, None)
            known[name] = self._now(state, name)
        self._waiting = len(found) < len(waiting)
        return found

    @staticmethod
    def _now(state: State, name: str) -> tuple[tuple[Segment, ...], RulesetId]:
        return state.stores[name].segments, state.ruleset
