"""The driver's counters for monitoring, over all batches of its run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch_contract.protocol.progress import Latencies, Telemetry
from anabranch_runtime.state.manifest import State


@dataclass(slots=True)
class Counters:
    """Totals of a run's batches so far."""

    batches: int = 0
    seconds: float = 0.0
    committed_at: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)

    def committed(
        self, now: float, seconds: float, phases: Mapping[str, float], ages: Iterable[float]
    ) -> None:
        """Add a batch committed ``now`` (since 1970) that took ``seconds``; ``ages``: of the oldest
        row of each stream in it.
        """
        self.batches += 1
        self.seconds += seconds
        self.committed_at = now
        for phase, spent in phases.items():
            self.phases[phase] = self.phases.get(phase, 0.0) + spent
        for age in ages:
            self.latencies = self.latencies.adding(age)

    def telemetry(
        self,
        state: State,
        parked: Mapping[str, int],
        view_lag: Mapping[str, int],
        merge_bytes: int,
    ) -> Telemetry:
        """All counters, with the waiting work as of ``state``."""
        marks = {name: s.watermark() for name, s in state.streams.items()}
        return Telemetry(
            self.batches,
            self.seconds,
            {phase: round(spent, 6) for phase, spent in self.phases.items()},
            self.committed_at,
            self.latencies,
            {name: mark for name, mark in marks.items() if mark is not None},
            dict(parked),
            dict(view_lag),
            merge_bytes,
        )
