"""Random time series that resemble stream statistics, for forecast tests."""

from __future__ import annotations

import numpy as np

from anabranch_planner.forecast.forecast import Forecast, StatisticKind, forecasts
from anabranch_planner.forecast.grid import Array
from anabranch_planner.forecast.series import Series

#: Seconds between measurements.
PERIOD = 3.0


def random_columns(seed: int, length: int = 60, each: int = 6) -> Array:
    """Return noise, walks, trends, steps and waves, ``each`` of them; shape (length, 7 * each)."""
    rng = np.random.default_rng(seed)

    def noise(scale: float = 1.0) -> Array:
        return rng.normal(scale=scale, size=(length, each))

    time = np.arange(length, dtype=np.float64)[:, None]
    return np.hstack(
        [
            noise(),
            np.cumsum(noise(), axis=0),
            np.cumsum(noise(0.3), axis=0) + noise(),
            np.cumsum(np.cumsum(noise(0.1), axis=0), axis=0) + noise(),
            noise() + time * rng.normal(size=each),
            noise() + 5 * (time > rng.integers(5, length - 5, each)),
            noise(0.3) + 3 * np.sin(time / rng.uniform(2, 10, each)),
        ]
    )


def series_of(
    values: Array | list[float],
    weights: Array | list[float] | None = None,
    half_life: float = 60.0,
) -> Series:
    """Return a series with one measurement per period."""
    measured = [
        (row * PERIOD, float(value), 1.0 if weights is None else float(weights[row]))
        for row, value in enumerate(values)
    ]
    return Series.of(measured, max(2, len(values)), half_life)


def forecast(series: Series, kind: StatisticKind, period: float, horizon: float = 1.0) -> Forecast:
    """Return the forecast of one series."""
    return forecasts([(series, kind)], period, horizon)[0]
