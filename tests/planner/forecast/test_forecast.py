"""Tests of forecasts of statistics: exact for exact trends, bounded, and no trend
without evidence.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import StatisticsError
from anabranch_planner.forecast.forecast import (
    EVIDENCE,
    Forecast,
    Method,
    StatisticKind,
    forecasts,
)
from anabranch_planner.forecast.series import Series
from tests.planner.forecast.samples import PERIOD, forecast, random_columns, series_of

kinds = st.sampled_from(StatisticKind)
LINEAR = [StatisticKind.RATE, StatisticKind.MATCHES]


@given(kinds, st.floats(0, 1), st.integers(2, 70), st.sampled_from([0.5, 1.0, 7.0]))
def test_a_constant_is_forecast_exactly(
    kind: StatisticKind, constant: float, length: int, horizon: float
) -> None:
    found = forecast(series_of([constant] * length), kind, PERIOD, horizon)
    assert (found.value, found.method) == (constant, Method.LAST)


@given(
    st.sampled_from(LINEAR),
    st.integers(0, 1000),
    st.integers(1, 50),
    st.integers(9, 70),
    st.sampled_from([0.5, 1.0, 2.0, 3.7]),
)
def test_a_line_is_forecast_exactly(
    kind: StatisticKind, first: int, rise: int, length: int, horizon: float
) -> None:
    found = forecast(
        series_of([float(first + rise * t) for t in range(length)]), kind, PERIOD, horizon
    )
    whole = math.ceil(horizon)
    if length - whole - 3 < EVIDENCE:
        assert (found.method, found.error) == (Method.LAST, None)
        return
    assert found.method is Method.TREND
    assert found.value == pytest.approx(first + rise * (length - 1 + horizon))
    assert found.error == pytest.approx(0, abs=1e-6 * (first + rise))
    assert found.error_of_last == pytest.approx(rise * whole)


@given(st.integers(0, 1000), st.integers(1, 50), st.sets(st.integers(1, 38), max_size=15))
def test_gaps_leave_a_line_as_it_is(first: int, rise: int, missing: set[int]) -> None:
    measured = [(t * PERIOD, float(first + rise * t), 1.0) for t in range(40) if t not in missing]
    series = Series.of(measured)
    found = forecast(series, StatisticKind.RATE, PERIOD)
    assert found.method is Method.TREND
    assert found.value == pytest.approx(first + rise * 40)


@given(kinds, st.integers(0, 500), st.sampled_from([1.0, 4.0, 30.0]))
def test_forecasts_are_within_the_bounds_of_their_kind(
    kind: StatisticKind, seed: int, horizon: float
) -> None:
    values = random_columns(seed, each=1)
    low, high = kind.bounds
    for found in forecasts([(series_of(c), kind) for c in values.T], PERIOD, horizon):
        assert found.value is not None
        assert low <= found.value <= high


def test_a_falling_rate_ends_at_nothing_and_a_rising_ratio_at_one() -> None:
    down = series_of([float(100 - 10 * t) for t in range(11)])
    up = series_of([t / 20 for t in range(20)])
    assert forecast(down, StatisticKind.RATE, PERIOD, 5.0).value == 0
    ratio = forecast(up, StatisticKind.HIT_RATIO, PERIOD, 3.0)
    assert (ratio.value, ratio.method) == (1.0, Method.TREND)


@given(
    st.lists(st.tuples(kinds, st.integers(1, 30), st.integers(0, 99)), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_a_series_gets_the_same_alone_and_in_any_batch(
    drawn: list[tuple[StatisticKind, int, int]], random: object
) -> None:
    asked = []
    for kind, length, seed in drawn:
        rng = np.random.default_rng(seed)
        series = series_of(rng.normal(5, 2, length), rng.uniform(0.5, 9, length))
        asked.append((series, kind))
    order = np.random.default_rng(len(drawn)).permutation(len(asked))
    together = forecasts(asked, PERIOD, 1.5)
    assert forecasts([asked[i] for i in order], PERIOD, 1.5) == tuple(together[i] for i in order)
    assert tuple(forecast(s, k, PERIOD, 1.5) for s, k in asked) == together


@pytest.mark.parametrize("place", [1, 10, 30, 57, 58, 59])
@pytest.mark.parametrize("rise", [0.0, 3.0])
def test_one_outlier_moves_the_forecast_by_less_than_a_tenth(place: int, rise: float) -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).normal(200, 2, 60) + rise * np.arange(60)
        clean = forecast(series_of(values), StatisticKind.RATE, PERIOD)
        values[place] *= 100
        dirty = forecast(series_of(values), StatisticKind.RATE, PERIOD)
        assert clean.value is not None
        assert dirty.value == pytest.approx(clean.value, rel=0.1)


def test_a_change_of_level_is_followed_from_its_second_value_on() -> None:
    values = [*np.random.default_rng(3).normal(10, 0.1, 40), 50.0, 50.1]
    found = forecast(series_of(values), StatisticKind.RATE, PERIOD)
    assert found.value is not None
    assert found.value > 45


def test_a_walk_is_forecast_by_its_last_value_and_a_trend_by_the_trend() -> None:
    rng = np.random.default_rng(7)
    count = 200
    walks = np.abs(np.cumsum(rng.normal(size=(60, count)), axis=0) + 100)
    trends = rng.normal(size=(60, count)) + 100 + 2 * np.arange(60)[:, None]
    by_trend = []
    for values in (walks, trends):
        found = forecasts([(series_of(c), StatisticKind.RATE) for c in values.T], PERIOD)
        assert all((f.method is Method.TREND) == (_gain(f) > 0) for f in found)
        by_trend.append(sum(f.method is Method.TREND for f in found) / count)
    assert by_trend[0] < 0.25
    assert by_trend[1] > 0.95


def _gain(found: Forecast) -> float:
    assert found.error is not None
    assert found.error_of_last is not None
    return found.error_of_last - found.error


def test_measured_errors_tell_what_errors_will_be() -> None:
    rng = np.random.default_rng(17)
    values = rng.normal(size=(61, 300)) + 100 + 2 * np.arange(61)[:, None]
    found = forecasts([(series_of(c[:-1]), StatisticKind.RATE) for c in values.T], PERIOD)
    made = np.mean([abs((f.value or 0) - c[-1]) for f, c in zip(found, values.T, strict=True)])
    told = np.mean([f.error for f in found if f.error is not None])
    assert told == pytest.approx(made, rel=0.2)


@pytest.mark.parametrize("kind", StatisticKind)
def test_none_one_and_few_values(kind: StatisticKind) -> None:
    assert forecast(Series(), kind, PERIOD) == Forecast(None, Method.NONE)
    for values in ([0.25], [0.25, 0.5], [0.0, 0.25, 0.75]):
        assert forecast(series_of(values), kind, PERIOD) == Forecast(values[-1], Method.LAST)


def test_what_a_series_refuses_changes_no_forecast_and_a_clock_set_back_begins_anew() -> None:
    measured = [(t * PERIOD, float(t), 1.0) for t in range(20)]
    refused = Series.of([*measured, (60.0, math.nan, 1.0)])
    assert refused == Series.of(measured)
    assert forecast(refused, StatisticKind.MATCHES, PERIOD) == forecast(
        series_of([float(t) for t in range(20)]), StatisticKind.MATCHES, PERIOD
    )
    anew = Series.of([*measured, (-5.0, 3.0, 1.0)])
    assert forecast(anew, StatisticKind.MATCHES, PERIOD) == Forecast(3.0, Method.LAST)


def test_what_is_old_counts_less() -> None:
    rng = np.random.default_rng(23)
    values = [*(rng.normal(100, 5, 40)), *(100 + 4 * np.arange(20) + rng.normal(0, 0.5, 20))]
    fading = forecast(series_of(values, half_life=15.0), StatisticKind.RATE, PERIOD)
    lasting = forecast(series_of(values, half_life=math.inf), StatisticKind.RATE, PERIOD)
    assert fading.error is not None
    assert lasting.error is not None
    assert fading.error < lasting.error / 2


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("field", ["period", "horizon"])
def test_bad_input_is_refused_by_name(field: str, value: float) -> None:
    given_values = {"period": PERIOD, "horizon": 1.0} | {field: value}
    with pytest.raises(StatisticsError) as caught:
        forecast(series_of([1.0, 2.0]), StatisticKind.RATE, **given_values)
    assert caught.value.field == field


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=30), kinds)
def test_any_values_that_a_series_takes_have_a_finite_forecast(
    values: list[float], kind: StatisticKind
) -> None:
    found = forecast(series_of(values), kind, PERIOD)
    assert found.value is not None
    assert math.isfinite(found.value)
