"""Limits on the CPU time of replanning after changes of statistics alone, and of explanations.

Statistics keep changing, above all after the start of a pipeline, and with a thousand queries
planning takes seconds of CPU time that probes could use. Changes by users (of queries, of settings)
are planned at once. If only a few queries were added or removed, the last plan's statistics are
used, so that no other query is planned again.

A plan under new statistics may change the steps of all queries, whose rules tasks then prepare for
seconds. So it waits until no query was added or removed for a while; then tasks are ready when the
next query is registered.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Fraction of one CPU for replanning after changes of statistics alone, and for explanations.
SHARE = 0.1
#: Seconds without an edit before a plan is replanned under new statistics.
QUIET = 10.0
#: Seconds after which the last plan is replanned under new statistics in spite of edits.
RECENT = 60.0
#: Seconds for which queries may be added to and removed from the last plan under its statistics.
EDITABLE = 2 * RECENT


@dataclass(slots=True)
class Pace:
    """Decides when replanning is due after changes of statistics.

    After a plan, replanning pauses until the plan's CPU time is at most :data:`SHARE` of the
    elapsed time. The pause is never longer than the time from the first plan to the last: early
    measurements are poor, so early plans are soon replaced.

    Attributes:
        first, last: times of the first and the last plan, in seconds of a monotonic clock.
        cost: CPU seconds of the last plan.
        edit: last time at which a few queries were added to the plan or removed from it.
    """

    first: float | None = None
    last: float = 0.0
    cost: float = 0.0
    edit: float = float("-inf")

    def planned(self, now: float, cost: float) -> None:
        """Record a plan made at ``now`` in ``cost`` CPU seconds."""
        self.first = now if self.first is None else self.first
        self.last, self.cost = now, cost

    def edited(self, now: float) -> None:
        """Record that a few queries were added to the last plan, or removed from it, at ``now``."""
        self.edit = now

    def may_edit(self, now: float) -> bool:
        """Whether queries may still be added and removed under the last plan's statistics."""
        return self.first is not None and now - self.last < EDITABLE

    @property
    def due(self) -> float:
        """Time at which the pause after the last plan ends."""
        if self.first is None:
            return float("-inf")
        return self.last + min(self.cost / SHARE, self.last - self.first)

    def rests(self, now: float) -> bool:
        """Whether replanning after changes of statistics must still wait."""
        if self.first is None:
            return False
        edited = now - self.edit < QUIET and now - self.last < RECENT
        return edited or now < self.due
