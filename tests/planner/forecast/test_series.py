"""Tests of time series: bounded, in order, and refused input."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import StatisticsError
from anabranch_planner.forecast.series import LARGEST, LIGHTEST, LONGEST, Series

anything = st.one_of(
    st.floats(),
    st.floats(-100, 100),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 0.0, -1.0, 1e-300]),
)


@given(st.lists(st.tuples(anything, anything, anything), max_size=20), st.integers(2, 5))
def test_whatever_is_measured_the_series_is_valid_and_each_measurement_counts_as_it_should(
    measured: list[tuple[float, float, float]], length: int
) -> None:
    before = Series(length=length)
    for count, (time, value, weight) in enumerate(measured, 1):
        series = Series.of(measured[:count], length)
        # A series that is built from its own fields passes the checks again.
        assert Series(length, 60.0, series.times, series.values, series.weights) == series
        finite = all(abs(one) <= LARGEST for one in (time, value, weight))
        if not finite or weight < LIGHTEST or before.times[-1:] == (time,):
            assert series == before
        elif before.times and time < before.times[-1]:
            assert (series.times, series.values, series.weights) == ((time,), (value,), (weight,))
        else:
            assert series.times == (*before.times, time)[-length:]
            assert series.values[-1] == value
        before = series


@pytest.mark.parametrize(
    ("time", "value", "weight", "times"),
    [
        (6.0, math.nan, 1.0, (0.0, 3.0)),
        (6.0, -math.inf, 1.0, (0.0, 3.0)),
        (6.0, 1e101, 1.0, (0.0, 3.0)),
        (math.nan, 1.0, 1.0, (0.0, 3.0)),
        (math.inf, 1.0, 1.0, (0.0, 3.0)),
        (6.0, 1.0, math.nan, (0.0, 3.0)),
        (6.0, 1.0, 0.0, (0.0, 3.0)),
        (6.0, 1.0, -1.0, (0.0, 3.0)),
        (3.0, 1.0, 1.0, (0.0, 3.0)),
        (2.0, 1.0, 1.0, (2.0,)),
        (6.0, 1.0, 1.0, (0.0, 3.0, 6.0)),
    ],
)
def test_times_after_one_more_measurement(
    time: float, value: float, weight: float, times: tuple[float, ...]
) -> None:
    series = Series.of([(0.0, 1.0, 1.0), (3.0, 2.0, 1.0), (time, value, weight)])
    assert series.times == times
    assert series.values[: len(times) - 1] == (1.0, 2.0)[: len(times) - 1]


def test_the_oldest_is_dropped() -> None:
    series = Series.of([(time, 10 * time, 1.0) for time in (1.0, 2.0, 3.0)], 2)
    assert (series.times, series.values) == ((2.0, 3.0), (20.0, 30.0))


@pytest.mark.parametrize("length", [1, 0, -5, LONGEST + 1])
def test_length_out_of_range_is_refused_by_name(length: int) -> None:
    with pytest.raises(StatisticsError, match="10000") as caught:
        Series(length=length)
    assert caught.value.field == "series.length"


@pytest.mark.parametrize("half_life", [0.0, -1.0, math.nan])
def test_half_life_out_of_range_is_refused_by_name(half_life: float) -> None:
    with pytest.raises(StatisticsError) as caught:
        Series(half_life=half_life)
    assert caught.value.field == "series.half_life"


@pytest.mark.parametrize(
    ("times", "values", "weights"),
    [
        ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
        ((2.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
        ((1.0,), (math.nan,), (1.0,)),
        ((1.0,), (1.0,), (0.0,)),
        ((1.0,), (), ()),
        ((1.0, 2.0, 3.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
    ],
)
def test_measurements_that_would_be_left_out_are_no_series(
    times: tuple[float, ...], values: tuple[float, ...], weights: tuple[float, ...]
) -> None:
    with pytest.raises(StatisticsError) as caught:
        Series(2, 60.0, times, values, weights)
    assert caught.value.field == "series.measurements"
