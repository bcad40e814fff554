"""Limit on the CPU time of replanning after changes of statistics alone.

Statistics keep changing, above all after the start of a pipeline, and with a thousand queries
planning takes seconds of CPU time that probes could use. Changes by users (a query, a setting) are
planned at once; a few new queries under the last plan's statistics, so that only they are planned.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Fraction of one CPU for replanning after changes of statistics alone.
SHARE = 0.1
#: Seconds for which queries are added to a plan under its statistics.
RECENT = 60.0


@dataclass(slots=True)
class Pace:
    """Decides when replanning is due after changes of statistics.

    After a plan, replanning pauses until the plan's CPU time is at most :data:`SHARE` of the
    elapsed time. The pause is never longer than the time from the first plan to the last: early
    measurements are poor, so early plans are soon replaced.

    Attributes:
        first, last: times of the first and the last plan, in seconds of a monotonic clock.
        cost: CPU seconds of the last plan.
    """

    first: float | None = None
    last: float = 0.0
    cost: float = 0.0

    def planned(self, now: float, cost: float) -> None:
        """Record a plan made at ``now`` in ``cost`` CPU seconds."""
        self.first = now if self.first is None else self.first
        self.last, self.cost = now, cost

    def is_recent(self, now: float) -> bool:
        """Whether queries may still be added to the last plan under its statistics."""
        return self.first is not None and now - self.last < RECENT

    def rests(self, now: float) -> bool:
        """Whether replanning is not due yet."""
        if self.first is None:
            return False
        return now - self.last < min(self.cost / SHARE, self.last - self.first)
