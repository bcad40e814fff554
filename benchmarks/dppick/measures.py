"""Measurements of a join operator by period, and the search problem for probe orders made from
them.

The counts of periods are kept as series, as a pipeline keeps its measurement periods: per step, the
share of probes that found a row (gamma) and the rows found per probe and stored row (hits per
pair); per input, the arrivals and the distinct stored keys. A step is identified by the set of
inputs whose joined tuples probe and the input that is probed, whatever input the order starts from.
The problem for the next period consists of forecasts of these series, and of the numbers of rows
that will be stored. The matches per hit, mu, are hits per pair times stored rows, divided by gamma;
so the growth of a store affects mu without being forecast.

An order includes only some of the possible steps. A step that did not run in the last period gets
the first of these measurements that exists: that of the most similar step to the same input in the
last period; that of a step in the opposite direction, since a pair of rows matches from both sides,
so that hits per pair are equal; that of the step itself in older periods; 1 / (number of keys), as
for independent keys. Old measurements are used late because a search for the least cost prefers
steps whose old measurements are too low by now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from anabranch_planner.forecast.forecast import StatisticKind, forecasts
from anabranch_planner.forecast.series import Series
from benchmarks.papers.dppick.figures import Flags, Floats, Masks, Match
from benchmarks.papers.dppick.problem import Accounting, Operator
from benchmarks.umjoin.operators.chains import StepCounts, StepName
from benchmarks.umjoin.operators.joins import Join

#: A step: (set of probing inputs as a bit mask, number of the probed input).
Step: TypeAlias = tuple[int, int]
#: Name of a series: (kind, step). For an input ``n``: (0, n) is its rate, (1 << n, n) its number of
#: keys.
_Name: TypeAlias = tuple[StatisticKind, Step]

#: Number of periods after which a measurement has half the weight.
HALF_LIFE = 20.0


@dataclass(frozen=True, slots=True)
class Period:
    """Measurements of one period, by name of the input.

    Attributes:
        steps: the counts of each step that ran.
        arrivals: number of tuples that arrived.
        keys: number of distinct keys stored at the end of the period. before, after: number of
        stored tuples that may still find partners, at the beginning and at the end of the period.
    """

    steps: Mapping[StepName, StepCounts]
    arrivals: Mapping[str, int]
    keys: Mapping[str, int]
    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class History:
    """The series of measurements of one join operator.

    Attributes:
        names: names of the inputs, in the order of their numbers.
        near: per input, the bit mask of the inputs that it may probe.
        length: maximum length of each series, in periods.
        periods: number of recorded periods. rows, ahead: mean number of stored tuples per input, in
        the last and in the next period.
    """

    names: tuple[str, ...]
    near: tuple[int, ...]
    length: int
    periods: int = 0
    rows: tuple[float, ...] = ()
    ahead: tuple[float, ...] = ()
    series: Mapping[_Name, Series] = field(default_factory=dict)

    @staticmethod
    def of(join: Join, length: int) -> History:
        """Return a history without measurements."""
        names = tuple(join.by_name)
        near = tuple(
            sum(1 << r for r, other in enumerate(names) if r != n and join.key((name,), other))
            for n, name in enumerate(names)
        )
        return History(names, near, length)

    def recorded(self, period: Period) -> History:
        """Return the history with the measurements of ``period`` added."""
        number = {name: n for n, name in enumerate(self.names)}
        rows = {name: (period.before[name] + period.after[name]) / 2 for name in number}
        offered: list[tuple[_Name, float, float]] = []
        for (head, target), counts in period.steps.items():
            step = sum(1 << number[name] for name in head), number[target]
            pairs = counts.probes * rows[target]
            if counts.probes:
                share = counts.found / counts.probes
                offered.append(((StatisticKind.HIT_RATIO, step), share, counts.probes))
            if pairs:
                offered.append(
                    ((StatisticKind.MATCHES, step), counts.matches / pairs, counts.probes)
                )
        for name, n in number.items():
            offered.append(((StatisticKind.RATE, (0, n)), period.arrivals.get(name, 0), 1.0))
            offered.append(((StatisticKind.RATE, (1 << n, n)), period.keys[name], 1.0))
        series = dict(self.series)
        for key, value, weight in offered:
            known = series.get(key) or Series(self.length, HALF_LIFE)
            measured = [*zip(known.times, known.values, known.weights, strict=True)]
            measured.append((float(self.periods), value, weight))
            series[key] = Series.of(measured, self.length, HALF_LIFE)
        grown = {name: period.after[name] - period.before[name] for name in number}
        return replace(
            self,
            periods=self.periods + 1,
            rows=tuple(rows.values()),
            ahead=tuple(max(0.0, rows[name] + grown[name]) for name in number),
            series=series,
        )

    def problem(self, *, smooth: bool, accounting: Accounting = Accounting.TUPLE) -> Operator:
        """Return the operator whose cheapest orders are to be found, with statistics for the next
        period.

        Args:
            smooth: whether statistics are forecast; otherwise the last period's are used.
            accounting: definition of an order's cost.
        """
        newest = self.periods - 1
        kept = {k: s for k, s in self.series.items() if newest - s.times[-1] < self.length}
        values = {k: s.values[-1] for k, s in kept.items()}
        if smooth:
            # A series that ended before the last period has no forecast.
            going = [(k, s) for k, s in kept.items() if s.times[-1] == newest]
            made = forecasts([(s, kind) for (kind, _), s in going], 1.0)
            values |= {k: f.value or 0.0 for (k, _), f in zip(going, made, strict=True)}
        count = range(len(self.names))
        keys = tuple(values[StatisticKind.RATE, (1 << n, n)] for n in count)
        rows = self.ahead if smooth else self.rows
        measured = {
            step: _Measured(
                hits,
                values[StatisticKind.HIT_RATIO, step],
                kept[StatisticKind.MATCHES, step].times[-1] < newest,
            )
            for (kind, step), hits in values.items()
            if kind is StatisticKind.MATCHES
        }
        return Operator(
            names=self.names,
            weights=tuple(values[StatisticKind.RATE, (0, n)] for n in count),
            keys=keys,
            rows=rows,
            near=self.near,
            figures=_figures(self.near, measured, rows, keys),
            accounting=accounting,
        )


@dataclass(frozen=True, slots=True)
class _Measured:
    """Hits per pair and gamma of a step; ``stale``: the step did not run in the last period."""

    hits: float
    gamma: float
    stale: bool


@dataclass(frozen=True, slots=True)
class StepFigures:
    """Matches of all steps, in the form that ``benchmarks.papers.dppick`` reads."""

    streams: int
    matches: Mapping[Step, Match]

    @property
    def by_start(self) -> bool:
        """Return False: a step is counted whichever input the order started from."""
        return False

    @property
    def by_side(self) -> bool:
        """Return False: the set of probing inputs determines the matches."""
        return False

    def one(self, start: int, visited: int, side: int, target: int) -> Match:
        """Return the matches of the step from the set ``visited`` to ``target``."""
        return self.matches[visited, target]

    def many(self, start: int, visited: Masks, side: int, allowed: Flags) -> tuple[Floats, Floats]:
        """Return gamma and mu of the steps from many sets."""
        gamma, mu = np.zeros(allowed.shape), np.zeros(allowed.shape)
        for row, target in np.argwhere(allowed).tolist():
            match = self.matches[int(visited[row]), target]
            gamma[row, target], mu[row, target] = match.gamma, match.mu
        return gamma, mu


def _figures(
    near: tuple[int, ...],
    measured: Mapping[Step, _Measured],
    rows: tuple[float, ...],
    keys: tuple[float, ...],
) -> StepFigures:
    """Return the matches of the steps from every set of inputs to every input that joins it."""
    streams = len(near)
    found = {}
    for visited in range(1, 1 << streams):
        for target in range(streams):
            around = near[target] & visited
            if around and not visited >> target & 1:
                found[visited, target] = _estimate(
                    visited, target, around, near, measured, rows, keys
                )
    return StepFigures(streams, found)


def _estimate(
    visited: int,
    target: int,
    around: int,
    near: tuple[int, ...],
    measured: Mapping[Step, _Measured],
    rows: tuple[float, ...],
    keys: tuple[float, ...],
) -> Match:
    """Estimate a step's matches as the module says: from the measured step of the least rank."""
    candidates: list[tuple[tuple[int, ...], float, float | None]] = []
    for (head, probed), known in measured.items():
        if probed == target and head & around:
            common = (head & around).bit_count()
            more = (head & near[target] & ~visited).bit_count()
            rank = (known.stale, False, -common, more, (head ^ visited).bit_count(), head)
            candidates.append((rank, known.hits, known.gamma))
        elif around >> probed & 1 and head >> target & 1:
            rank = (known.stale, True, 0, head.bit_count(), probed, head)
            candidates.append((rank, known.hits, None))
    if not candidates:
        most = max(1.0, keys[target], *(k for n, k in enumerate(keys) if around >> n & 1))
        return _match(rows[target] / most, None)
    _, hits, gamma = min(candidates, key=lambda one: one[0])
    return _match(hits * rows[target], gamma)


def _match(mean: float, gamma: float | None) -> Match:
    """Return the matches of a step with ``mean`` partners per probe. If ``gamma`` is unknown, the
    number of partners is taken as Poisson distributed, as by ``SizeFigures``.
    """
    share = -math.expm1(-mean) if gamma is None else min(gamma, mean)
    return Match(share, mean / share) if share > 0 else Match(0.0, 1.0)
