"""Detection of sudden changes of join selectivities and arrival rates by the Page-Hinkley test.

E. S. Page ("Continuous inspection schemes", Biometrika 41, 1954) and D. V. Hinkley ("Inference
about the change-point from cumulative sum tests", Biometrika 58, 1971) sum up the amounts by which
values exceed their level plus a tolerance. If the sum exceeds a threshold, the level has changed;
the change began when the sum was last 0. The test runs for increases and for decreases.

Values are logarithms, so that a tenfold and a tenth of the level deviate equally:

* per join step, matches per probe and tuples with a match per probe:
  ``log((count + 1/2) / (probes + 1/2))``;
* per relation, arrivals. A longer batch brings more of all relations, so the median of their
  deviations is subtracted. A single relation is not tested.

Against false alarms:

* **Tolerance.** The greater of :data:`TOLERANCE` and :data:`SPREADS` standard deviations of the
  values so far. So a relation with irregular arrivals of files never drifts.
* **Single batches.** A value adds at most 1, and the threshold is above 1: two values are needed.
* **Little evidence.** Batches are pooled into one value until they have :data:`TRIALS` probes (or
  arrivals of all relations). The first :data:`LEARNED` values, also after an alarm, set the level
  and can't raise an alarm.
* **Trends.** The level follows the values by :data:`FOLLOWS`, so forecasts handle slow growth.

All statistics are in one array; only reading the edge counters needs a loop over edges.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from anabranch_contract.plans.steps import CountedStep, SubJoinStep
from anabranch_contract.protocol.interims import DriftedRate, DriftedStep, Drifts
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_runtime.traced import changes

Array = npt.NDArray[np.float64]


#: Delta of the test: deviation up to which a value adds nothing to the sums; a logarithm.
TOLERANCE = 0.25
#: The tolerance in standard deviations of the values; the greater of both tolerances holds.
SPREADS = 3.0
#: The test's lambda: sum above which a statistic has drifted. A value adds at most 1.
THRESHOLD = 1.5
#: Weight of a new value in the moving averages of level and variance.
FOLLOWS = 0.05
#: While a sum is above 0, the level stays, and the variance's weight is divided by this.
RISING = 4.0
#: Number of initial values from which a level is learned.
LEARNED = 10
#: Least number of probes, or of arrivals of all relations, for one value.
TRIALS = 30

_COUNTERS = attrgetter("probes", "found", "matches")


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of the Page-Hinkley test of many statistics; each array has one entry per statistic.

    Attributes:
        seen: number of values observed.
        level, variance: mean and variance of the logarithms.
        up, down: sums of the values' deviations above and below the level, beyond the tolerance.
        rising: number of batches since ``up`` and ``down`` were both 0.
    """

    seen: Array
    level: Array
    variance: Array
    up: Array
    down: Array
    rising: Array

    @staticmethod
    def zero(size: int) -> Sums:
        """Return sums of the drift test for ``size`` statistics without observations."""
        return Sums(*np.zeros((6, size)))

    @property
    def height(self) -> Array:
        """Per statistic, the greater of the test's sums ``up`` and ``down``."""
        return np.maximum(self.up, self.down)

    def taken(self, places: npt.NDArray[np.intp]) -> Sums:
        """Select the drift test's statistics at the indexes ``places``; -1: a new statistic."""
        new = places < 0
        if not len(self.seen):
            return Sums.zero(len(places))
        return Sums(*(np.where(new, 0.0, getattr(self, f.name)[places]) for f in fields(self)))


def observe(sums: Sums, values: Array, counts: Array) -> Sums:
    """Update the drift test's sums by one value per statistic, unless it is NaN or infinite.

    Args:
        counts: number of tuples (plus a half) behind each value, for its sampling error.
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
        # Welford's update as long as all values have equal weight; later, moving averages.
        (1 - part) * (sums.variance + part * away**2),
        up,
        down,
        np.where(np.maximum(up, down) > 0, sums.rising + 1, 0.0),
    )


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges that a ruleset's probes lead to, with the join steps that the probes compute.

    Attributes:
        places: edge -> its position in ``index``, which has the index of its step in ``steps``.
        steps: the distinct steps, sorted.
    """

    places: Mapping[str, int]
    steps: tuple[SubJoinStep, ...]
    index: npt.NDArray[np.intp]

    @staticmethod
    def of(steps: Mapping[str, CountedStep]) -> Edges:
        """Build the record from a mapping from edges to their join steps."""
        found = tuple(sorted({counted.step for counted in steps.values()}))
        places = {step: place for place, step in enumerate(found)}
        index = np.fromiter((places[c.step] for c in steps.values()), np.intp, len(steps))
        return Edges({edge: place for place, edge in enumerate(steps)}, found, index)


@dataclass(frozen=True, slots=True)
class Watch:
    """State of the drift test between two batches, updated by :func:`watch`.

    Attributes:
        steps, relations: names of steps and relations. ``sums`` has, in this order, matches per
            step, tuples with a match per step, and arrivals per relation.
        pooled: shape (3, steps): counts not yet in a value: probes, tuples with a match, matches.
        arrived: per relation, arrivals that are not yet part of a value.
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
        """Whether a join step or an arrival rate has drifted."""
        return bool((self.sums.height > THRESHOLD).any())

    def named(self, steps: Sequence[SubJoinStep], relations: Sequence[str]) -> Watch:
        """Return the drift test's state for these steps and relations; new ones have no values."""
        same = self.steps is steps or self.steps == tuple(steps)
        if same and self.relations == tuple(relations):
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
    """Update the drift test by the counts of one batch.

    Args:
        edges: edges of the batch's ruleset.
        counted, before: edge counters after the batch, and before it.
        arrived: relation -> number of its arrivals in the batch.
    """
    steps = edges.steps
    now = last.named(steps, tuple(sorted(arrived)))
    # Only changed edges are read: in a batch, most edges of many queries have no tuples.
    names = changes(before, counted)
    names = edges.places.keys() if names is None else [n for n in names if n in edges.places]
    fresh = _counters(names, counted) - _counters(names, before)
    index = edges.index[np.fromiter((edges.places[n] for n in names), np.intp, len(names))]
    pooled = now.pooled + [np.bincount(index, part, len(steps)) for part in fresh]
    # A counter that was reset has a negative difference; the pool of such an edge is discarded.
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
    """Return the drifted statistics, and the number of batches since the drift began; nothing and 0
    without a drift.

    After an alarm, statistics with half the threshold are included, since a change appears in some
    statistics one batch later than in others.
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
    """Reset the statistics that were reported as drifted, which then learn their new levels."""
    listed = found.sums.height > THRESHOLD / 2
    sums = Sums(*(np.where(listed, 0.0, getattr(found.sums, f.name)) for f in fields(Sums)))
    return replace(found, sums=sums)


def _counters(edges: Collection[str], counted: Mapping[str, EdgeStatistics]) -> Array:
    """Return numbers of probes, tuples with a match, and matches of the edges: shape (3, edges)."""
    rows = [(0, 0, 0) if (c := counted.get(edge)) is None else _COUNTERS(c) for edge in edges]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 3).T


def _places(old: Sequence[object], new: Sequence[object]) -> npt.NDArray[np.intp]:
    known = {name: place for place, name in enumerate(old)}
    return np.array([known.get(name, -1) for name in new], dtype=np.intp)


def _taken(values: Array, places: npt.NDArray[np.intp]) -> Array:
    if not values.shape[-1]:
        return np.zeros((*values.shape[:-1], len(places)))
    return np.where(places < 0, 0.0, values[..., places])
