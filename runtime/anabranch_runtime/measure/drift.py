"""Page-Hinkley's test on steps and rates, batch by batch, for sudden changes.

E. S. Page ("Continuous inspection schemes", Biometrika 41, 1954) and D. V. Hinkley ("Inference
about the change-point from cumulative sum tests", Biometrika 58, 1971) add up by how much values
exceed their level beyond a tolerance. Where the sum is above a threshold, the level has changed;
the change began when the sum was last 0. The test runs on both sides.

Values are logarithms of relative figures, so that tenfold and a tenth count alike:

* per step its matches and its found tuples per probe, ``log((count + 1/2) / (probes + 1/2))``;
* per relation its arrivals. The common part (a batch that took longer brings more of each), the
  median of their deviations, is subtracted. One relation alone has no such test.

Against false alarms:

* **Tolerance.** :data:`TOLERANCE`, or :data:`SPREADS` standard deviations of the values so far,
  whichever is more. A relation whose files come now and then never drifts.
* **Single batches.** A value adds 1 at most, and the threshold is above 1: two are needed.
* **Little evidence.** Batches are put together until they have :data:`TRIALS` probes (arrivals of
  all relations). Without a probe nothing is observed. The first :data:`LEARNED` values, also after
  an alarm, make the level and can't alarm.
* **Trends.** The level follows by :data:`FOLLOWS`, so slow growth is left to the forecasts.

All statistics are one array; only reading the edges' counters takes a loop, over edges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from anabranch_contract.plans.steps import CountedStep, SubJoinStep
from anabranch_contract.protocol.interims import DriftedRate, DriftedStep, Drifts
from anabranch_contract.protocol.measurements import EdgeStatistics

Array = npt.NDArray[np.float64]


#: delta: deviations that are never added up, as a natural logarithm (a factor of 1.28).
TOLERANCE = 0.25
#: Standard deviations that are not added up either.
SPREADS = 3.0
#: lambda: the sum above which a value has drifted. A value adds 1 at most.
THRESHOLD = 1.5
#: Part of a deviation by which the level follows, and so its variance.
FOLLOWS = 0.05
#: While a sum is above 0 the level waits, and the variance follows by so much less.
RISING = 4.0
#: Values that make a level.
LEARNED = 10
#: Probes, or arrivals of all relations, of one value: fewer make no sample (``cost.selectivity``).
TRIALS = 30

_COUNTERS = attrgetter("probes", "found", "matches")


@dataclass(frozen=True, slots=True)
class Sums:
    """Page-Hinkley's sums of many statistics; all arrays have one entry for each.

    Attributes:
        seen: values that the level is made of.
        level, variance: of the logarithms.
        up, down: by how much values were above and below the level, beyond the tolerance.
        rising: batches since ``up`` and ``down`` were both 0.
    """

    seen: Array
    level: Array
    variance: Array
    up: Array
    down: Array
    rising: Array

    @staticmethod
    def zero(size: int) -> Sums:
        """Sums of ``size`` statistics without observations."""
        return Sums(*np.zeros((6, size)))

    @property
    def height(self) -> Array:
        """The greater sum of both sides."""
        return np.maximum(self.up, self.down)

    def taken(self, places: npt.NDArray[np.intp]) -> Sums:
        """The statistics at ``places``; -1 stands for one without observations."""
        new = places < 0
        if not len(self.seen):
            return Sums.zero(len(places))
        return Sums(*(np.where(new, 0.0, getattr(self, f.name)[places]) for f in fields(self)))


def observe(sums: Sums, values: Array, counts: Array) -> Sums:
    """The sums after one more value each; one that is no finite number is left out.

    Args:
        counts: the tuples (and a half) that each value is the logarithm of, relative to something.
    """
    there = np.isfinite(values)
    learned = sums.seen >= LEARNED
    seen = sums.seen + there
    away = np.where(there, values - sums.level, 0.0)
    expected = counts * np.exp(-np.clip(away, -50, 50))
    variance = np.maximum(sums.variance, 1 / expected)
    tolerance = np.maximum(TOLERANCE, SPREADS * np.sqrt(variance))
    away = np.where(learned, np.clip(away, -tolerance - 1, tolerance + 1), away)
    tested = there & learned
    up = np.where(tested, np.maximum(0.0, sums.up + away - tolerance), sums.up)
    down = np.where(tested, np.maximum(0.0, sums.down - away - tolerance), sums.down)
    calm = up + down == 0
    part = np.where(there, np.maximum(FOLLOWS, 1 / np.maximum(seen, 1)), 0.0)
    moved = np.where(calm, part * away, 0.0)
    part = np.where(calm, part, part / RISING)
    return Sums(
        seen,
        sums.level + moved,
        # Welford's step where all count alike, an exponentially weighted one from then on.
        (1 - part) * (sums.variance + part * away**2),
        up,
        down,
        np.where(np.maximum(up, down) > 0, sums.rising + 1, 0.0),
    )


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges of a ruleset that lead to steps.

    Attributes:
        names: of the edges. ``index``: the place of each one's step among ``steps``.
        steps: sorted.
    """

    names: tuple[str, ...]
    steps: tuple[SubJoinStep, ...]
    index: npt.NDArray[np.intp]

    @staticmethod
    def of(steps: Mapping[str, CountedStep]) -> Edges:
        """The edges of a mapping from edge to step."""
        found = tuple(sorted({counted.step for counted in steps.values()}))
        places = {step: place for place, step in enumerate(found)}
        index = np.fromiter((places[c.step] for c in steps.values()), np.intp, len(steps))
        return Edges(tuple(steps), found, index)


