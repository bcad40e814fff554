"""The newest measurement periods, as input of the decision on a revision.

Consecutive decisions share all periods but the newest. So each period is parsed, and the
selectivities of its steps are computed, once per running ruleset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.steps import SubJoinStep
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import JoinSample, Snapshot
from anabranch_planner.cost.inferred import Inference
from anabranch_planner.cost.selectivity import MIN_PROBES
from anabranch_service.planning.rates import read_all

#: Factors by which the weight of a measurement falls per later period, and per later drift.
FADE, DRIFTED = 0.7, 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement period, with the counts of its steps and of steps inferred from them
    (``cost.inferred``).

    Attributes:
        steps: the steps, sorted.
        counts: array (steps, 3): probes, matching pairs, and hits of each step.
    """

    interim: Interim
    steps: tuple[SubJoinStep, ...]
    counts: NDArray[np.float64]


class Periods:
    """Cache of parsed periods for the queries of one ruleset."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._known: dict[str, Measured | None] = {}

    def read(self, texts: Sequence[str]) -> tuple[Measured, ...]:
        """Parse JSON texts of periods, in order; unreadable ones are left out and logged once."""
        known = self._known
        self._known = {t: known[t] if t in known else self._parsed(t) for t in texts}
        return tuple(found for found in self._known.values() if found is not None)

    def _parsed(self, text: str) -> Measured | None:
        read = read_all([text], Interim)
        return measured(read[0], self._inference) if read else None


def measured(interim: Interim, inference: Inference) -> Measured:
    """Add the counts of measured and inferred steps to a period."""
    samples = inference.extend(
        [
            JoinSample.of(
                s.step, float(s.counts.probes), float(s.counts.pairs), float(s.counts.hits)
            )
            for s in interim.steps
            if s.counts.pairs
        ]
    )
    counts = np.array([(s.probes, s.pairs, s.hits) for s in samples], float).reshape(-1, 3)
    return Measured(interim, tuple(s.step for s in samples), counts)


def recent(snapshot: Snapshot, periods: Sequence[Measured]) -> Snapshot:
    """``snapshot``, with the counts of its steps updated from the newest periods.

    The weight of a measurement falls with the number of later batches (in units of a median
    period), and sharply with each later drift. Counts of single substreams replace counts of all
    tuples only after a drift.
    """
    found: dict[SubJoinStep, JoinSample] = {}
    for steps, counts in _faded(periods):
        for step, (probes, pairs, hits) in zip(steps, counts.tolist(), strict=True):
            old = found.get(step)
            if old is not None:
                probes, pairs, hits = probes + old.probes, pairs + old.pairs, hits + old.hits
            found[step] = JoinSample.of(step, probes, pairs, hits)
    known = {s.step: s for s in snapshot.steps}
    drifted = any(period.interim.drifted.steps for period in periods)
    lately = {
        s.joined
        for s in found.values()
        if s.probes >= MIN_PROBES and (drifted or not s.part.substreams)
    }
    chosen = {k: s for k, s in known.items() if s.joined not in lately}
    chosen |= {k: s for k, s in found.items() if s.joined in lately or s.part.substreams}
    return replace(snapshot, steps=tuple(chosen[key] for key in sorted(chosen)))


def _faded(
    periods: Sequence[Measured],
) -> list[tuple[tuple[SubJoinStep, ...], NDArray[np.float64]]]:
    """Counts summed over periods, recent ones weighted more, per list of steps of the periods."""
    sums: list[tuple[tuple[SubJoinStep, ...], NDArray[np.float64]]] = []
    usual = median([p.interim.batches for p in periods if p.interim.batches > 0] or [1])
    batches, drifts = 0, 0
    for period in reversed(periods):
        weighted = FADE ** (batches / usual) * DRIFTED**drifts * period.counts
        batches += max(period.interim.batches, 0)
        drifts += bool(period.interim.drifted.steps)
        for steps, counts in sums:
            if steps == period.steps:
                counts += weighted
                break
        else:
            sums.append((period.steps, weighted))
    return sums
