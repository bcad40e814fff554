"""Cost of our whole system from the second batch on, for comparison with other engines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from benchmarks.kinds import KindMeter
from benchmarks.rivals.environment import Spent
from benchmarks.session import Session

_SETTLED = 0.5


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a run over a number of input tuples."""

    tuples: int
    spent: Spent

    @property
    def rate(self) -> float:
        """Input tuples per second."""
        return self.tuples / self.spent.seconds

    @property
    def cpu(self) -> float:
        """CPU seconds per tuple."""
        return self.spent.cpu / self.tuples

    def to_json(self) -> dict[str, Any]:
        """The cost as part of the benchmark's line."""
        return {
            "tuples": self.tuples,
            "seconds": round(self.spent.seconds, 3),
            "cpu": round(self.spent.cpu, 2),
            "bytes": self.spent.bytes,
        }


def later_batches(system: Session, batches: int) -> Cost:
    """Start a system and run ``batches`` batches; return the usage of all processes and the number
    of tuples, from the opening of the gate for the second batch to the last commit.

    Raises:
        ClientError: a process failed.
    """
    system.start()
    system.gate(1)
    system.wait_for_batches(1)
    time.sleep(_SETTLED)
    meter = KindMeter(system.roots, _SETTLED)
    meter.start()
    began = time.time()
    try:
        system.gate(None)
        system.wait_for_batches(batches)
    finally:
        meter.stop()
    log = system.log()
    peak = meter.peak_pss_bytes or meter.peak_rss_bytes
    spent = Spent(meter.cpu_seconds, log[-1].committed_at - began, peak)
    return Cost(sum(batch.tuples for batch in log[1:]), spent)
