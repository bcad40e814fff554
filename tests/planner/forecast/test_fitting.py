"""Compare fitted smoothing parameters with statsmodels' optimum, and with fits of fewer series or
values.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.tools.sm_exceptions import ConvergenceWarning
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from anabranch_planner.forecast.fitting import DAMPING, fit, refits
from anabranch_planner.forecast.holt import Path, Smoothing, paths, smooth
from tests.planner.forecast.samples import random_columns

#: statsmodels warns if its own search has not converged; its error is then not the minimum.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:statsmodels.*"),
]


def best_of_statsmodels(values: np.ndarray, damped: bool) -> float:
    model = ExponentialSmoothing(
        values,
        trend="add",
        damped_trend=damped,
        initialization_method="estimated",
        bounds={"damping_trend": (DAMPING[0], DAMPING[-1])} if damped else None,
    )
    return float(model.fit().sse)


@pytest.mark.parametrize(
    ("damped", "worst", "share"), [(False, 1.02, 1.0), (True, 1.08, 0.95)], ids=["holt", "damped"]
)
def test_one_step_errors_are_near_statsmodels_optimum(
    damped: bool, worst: float, share: float
) -> None:
    values = random_columns(11)
    found, _ = fit(values, np.ones_like(values), damped)
    ours = np.square(smooth(values, found.smoothing, found.path).errors).sum(axis=0)
    theirs = [best_of_statsmodels(column, damped) for column in values.T]
    ratios = ours / theirs
    assert ratios.max() <= worst
    assert (ratios <= 1.02).mean() >= share
    assert ratios.mean() <= 1


@pytest.mark.parametrize("damped", [False, True])
def test_the_sum_is_that_of_the_errors(damped: bool) -> None:
    values = random_columns(5)
    weights = np.random.default_rng(6).uniform(0, 3, values.shape)
    found, history = fit(values, weights, damped)
    for end, one in zip(refits(60), [history.at(k) for k in range(6)], strict=True):
        errors = smooth(values[:end], one.smoothing, one.path).errors
        expected = (weights[:end] * errors**2).sum(axis=0)
        np.testing.assert_allclose(one.squares, expected, rtol=1e-6, atol=1e-9)
    errors = smooth(values, found.smoothing, found.path).errors
    np.testing.assert_allclose(found.squares, (weights * errors**2).sum(axis=0), rtol=1e-9)
    assert (found.squares <= history.squares[-1]).all()


@given(st.integers(0, 100), st.booleans())
def test_no_path_near_the_fitted_one_is_better(seed: int, damped: bool) -> None:
    values = random_columns(seed, length=30, each=1)
    weights = np.random.default_rng(seed).uniform(0.1, 3, values.shape)
    found, _ = fit(values, weights, damped)
    for first, rise in ((0.1, 0.0), (-0.1, 0.0), (0.0, 0.02), (0.0, -0.02), (0.1, 0.02)):
        other = Path(found.path.first + first, found.path.rise + rise)
        errors = smooth(values, found.smoothing, other).errors
        assert ((weights * errors**2).sum(axis=0) >= found.squares * (1 - 1e-9)).all()


@given(st.integers(0, 100), st.booleans(), st.permutations(range(7)))
def test_a_series_gets_the_same_in_any_batch(seed: int, damped: bool, order: list[int]) -> None:
    values = random_columns(seed, length=40, each=1)
    weights = np.random.default_rng(seed).uniform(0.1, 3, values.shape)
    together, _ = fit(values, weights, damped)
    otherwise, _ = fit(values[:, order], weights[:, order], damped)
    for a, b in (
        (together.smoothing.alpha, otherwise.smoothing.alpha),
        (together.smoothing.beta, otherwise.smoothing.beta),
        (together.smoothing.phi, otherwise.smoothing.phi),
        (together.path.first, otherwise.path.first),
        (together.path.rise, otherwise.path.rise),
    ):
        assert (a[order] == b).all()


@pytest.mark.parametrize("damped", [False, True])
def test_refits_know_nothing_of_what_comes_later(damped: bool) -> None:
    values = random_columns(9)
    changed = values.copy()
    changed[32:] += 50
    _, before = fit(values, np.ones_like(values), damped)
    _, after = fit(changed, np.ones_like(values), damped)
    early = [k for k, end in enumerate(refits(60)) if end <= 32]
    assert len(early) == 4
    for k in early:
        assert (before.at(k).smoothing.alpha == after.at(k).smoothing.alpha).all()
        assert (before.at(k).path.rise == after.at(k).path.rise).all()


@given(st.floats(-1e3, 1e3), st.floats(-1e2, 1e2), st.sampled_from(DAMPING))
def test_a_path_is_recognised(first: float, rise: float, phi: float) -> None:
    true = Path(np.array([first, first]), np.array([rise, rise]))
    for damped, kept in ((True, phi), (False, 1.0)):
        values = paths(40, true, np.full(2, kept))
        found, _ = fit(values, np.ones_like(values), damped)
        errors = smooth(values, found.smoothing, found.path).errors
        assert np.abs(errors).max() <= 1e-6 * (1 + abs(first) + abs(rise))


@pytest.mark.parametrize("weight", [1e-100, 1.0, 1e100])
def test_two_values_and_extreme_weights_have_a_fit(weight: float) -> None:
    values = np.array([[3.0, -1e90], [5.0, 1e90]])
    found, _ = fit(values, np.full((2, 2), weight), damped=True)
    smoothing: Smoothing = found.smoothing
    for parameter in (smoothing.alpha, smoothing.beta, smoothing.phi, found.path.first):
        assert np.isfinite(parameter).all()