@dataclass(frozen=True, slots=True)
class Watch:
    """Observations between two batches; a value that :func:`watch` follows.

    Attributes:
        steps, relations: names. ``sums`` has the matches of each step, then the found tuples of
            each step, then the relations.
        pooled: shape (3, steps): probes, found and matches that have made no value yet.
        arrived: the same for relations.
        values: the newest value of each statistic.
    """

    steps: tuple[SubJoinStep, ...] = ()
    relations: tuple[str, ...] = ()
    sums: Sums = field(default_factory=lambda: Sums.zero(0))
    pooled: Array = field(default_factory=lambda: np.zeros((3, 0)))
    arrived: Array = field(default_factory=lambda: np.zeros(0))
    values: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def alarmed(self) -> bool:
        """Whether something has drifted."""
        return bool((self.sums.height > THRESHOLD).any())

    def named(self, steps: Sequence[SubJoinStep], relations: Sequence[str]) -> Watch:
        """The same of these steps and relations: new ones begin, others are forgotten."""
        if self.steps == tuple(steps) and self.relations == tuple(relations):
            return self
        of_step = _places(self.steps, steps)
        of_relation = _places(self.relations, relations)
        n = len(self.steps)
        found = np.where(of_step < 0, -1, of_step + n)
        rates = np.where(of_relation < 0, -1, of_relation + 2 * n)
        places = np.concatenate([of_step, found, rates])
        return Watch(
            tuple(steps),
            tuple(relations),
            self.sums.taken(places),
            _taken(self.pooled, of_step),
            _taken(self.arrived, of_relation),
            _taken(self.values, places),
        )


def watch(
    last: Watch,
    edges: Edges,
    counted: Mapping[str, EdgeStatistics],
    before: Mapping[str, EdgeStatistics],
    arrived: Mapping[str, int],
) -> Watch:
    """Observe one batch.

    Args:
        edges: of the ruleset that the batch went by.
        counted, before: the counters of edges after the batch, and those before it.
        arrived: relation -> its arrivals in the batch.
    """
    steps = edges.steps
    now = last.named(steps, tuple(sorted(arrived)))
    fresh = _counters(edges.names, counted) - _counters(edges.names, before)
    pooled = now.pooled + [np.bincount(edges.index, part, len(steps)) for part in fresh]
    # Counters that were set back are no measurement.
    pooled = np.where((pooled < 0).any(axis=0), 0.0, pooled)
    enough = pooled[0] >= TRIALS
    counts = pooled[[2, 1]] + 0.5
    ratios = np.log(counts / (pooled[0] + 0.5))
    tuples = now.arrived + [max(arrived[name], 0) for name in now.relations]
    rates = np.full(len(tuples), np.nan)
    if ready := tuples.sum() >= TRIALS and len(tuples) > 1:
        rates = np.log(tuples + 0.5)
        known = now.sums.seen[2 * len(steps) :] > 0
        away = (rates - now.sums.level[2 * len(steps) :])[known] if known.any() else rates
        rates -= np.median(away)
    values = np.concatenate([np.where(enough, ratios, np.nan).ravel(), rates])
    return replace(
        now,
        sums=observe(now.sums, values, np.concatenate([counts.ravel(), tuples + 0.5])),
        pooled=np.where(enough, 0.0, pooled),
        arrived=np.zeros(len(tuples)) if ready else tuples,
        values=np.where(np.isfinite(values), values, now.values),
    )


def drifts(found: Watch) -> tuple[Drifts, int]:
    """Drifted statistics, and the number of batches they have drifted for; nothing and 0 where no
    sum is too great.

    Statistics with half as great a sum are listed too: a change shows in some a batch later than in
    others.
    """
    height = found.sums.height
    if not found.alarmed:
        return Drifts(), 0
    n = len(found.steps)
    rates, steps = [], []
    for place in np.flatnonzero(height > THRESHOLD / 2).tolist():
        before, after = (math.exp(x[place]) for x in (found.sums.level, found.values))
        if place >= 2 * n:
            rates.append(DriftedRate(found.relations[place - 2 * n], after / before))
        else:
            figure = "matches" if place < n else "found"
            step = found.steps[place % n]
            steps.append(DriftedStep(*step[:3], figure, before, after, step.part))
    lasted = int(found.sums.rising[height > THRESHOLD].min())
    return Drifts(tuple(rates), tuple(sorted(steps))), lasted


def begun_anew(found: Watch) -> Watch:
    """The watch after drifts have been reported: the listed statistics relearn their levels."""
    listed = found.sums.height > THRESHOLD / 2
    sums = Sums(*(np.where(listed, 0.0, getattr(found.sums, f.name)) for f in fields(Sums)))
    return replace(found, sums=sums)


def _counters(edges: Sequence[str], counted: Mapping[str, EdgeStatistics]) -> Array:
    """Probes, found and matches of each edge; shape (3, edges)."""
    rows = [(0, 0, 0) if (c := counted.get(edge)) is None else _COUNTERS(c) for edge in edges]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 3).T


def _places(old: Sequence[object], new: Sequence[object]) -> npt.NDArray[np.intp]:
    known = {name: place for place, name in enumerate(old)}
    return np.array([known.get(name, -1) for name in new], dtype=np.intp)


def _taken(values: Array, places: npt.NDArray[np.intp]) -> Array:
    if not values.shape[-1]:
        return np.zeros((*values.shape[:-1], len(places)))
    return np.where(places < 0, 0.0, values[..., places])
