"""Input at a given rate, open loop: batches arrive by the clock, whether or not the system keeps
up.

Batch ``first + k`` of a recording has the tuples that are due (scheduled to arrive) in ``[k *
interval, (k + 1) * interval)`` after the beginning, evenly spread; earlier batches are the warm-up.
The gate lets a batch start when its last tuple is due, even if an earlier batch is still running:
input that the system can't process yet waits, and the waiting time is measured. A tuple's latency
is the time from its scheduled arrival to the commit of its batch, when its results are durable. So
a stall adds to the latency of every tuple that became due during it, and the measurement never
waits for the system (no coordinated omission). A source that puts all waiting input into one batch
would catch up with fewer, larger batches; here the batches are fixed, which is to the system's
disadvantage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.session import BatchLog, Session

#: Number of tuples per batch whose latencies represent all; latencies of a batch are evenly spread.
_SAMPLED = 64


@dataclass(slots=True)
class Pacer:
    """Thread that opens the gate of ``system`` for one batch every ``interval`` seconds.

    Attributes:
        batches: number of batches of the recording.
        before: function called in the thread with a batch's number, before its gate is opened.
        began: when (seconds since 1970) the first tuple was due.
        late: greatest delay of a gate in seconds; it counts as latency.
    """

    system: Session
    batches: int
    interval: float
    first: int = 0
    before: Callable[[int], None] = lambda _: None
    began: float = field(init=False, default=0.0)
    late: float = field(init=False, default=0.0)
    _stopped: threading.Event = field(init=False, default_factory=threading.Event)
    _thread: threading.Thread | None = field(init=False, default=None)

    def start(self) -> None:
        """Let the batches before ``first`` run, and begin when they are committed."""
        self.system.gate(self.first)
        if self.first:
            self.system.wait_for_batches(self.first)
        self.began = time.time()
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop opening gates."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def due(self, batch: int) -> float:
        """Return the time (seconds since 1970) at which the last tuple of ``batch`` is due."""
        return self.began + self._after(batch)

    def _after(self, batch: int) -> float:
        return (batch - self.first + 1) * self.interval

    def latencies(self, log: Sequence[BatchLog]) -> list[Latency]:
        """Return the latencies of the tuples of each batch of ``log`` from ``first`` on."""
        return [
            Latency(
                b.batch,
                self._after(b.batch),
                b.tuples,
                b.committed_at - self.due(b.batch),
                self.interval,
            )
            for b in log
            if b.batch >= self.first
        ]

    def _run(self) -> None:
        for batch in range(self.first, self.batches):
            self.before(batch)
            if self._stopped.wait(max(self.due(batch) - time.time(), 0.0)):
                return
            self.late = max(self.late, time.time() - self.due(batch))
            self.system.gate(batch + 1)


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of a batch's tuples, evenly spread from ``least`` (of the last tuple that became
    due) to ``least + interval`` (of the first). ``at``: seconds from the beginning to the batch's
    due time.
    """

    batch: int
    at: float
    tuples: int
    least: float
    interval: float

    def sample(self) -> list[float]:
        """Return a fixed number of tuples' latencies; empty for a batch without tuples."""
        if not self.tuples:
            return []
        return [self.least + self.interval * (i + 0.5) / _SAMPLED for i in range(_SAMPLED)]
