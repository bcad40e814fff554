"""Compare measured forecast errors with forecasts made from one origin at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_planner.forecast.backtest import backtest
from anabranch_planner.forecast.fitting import fit, refits
from anabranch_planner.forecast.holt import ahead, smooth
from tests.planner.forecast.samples import random_columns

NOTHING = (-math.inf, math.inf)


def slowly(values: np.ndarray, weights: np.ndarray, damped: bool, horizon: int) -> list[float]:
    """The trend's error, the last value's error, and the targets of the first column, by a loop."""
    trend = last = mass = 0.0
    targets = 0
    for origin in range(3, len(values) - horizon):
        known = values[: origin + 1]
        # The newest refit at or before the origin.
        fitted_to = max(n for n in refits(len(values)) if n <= origin + 1)
        _, history = fit(values[:fitted_to], weights[:fitted_to], damped)
        one = history.at(-1)
        found = smooth(known, one.smoothing, one.path)
        forecast = ahead(found.levels[-1], found.steps[-1], float(horizon), one.smoothing.phi)[0]
        weight = weights[origin + horizon, 0]
        if weight > 0 and weights[origin, 0] > 0:
            trend += weight * abs(forecast - values[origin + horizon, 0])
            last += weight * abs(known[-1, 0] - values[origin + horizon, 0])
            mass += weight
            targets += 1
    return [trend / mass, last / mass, targets]


@pytest.mark.parametrize("damped", [False, True])
@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_is_what_origins_one_by_one_give(damped: bool, horizon: int) -> None:
    values = random_columns(8, each=1)
    weights = np.random.default_rng(1).uniform(0.1, 2, values.shape)
    weights[20:24] = 0
    _, history = fit(values, weights, damped)
    found = backtest(values, weights, history, horizon, NOTHING)
    for column in range(values.shape[1]):
        pair = [column, column]
        expected = slowly(values[:, pair], weights[:, pair], damped, horizon)
        measured = [found.trend[column], found.last[column], found.targets[column]]
        assert measured == pytest.approx(expected, rel=1e-9)


@given(st.integers(2, 8), st.integers(1, 8))
def test_short_series_have_as_many_targets_as_origins(length: int, horizon: int) -> None:
    values = random_columns(2, length=12, each=1)[:length]
    weights = np.ones_like(values)
    _, history = fit(values, weights, damped=False)
    found = backtest(values, weights, history, horizon, NOTHING)
    assert (found.targets == max(0, length - horizon - 3)).all()


def test_forecasts_are_bounded_before_they_are_compared() -> None:
    values = np.linspace(0.9, 0.0, 20)[:, None].repeat(2, axis=1)
    values = np.vstack([values, np.zeros((20, 2))])
    weights = np.ones_like(values)
    _, history = fit(values, weights, damped=False)
    free = backtest(values, weights, history, 3, NOTHING)
    bounded = backtest(values, weights, history, 3, (0.0, 1.0))
    assert (bounded.trend < free.trend).all()
    assert (bounded.last == free.last).all()


def test_a_series_gets_the_same_errors_in_any_batch() -> None:
    values = random_columns(13, each=1)
    weights = np.ones_like(values)
    _, history = fit(values, weights, damped=True)
    whole = backtest(values, weights, history, 1, NOTHING)
    order = [3, 1, 6, 0, 2, 5, 4]
    _, other = fit(values[:, order], weights[:, order], damped=True)
    mixed = backtest(values[:, order], weights[:, order], other, 1, NOTHING)
    assert (whole.trend[order] == mixed.trend).all()
