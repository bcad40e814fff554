"""Resampling of series to one value per period, as one array for many series.

Periods are counted back from a series' newest measurement. A measurement belongs to the nearest
period; the value of a period is the weighted mean of its measurements. At most ``length`` periods
are kept; older measurements are dropped.

**Gaps** are filled by the straight line between the measured neighbours, with weight 0. It is a
line, because a constant value would look to smoothing like a trend that stops and then jumps. Along
the line, level and trend reach the next measurement with the gap's mean slope, and a linear series
stays linear. Its weight is 0, so that a gap, which has no measured error, favours no method. The
line uses the measurement after the gap, but no forecast begins inside a gap (:mod:`.backtest`), so
no forecast uses later data.

**Fading.** A value counts by its weight times ``2^(-age / half_life)``, where its age is the time
from its period to the newest period.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from anabranch_contract.errors import StatisticsError
from anabranch_planner.forecast.series import Series

#: Array of floats; each use documents its shape.
Array = npt.NDArray[np.float64]
#: Array of counts or indices in the resampled series.
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Grid:
    """Resampled series as columns of one array, each beginning in the first row.

    Attributes:
        values: shape (time, series), oldest first; after its end a series repeats its last value.
        weights: the same shape; 0 where nothing was measured, and after the end.
        lengths: number of rows of each series.
    """

    values: Array
    weights: Array
    lengths: Places


def resample(series: Sequence[Series], period: float) -> Grid:
    """Resample all ``series`` to one value per ``period`` seconds.

    Args:
        series: one or more, none of them empty.
        period: seconds.

    Raises:
        StatisticsError: the period is not finite, or not above 0 (field ``period``).

    >>> from anabranch_planner.forecast.series import Series
    >>> gap = Series(times=(0.0, 3.1, 9.0), values=(5.0, 7.0, 11.0), weights=(1.0, 2.0, 1.0))
    >>> found = resample([gap], 3.0)
    >>> found.values.ravel().tolist(), (found.weights.ravel() > 0).tolist()
    ([5.0, 7.0, 9.0, 11.0], [True, True, False, True])
    """
    check_positive(period, "period", "seconds")
    counts = np.array([len(s) for s in series])
    bounds = np.array([s.length for s in series])
    total = int(counts.sum())
    times, values, weights = (
        np.fromiter(chain.from_iterable(getattr(s, name) for s in series), np.float64, total)
        for name in ("times", "values", "weights")
    )
    which = np.repeat(np.arange(len(counts)), counts)
    with np.errstate(over="ignore"):
        back = np.floor((times[np.cumsum(counts) - 1][which] - times) / period + 0.5)
    near = back < bounds[which]
    which, values, weights = which[near], values[near], weights[near]
    back = back[near].astype(np.intp)
    # Index of each series' oldest remaining measurement, which determines its number of rows.
    firsts = np.searchsorted(which, np.arange(len(counts)))
    lengths = back[firsts] + 1
    starts = np.cumsum(lengths) - lengths
    weights = weights / np.maximum.reduceat(weights, firsts)[which]

    # Concatenate all series: each begins and ends with a measurement, so no gap spans two series.
    size = int(lengths.sum())
    at = (starts + lengths - 1)[which] - back
    many = np.bincount(at, minlength=size)
    mass = np.bincount(at, weights, size)
    mean = np.zeros(size)
    np.divide(np.bincount(at, weights * values, size), mass, mean, where=many > 0)
    # For periods with one measurement, avoid the rounding error of a weighted mean.
    alone = many[at] == 1
    mean[at[alone]] = values[alone]
    gaps = np.flatnonzero(many == 0)
    if gaps.size:
        there = np.flatnonzero(many)
        mean[gaps] = np.interp(gaps, there, mean[there])

    owner = np.repeat(np.arange(len(counts)), lengths)
    row = np.arange(size) - starts[owner]
    half_lives = np.array([s.half_life for s in series])
    ages = (lengths[owner] - 1 - row) * period
    shape = (int(lengths.max()), len(counts))
    grid = np.broadcast_to(mean[starts + lengths - 1], shape).copy()
    grid[row, owner] = mean
    faded = np.zeros(shape)
    faded[row, owner] = mass * np.exp2(-ages / half_lives[owner])
    return Grid(grid, faded, lengths)


def check_positive(number: float, field: str, unit: str) -> None:
    """Check that a forecast's ``number`` is finite and above 0.

    Raises:
        StatisticsError: it is not; the error names ``field``.
    """
    if not 0 < number < math.inf:
        raise StatisticsError(
            "invalid-forecast",
            f"{number} is not a finite number above 0",
            field=field,
            remedy=f"give {unit}, above 0",
        )
