"""Pacing of complete replanning after changed measurements.

Measurements keep changing, above all after the start of a pipeline, and with a thousand queries a
plan takes seconds of CPU time that probes could use. Changes by users (a query, a setting) are
planned at once.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The part of one CPU that plans may take where nothing but figures has changed.
SHARE = 0.1


@dataclass(slots=True)
class Pace:
    """The due time of the next plan.

    It pauses after a plan until planning has taken at most :data:`SHARE` of the time, but no longer
    than from the first plan to this one: early measurements are poor, so plans from them are soon
    replaced.

    Attributes:
        first, last: when the first plan and the last one were made, seconds of a monotonic clock.
        cost: CPU seconds of the last one.
    """

    first: float | None = None
    last: float = 0.0
    cost: float = 0.0

    def planned(self, now: float, cost: float) -> None:
        """A plan has been made."""
        self.first = now if self.first is None else self.first
        self.last, self.cost = now, cost

    def rests(self, now: float) -> bool:
        """Whether the next plan is not due yet."""
        if self.first is None:
            return False
        return now - self.last < min(self.cost / SHARE, self.last - self.first)
