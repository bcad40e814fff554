"""Series: bounded, in order, and what they refuse."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import StatisticsError
from anabranch_planner.forecast.series import LONGEST, AppendOutcome, Series

anything = st.one_of(
    st.floats(),
    st.floats(-100, 100),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 0.0, -1.0, 1e-300]),
)


@given(st.lists(st.tuples(anything, anything, anything), max_size=20), st.integers(2, 5))
def test_whatever_is_offered_the_series_is_valid_and_says_what_became_of_it(
    offered: list[tuple[float, float, float]], length: int
) -> None:
    series = Series(length=length)
    for time, value, weight in offered:
        before = series
        series, outcome = (answer := before.append(time, value, weight)).series, answer.outcome
        # A series that is built from its own fields is checked again.
        assert Series(length, 60.0, series.times, series.values, series.weights) == series
        match outcome:
            case AppendOutcome.APPENDED:
                assert series.times == (*before.times, time)[-length:]
                assert series.values[-1] == value
            case AppendOutcome.BEGUN_ANEW:
                assert time < before.times[-1]
                assert (series.times, series.values, series.weights) == (
                    (time,),
                    (value,),
                    (weight,),
                )
            case _:
                assert series is before


@pytest.mark.parametrize(
    ("time", "value", "weight", "outcome"),
    [
        (6.0, math.nan, 1.0, AppendOutcome.NOT_FINITE),
        (6.0, -math.inf, 1.0, AppendOutcome.NOT_FINITE),
        (6.0, 1e101, 1.0, AppendOutcome.NOT_FINITE),
        (math.nan, 1.0, 1.0, AppendOutcome.NOT_FINITE),
        (math.inf, 1.0, 1.0, AppendOutcome.NOT_FINITE),
        (6.0, 1.0, math.nan, AppendOutcome.NOT_FINITE),
        (6.0, 1.0, 0.0, AppendOutcome.NO_WEIGHT),
        (6.0, 1.0, -1.0, AppendOutcome.NO_WEIGHT),
        (3.0, 1.0, 1.0, AppendOutcome.SAME_TIME),
        (2.0, 1.0, 1.0, AppendOutcome.BEGUN_ANEW),
        (6.0, 1.0, 1.0, AppendOutcome.APPENDED),
    ],
)
def test_outcome(time: float, value: float, weight: float, outcome: AppendOutcome) -> None:
    series = Series(times=(0.0, 3.0), values=(1.0, 2.0), weights=(1.0, 1.0))
    assert series.append(time, value, weight).outcome is outcome


def test_the_oldest_is_dropped() -> None:
    series = Series(length=2)
    for time in (1.0, 2.0, 3.0):
        series = series.append(time, 10 * time).series
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
def test_measurements_that_append_would_refuse_are_no_series(
    times: tuple[float, ...], values: tuple[float, ...], weights: tuple[float, ...]
) -> None:
    with pytest.raises(StatisticsError) as caught:
        Series(2, 60.0, times, values, weights)
    assert caught.value.field == "series.measurements"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20).map(float),
            st.sampled_from([0.0, 1.5, -2.0, math.nan, math.inf]),
            st.sampled_from([0.0, 1.0, 7.0]),
        ),
        max_size=30,
    ),
    st.integers(2, 9),
)
def test_made_at_once_or_one_by_one(
    measured: list[tuple[float, float, float]], length: int
) -> None:
    series = Series(length=length)
    for time, value, weight in measured:
        series = series.append(time, value, weight).series
    assert Series.of(measured, length) == series
