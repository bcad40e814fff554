"""Errors of past forecasts, measured with a rolling origin over each series' own history.

A forecast from an origin (a time in the past) uses only values up to the origin: the parameters are
from the last fit before the origin (:func:`.fitting.refits`), level and trend are updated up to the
origin. The forecast is compared with the value ``horizon`` periods later, and so is the last value
before the origin. (L. J. Tashman, "Out-of-sample tests of forecasting accuracy", International
Journal of Forecasting 16, 2000: rolling origin, recalibrated.) Origins and targets are measured
values, not filled ones; errors are weighted by the target's weight. Both methods use cleaned values
(:mod:`.outliers`). An outlier is cleaned with knowledge of its successor, except at the last value.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anabranch_planner.forecast.fitting import Fit, refits
from anabranch_planner.forecast.grid import Array, Places
from anabranch_planner.forecast.holt import Path, Smoothing, ahead, smooth


@dataclass(frozen=True, slots=True)
class Backtest:
    """Mean absolute errors of past forecasts, one element per series.

    Attributes:
        trend: error of the smoothed trend, in the series' unit; 0 without targets.
        last: error if the last value is taken as the forecast, for the same targets.
        targets: number of values that were forecast.
    """

    trend: Array
    last: Array
    targets: Places


def backtest(
    values: Array, weights: Array, history: Fit, horizon: int, bounds: tuple[float, float]
) -> Backtest:
    """Mean errors of forecasting a series' values from values up to ``horizon`` periods earlier.

    Args:
        values: shape (time, series).
        weights: the same shape; 0 marks values that were not measured.
        history: parameters fitted to the beginnings of the series; arrays of shape (refit, series).
        horizon: whole periods, at least 1.
        bounds: least and greatest possible value, to which forecasts are clipped.
    """
    count = values.shape[1]
    ends = refits(len(values))
    early = len(ends) - 1
    origins = slice(ends[0] - 1, len(values) - horizon)
    if not early or origins.stop <= origins.start:
        return Backtest(np.zeros(count), np.zeros(count), np.zeros(count, np.intp))

    def flat(refitted: Array) -> Array:
        return refitted[:early].reshape(-1)

    s, p = history.smoothing, history.path
    smoothing = Smoothing(flat(s.alpha), flat(s.beta), flat(s.phi))
    known = smooth(np.tile(values, early), smoothing, Path(flat(p.first), flat(p.rise)))
    forecasts = ahead(known.levels, known.steps, float(horizon), smoothing.phi)
    by_refit = forecasts.reshape(len(values), early, count)
    # The parameters fitted to n values serve origins from the n-th value until the next refit.
    in_force = [by_refit[a - 1 : b - 1, k] for k, (a, b) in enumerate(pairwise(ends))]
    trend = np.clip(np.concatenate(in_force)[: origins.stop - origins.start], *bounds)

    actual, last = values[origins.start + horizon :], np.clip(values[origins], *bounds)
    counted = np.where(weights[origins] > 0, weights[origins.start + horizon :], 0.0)
    total = np.add.reduce(counted, axis=0)
    divisor = np.where(total > 0, total, 1.0)
    return Backtest(
        np.add.reduce(counted * np.abs(trend - actual), axis=0) / divisor,
        np.add.reduce(counted * np.abs(last - actual), axis=0) / divisor,
        np.count_nonzero(counted, axis=0),
    )
