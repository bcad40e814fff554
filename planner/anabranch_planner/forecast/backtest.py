"""Forecast errors, measured by a rolling origin over a series' own history.

Each origin uses only earlier values: parameters and path were fitted to the values up to the last
refit before the origin (:func:`.fitting.refits`), level and trend are updated up to the origin. Its
forecast is compared with the value ``horizon`` periods later, and so is the last value. (L. J.
Tashman, "Out-of-sample tests of forecasting accuracy", International Journal of Forecasting 16,
2000: rolling origin, recalibrated.) Origins and targets are measured values, not filled ones;
errors count by the weight of the target. Both methods see cleaned values (:mod:`.outliers`), and an
outlier is cleaned with its successor known; at the last value it is not.
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
    """Mean absolute errors, one element per series.

    Attributes:
        trend: of the smoothed trend, in the series' unit; 0 without targets.
        last: of the last value, at the same targets.
        targets: how many values were forecast.
    """

    trend: Array
    last: Array
    targets: Places


def backtest(
    values: Array,
    weights: Array,
    history: Fit,
    horizon: int,
    bounds: tuple[float, float],
) -> Backtest:
    """Forecast each value that is ``horizon`` periods behind an origin.

    Args:
        values: shape (time, series).
        weights: the same shape; 0: not measured.
        history: the refits, of shape (refit, series).
        horizon: whole periods, at least 1.
        bounds: least and greatest forecast.
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
    # A refit after n values serves the origins from the n-th value on, until the next one.
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
