"""Tests of the grid with one value per period: gaps, fading weights, several series at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import StatisticsError
from anabranch_planner.forecast.grid import resample
from anabranch_planner.forecast.series import Series

PERIOD = 3.0
measured = st.lists(
    st.tuples(st.floats(0, 200), st.floats(-50, 50), st.floats(0.5, 9)), min_size=1, max_size=12
)


def built(measurements: list[tuple[float, float, float]], length: int = 20) -> Series:
    return Series.of(sorted(measurements), length)


def slowly(series: Series) -> tuple[list[float], list[float]]:
    """Return values and weights period by period, by the definition in the module's docstring."""
    newest = series.times[-1]
    periods: dict[int, list[tuple[float, float]]] = {}
    heaviest = 0.0
    for time, value, weight in zip(series.times, series.values, series.weights, strict=True):
        back = math.floor((newest - time) / PERIOD + 0.5)
        if back < series.length:
            periods.setdefault(back, []).append((value, weight))
            heaviest = max(heaviest, weight)
    values: list[float] = []
    weights: list[float] = []
    for back in range(max(periods), -1, -1):
        here = periods.get(back)
        if here is not None:
            mass = sum(w for _, w in here)
            values.append(sum(v * w for v, w in here) / mass)
            weights.append(mass / heaviest * 2 ** -(back * PERIOD / series.half_life))
            continue
        older, newer = min(b for b in periods if b > back), max(b for b in periods if b < back)
        known = {b: sum(v * w for v, w in p) / sum(w for _, w in p) for b, p in periods.items()}
        share = (older - back) / (older - newer)
        values.append(known[older] + share * (known[newer] - known[older]))
        weights.append(0.0)
    return values, weights


@given(st.lists(measured, min_size=1, max_size=4))
def test_many_series_are_what_each_is_period_by_period(
    several: list[list[tuple[float, float, float]]],
) -> None:
    series = [built(one) for one in several]
    grid = resample(series, PERIOD)
    for column, one in enumerate(series):
        values, weights = slowly(one)
        size = int(grid.lengths[column])
        assert size == len(values)
        np.testing.assert_allclose(grid.values[:size, column], values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(grid.weights[:size, column], weights, rtol=1e-9)
        assert (grid.values[size:, column] == grid.values[size - 1, column]).all()
        assert (grid.weights[size:, column] == 0).all()


def test_what_fades_is_decided_by_time_not_by_rank() -> None:
    dense = Series.of([(0.0, 1.0, 1.0), (3.0, 1.0, 1.0)], half_life=30.0)
    sparse = Series.of([(0.0, 1.0, 1.0), (60.0, 1.0, 1.0)], half_life=30.0)
    grid = resample([dense, sparse], PERIOD)
    assert grid.weights[0].tolist() == [pytest.approx(2**-0.1), pytest.approx(0.25)]


def test_a_gap_longer_than_the_series_leaves_what_is_after_it() -> None:
    series = Series.of([(0.0, 1.0, 1.0), (1e9, 7.0, 1.0)], 10)
    grid = resample([series], PERIOD)
    assert grid.values.tolist() == [[7.0]]


@pytest.mark.parametrize("period", [0.0, -3.0, math.nan, math.inf])
def test_a_period_that_is_none_is_refused_by_name(period: float) -> None:
    with pytest.raises(StatisticsError) as caught:
        resample([Series.of([(0.0, 1.0, 1.0)])], period)
    assert caught.value.field == "period"
