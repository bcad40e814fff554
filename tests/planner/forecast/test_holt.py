"""Compare Holt smoothing with given parameters with statsmodels, and with the equations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from anabranch_planner.forecast.holt import (
    Path,
    Smoothing,
    ahead,
    paths,
    powers_until,
    smooth,
)
from tests.planner.forecast.samples import random_columns

share = st.floats(0, 1)
parameters = st.tuples(share, share, st.one_of(st.just(1.0), st.floats(0.1, 1.0)))


def given_smoothing(alpha: float, beta: float, phi: float, count: int = 1) -> Smoothing:
    return Smoothing(np.full(count, alpha), np.full(count, beta), np.full(count, phi))


@pytest.mark.parametrize("phi", [1.0, 0.98, 0.8])
@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.2), (0.9, 0.9), (0.05, 0.5), (1.0, 0.1)])
def test_agrees_with_statsmodels(alpha: float, beta: float, phi: float) -> None:
    values = random_columns(1)
    rng = np.random.default_rng(2)
    level, trend = rng.normal(size=(2, values.shape[1]))
    smoothing = given_smoothing(alpha, beta, phi, values.shape[1])
    found = smooth(values, smoothing, Path(level + phi * trend, phi * phi * trend))
    for column in range(values.shape[1]):
        model = ExponentialSmoothing(
            values[:, column],
            trend="add",
            damped_trend=phi < 1,
            initialization_method="known",
            initial_level=level[column],
            initial_trend=trend[column],
        )
        damping = {"damping_trend": phi} if phi < 1 else {}
        theirs = model.fit(smoothing_level=alpha, smoothing_trend=beta, optimized=False, **damping)
        np.testing.assert_allclose(found.errors[:, column], theirs.resid, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.levels[:, column], theirs.level, rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            found.steps[:, column], phi * np.asarray(theirs.trend), rtol=0, atol=1e-9
        )
        ours = [
            ahead(found.levels[-1], found.steps[-1], float(h), smoothing.phi)[column]
            for h in range(1, 8)
        ]
        np.testing.assert_allclose(ours, theirs.forecast(7), rtol=0, atol=1e-9)


@given(parameters, st.integers(0, 1000), st.integers(1, 80))
def test_follows_the_equations(
    given_parameters: tuple[float, float, float], seed: int, length: int
) -> None:
    alpha, beta, phi = given_parameters
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(size=length))
    level, trend = rng.normal(size=2)
    path = Path(np.array([level + phi * trend]), np.array([phi * phi * trend]))
    found = smooth(values[:, None], given_smoothing(*given_parameters), path)
    for t, value in enumerate(values):
        error = value - level - phi * trend
        level, trend = level + phi * trend + alpha * error, phi * trend + alpha * beta * error
        assert found.errors[t, 0] == pytest.approx(error, abs=1e-9)
        assert found.levels[t, 0] == pytest.approx(level, abs=1e-9)
        assert found.steps[t, 0] == pytest.approx(phi * trend, abs=1e-9)


@given(parameters, st.floats(-100, 100), st.floats(-10, 10))
def test_a_path_is_without_errors_and_goes_on(
    given_parameters: tuple[float, float, float], first: float, rise: float
) -> None:
    smoothing = given_smoothing(*given_parameters)
    path = Path(np.array([first]), np.array([rise]))
    whole = paths(30, path, smoothing.phi)
    found = smooth(whole[:20], smoothing, path)
    np.testing.assert_allclose(found.errors, 0, atol=1e-9)
    for horizon in range(1, 11):
        forecast = ahead(found.levels[-1], found.steps[-1], float(horizon), smoothing.phi)
        assert forecast[0] == pytest.approx(whole[19 + horizon, 0], abs=1e-7)


@given(st.floats(0.1, 1.0), st.integers(0, 12))
def test_powers_are_the_sum_where_the_horizon_is_whole(phi: float, horizon: int) -> None:
    expected = sum(phi**power for power in range(horizon))
    assert powers_until(float(horizon), np.array([phi]))[0] == pytest.approx(expected)


@given(st.one_of(st.just(1.0), st.floats(0.1, 0.999)), st.floats(0, 20), st.floats(0.01, 20))
def test_powers_grow_with_the_horizon(phi: float, horizon: float, more: float) -> None:
    near, far = (powers_until(h, np.array([phi]))[0] for h in (horizon, horizon + more))
    assert near <= far
