"""Forecasts of statistics, together with the errors of earlier forecasts.

dpPick forecasts the inputs of its cost model by "quadratic exponential smoothing" (section 4.3):
matched records per match by Holt's linear trend, hit ratios by the damped trend. Here rates are
forecast as well, by the linear trend; stored rows are counted, not forecast. The assumption of a
trend is checked per series: if its forecasts did not have smaller errors than the last value
(:mod:`.backtest`), the last value is the forecast.

Passes: :mod:`.grid`, :mod:`.outliers`, :mod:`.fitting`, :mod:`.backtest`, then an extrapolation.
All series with the same trend and bounds go through them as one array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from anabranch_planner.forecast.backtest import backtest
from anabranch_planner.forecast.fitting import fit
from anabranch_planner.forecast.grid import check_positive, resample
from anabranch_planner.forecast.holt import ahead, smooth
from anabranch_planner.forecast.outliers import cleaned
from anabranch_planner.forecast.series import Series

#: Minimum number of past forecasts with a measured error before a trend is used.
EVIDENCE = 4
#: A trend is used if its error relative to that of the last value is below this ratio.
GAIN = 1 - 1e-9


class StatisticKind(StrEnum):
    """Type of a statistic, which determines the trend model and the range of forecasts."""

    #: Tuples per second; forecast by a linear trend, at least 0.
    RATE = "rate"
    #: dpPick's μ, rows per look-up with a match; forecast by a linear trend, at least 0.
    MATCHES = "matches"
    #: dpPick's γ, fraction of look-ups with a match; forecast by a damped trend, 0 to 1.
    HIT_RATIO = "hit_ratio"

    @property
    def damped(self) -> bool:
        """Whether forecasts use the damped trend, which fades with the horizon."""
        return self is StatisticKind.HIT_RATIO

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest possible value of this statistic, to which forecasts are clipped."""
        return (0.0, 1.0) if self is StatisticKind.HIT_RATIO else (0.0, math.inf)


class Method(StrEnum):
    """Method by which a value was forecast."""

    #: Nothing has been measured.
    NONE = "none"
    #: The last measured value, cleaned if it is an outlier.
    LAST = "last"
    #: Holt's linear trend, or the damped trend.
    TREND = "trend"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of one statistic, with the errors of earlier forecasts.

    Attributes:
        value: expected value in the statistic's unit; None: nothing has been measured.
        method: the method of the forecast.
        error: mean absolute error of the trend's forecasts over the series' history; None: fewer
            than :data:`EVIDENCE` forecasts could be compared with a measurement.
        error_of_last: mean absolute error of the last value as forecast, at the same times.
    """

    value: float | None
    method: Method
    error: float | None = None
    error_of_last: float | None = None


def forecasts(
    asked: Sequence[tuple[Series, StatisticKind]], period: float, horizon: float = 1.0
) -> tuple[Forecast, ...]:
    """The forecasts of many series of measurements, in their order, independent of each other.

    Args:
        asked: series with the types of their statistics.
        period: seconds between measurements: the unit of the trend.
        horizon: periods after the newest measurement, not necessarily whole. Errors are measured
            for the next whole number of periods.

    Raises:
        StatisticsError: ``period`` or ``horizon`` is not finite, or not above 0.

    >>> from anabranch_planner.forecast.series import Series
    >>> series = Series.of((float(second), 100.0 + second, 1.0) for second in range(0, 60, 3))
    >>> (found,) = forecasts([(series, StatisticKind.RATE)], period=3.0, horizon=2.0)
    >>> found.method, round(found.value, 6), round(found.error_of_last, 6)
    (<Method.TREND: 'trend'>, 163.0, 6.0)
    """
    check_positive(period, "period", "seconds")
    check_positive(horizon, "horizon", "periods")
    found = [Forecast(None, Method.NONE)] * len(asked)
    for damped, bounds in sorted({(kind.damped, kind.bounds) for _, kind in asked}):
        places = [
            place
            for place, (series, kind) in enumerate(asked)
            if len(series) and (kind.damped, kind.bounds) == (damped, bounds)
        ]
        if places:
            batch = [asked[place][0] for place in places]
            made = _batch(batch, damped, bounds, period, horizon)
            for place, one in zip(places, made, strict=True):
                found[place] = one
    return tuple(found)


def _batch(
    batch: Sequence[Series],
    damped: bool,
    bounds: tuple[float, float],
    period: float,
    horizon: float,
) -> list[Forecast]:
    """Forecasts of nonempty series that have the same trend model and bounds."""
    # Duplicate a single series, since numpy sums an array with one column in another order.
    grid = resample([*batch, batch[0]] if len(batch) == 1 else batch, period)
    values = cleaned(grid.values, grid.lengths)
    series = np.arange(values.shape[1])
    last = np.clip(values[grid.lengths - 1, series], *bounds)
    if len(values) < EVIDENCE:
        return [Forecast(value, Method.LAST) for value in last[: len(batch)].tolist()]

    fitted, history = fit(values, grid.weights, damped)
    known = smooth(values, fitted.smoothing, fitted.path)
    ends = (grid.lengths - 1, series)
    trend = ahead(known.levels[ends], known.steps[ends], horizon, fitted.smoothing.phi)
    trend = np.clip(trend, *bounds)
    tested = backtest(values, grid.weights, history, math.ceil(horizon), bounds)
    measured = tested.targets >= EVIDENCE
    better = measured & (tested.trend < GAIN * tested.last)
    columns = (np.where(better, trend, last), better, measured, tested.trend, tested.last)
    return [
        Forecast(
            value,
            Method.TREND if by_trend else Method.LAST,
            error if known_error else None,
            error_of_last if known_error else None,
        )
        for value, by_trend, known_error, error, error_of_last in zip(
            *(c[: len(batch)].tolist() for c in columns), strict=True
        )
    ]
