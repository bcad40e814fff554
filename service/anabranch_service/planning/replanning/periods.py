"""The newest measurement periods, as input of the decision on a revision.

Consecutive decisions share all periods but the newest. So each period is parsed, and the
selectivities of its steps are computed, once per running ruleset and frequent values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.steps import SubJoinStep
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import FrequentValues, JoinSample, Snapshot
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.figures import Figures
from anabranch_planner.cost.inferred import Inference
from anabranch_planner.cost.selectivity import MIN_PROBES, PART_WEIGHT
from anabranch_planner.cost.statistics import statistics
from anabranch_planner.cost.values import ValueShares
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
        self._frequent: Mapping[str, Mapping[str, FrequentValues]] = {}
        self._values: ValueShares | None = None

    def read(self, texts: Sequence[str], snapshot: Snapshot | None = None) -> tuple[Measured, ...]:
        """Parse JSON texts of periods, in order; unreadable ones are left out and logged once.

        Args:
            snapshot: has the frequent values of keys; None: the values of the previous call stay.
        """
        if snapshot is not None and snapshot.values != self._frequent:
            self._known, self._frequent = {}, snapshot.values
            self._values = Figures(statistics.measured(snapshot)).values
        known = self._known
        self._known = {t: known[t] if t in known else self._parsed(t) for t in texts}
        return tuple(found for found in self._known.values() if found is not None)

    def _parsed(self, text: str) -> Measured | None:
        read = read_all([text], Interim)
        return measured(read[0], self._inference, self._values) if read else None


def measured(interim: Interim, inference: Inference, values: ValueShares | None = None) -> Measured:
    """Add the counts of measured and inferred steps to a period."""
    samples = inference.extend(
        [
            JoinSample.of(
                s.step, float(s.counts.probes), float(s.counts.pairs), float(s.counts.hits)
            )
            for s in interim.steps
            if s.counts.pairs
        ],
        values,
    )
    counts = np.array([(s.probes, s.pairs, s.hits) for s in samples], float).reshape(-1, 3)
    return Measured(interim, tuple(s.step for s in samples), counts)


def recent(snapshot: Snapshot, periods: Sequence[Measured]) -> Snapshot:
    """Return ``snapshot``, with the counts of its steps updated from the newest periods.

    The weight of a measurement falls with the number of later batches (in units of a median
    period), and sharply with each later drift. Counts of single substreams replace counts of all
    tuples only after a drift.
    """
    usual = median([p.interim.batches for p in periods if p.interim.batches > 0] or [1])
    found = _summed(periods, usual)
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


def _summed(periods: Sequence[Measured], usual: float) -> dict[SubJoinStep, JoinSample]:
    """Return counts per step, recent ones weighted more. For a sub-join, the total weight of counts
    from before a drift is at most :data:`DRIFTED` times that of later ones, once these suffice.
    Earlier periods may be long, and cover all tuples, where later ones cover substreams."""
    last = max((n for n, one in enumerate(periods) if one.interim.drifted.steps), default=0)
    found = dict[SubJoinStep, JoinSample]()
    for steps, counts in _faded(periods[last:], usual):
        for step, row in zip(steps, counts.tolist(), strict=True):
            _add(found, step, *row)
    if last:
        old, after = _summed(periods[:last], usual), _weights(found.values())
        before = _weights(old.values())
        later = sum(max(one.interim.batches, 0) for one in periods[last:])
        for step, sample in old.items():
            weight = FADE ** (later / usual) * DRIFTED
            if after[step.joined] >= MIN_PROBES:
                weight = min(weight, DRIFTED * after[step.joined] / max(before[step.joined], 1.0))
            _add(found, step, *(weight * n for n in (sample.probes, sample.pairs, sample.hits)))
    return found


def _add(
    found: dict[SubJoinStep, JoinSample],
    step: SubJoinStep,
    probes: float,
    pairs: float,
    hits: float,
) -> None:
    old = found.get(step)
    if old is not None:
        probes, pairs, hits = probes + old.probes, pairs + old.pairs, hits + old.hits
    found[step] = JoinSample.of(step, probes, pairs, hits)


def _weights(samples: Iterable[JoinSample]) -> dict[MirId, float]:
    """Return the probes per sub-join, with the weights that estimates give to substreams."""
    found = defaultdict[MirId, float](float)
    for one in samples:
        found[one.joined] += one.probes * (PART_WEIGHT if one.part.substreams else 1.0)
    return found


def _faded(
    periods: Sequence[Measured], usual: float
) -> list[tuple[tuple[SubJoinStep, ...], NDArray[np.float64]]]:
    """Return counts per list of steps, summed over periods, recent ones weighted more."""
    sums: list[tuple[tuple[SubJoinStep, ...], NDArray[np.float64]]] = []
    batches = 0
    for period in reversed(periods):
        weighted = FADE ** (batches / usual) * period.counts
        batches += max(period.interim.batches, 0)
        for steps, counts in sums:
            if steps == period.steps:
                counts += weighted
                break
        else:
            sums.append((period.steps, weighted))
    return sums
