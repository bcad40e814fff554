"""Tests of forecast rates per batch: intermittent relations, the minimum, and restarted series."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from anabranch_contract.codec import dumps
from anabranch_contract.protocol.interims import (
    Arrivals,
    DriftedRate,
    DriftedRates,
    Interim,
    StoreSize,
)
from anabranch_planner.forecast.rates import EVIDENCE, FLOOR, PERIODS, rates, recent


def series(*counts: int | None, batches: int = 4, begin: int = 0) -> list[Arrivals]:
    """Return periods of one relation R with these counts; None: it was not counted."""
    return [
        Arrivals(begin + batches * (n + 1), batches, {} if c is None else {"R": c})
        for n, c in enumerate(counts)
    ]


def test_a_constant_rate_is_forecast() -> None:
    assert rates(series(*[40] * 12), 2.0) == {"R": pytest.approx(10)}


def test_a_trend_goes_on() -> None:
    found = rates(series(*range(40, 240, 10)), 2.0)
    assert found["R"] == pytest.approx((230 + 20) / 4, rel=0.05)


def test_ten_times_as_many_are_believed_when_a_second_period_confirms_it() -> None:
    assert rates(series(*[40] * 12, 400), 1.0)["R"] == pytest.approx(10)
    assert rates(series(*[40] * 12, 400, 400), 1.0)["R"] >= 90


@pytest.mark.parametrize("seed", range(20))
def test_files_that_come_now_and_then_are_forecast_by_their_mean(seed: int) -> None:
    rng = random.Random(seed)
    every = rng.randint(2, 9)
    counts = [400 if n % every == 0 else 0 for n in range(PERIODS)]
    found = rates(series(*counts), rng.choice([1.0, 2.0]))
    assert found["R"] == pytest.approx(sum(counts) / len(counts) / 4)


def test_what_has_stopped_may_come_again() -> None:
    counts = [40] * 10 + [0] * 5
    mean = sum(counts) / len(counts) / 4
    assert rates(series(*counts), 1.0)["R"] == pytest.approx(FLOOR * mean)


def test_what_has_never_arrived_is_not_listed() -> None:
    assert rates(series(*[0] * 9), 1.0) == {}
    assert rates(series(*[None] * 9), 1.0) == {}
    assert rates([], 1.0) == {}
    assert rates(series(*[40] * (EVIDENCE - 1)), 1.0) == {}
    assert rates(series(None, None, 40), 1.0) == {}


def test_only_the_newest_periods_count_and_only_those_of_this_pipeline() -> None:
    old = series(*[4000] * 30)
    new = series(*[40] * PERIODS, begin=120)
    assert rates([*old, *new], 1.0) == {"R": pytest.approx(10)}
    again = series(40, 40, begin=0)
    assert rates([*old, *again], 1.0) == {"R": pytest.approx(10)}
    assert recent([*old, *again]) == {"R": ((4, 40), (8, 80))}


def test_periods_weigh_by_their_batches() -> None:
    periods = [Arrivals(9, 9, {"R": 90}), Arrivals(10, 1, {"R": 0}), Arrivals(20, 10, {"R": 10})]
    assert rates(periods, 1.0) == {"R": pytest.approx(100 / 20)}
    assert recent(periods) == {"R": ((10, 10), (11, 10), (20, 100))}


def test_a_period_without_batches_says_nothing() -> None:
    periods = [*series(40, 40, 40), Arrivals(12, 0, {"R": 0})]
    assert rates(periods, 1.0) == {"R": pytest.approx(10)}


def test_arrivals_are_read_of_the_document_of_an_interim() -> None:
    whole = Interim(1.5, 3.0, 2, 2, 12, 4, {"R": 40}, (), {"R": StoreSize(7, {"a": 3.0})}, 1)
    assert Arrivals.loads(dumps(whole)) == Arrivals(12, 4, {"R": 40})


def test_a_rate_that_has_drifted_begins_anew() -> None:
    """It restarts with one short period; the other relation's series continues."""
    old = [Arrivals(n, 10, {"R": 1000, "S": 500}) for n in range(10, 60, 10)]
    new = Arrivals(52, 2, {"R": 2000, "S": 100}, DriftedRates((DriftedRate("R", 10.0),)))

    assert rates([*old, new], 2.0) == pytest.approx({"R": 1000.0, "S": 50.0})
    # If the drift is not reported, the grid takes both rates for one period.
    assert rates([*old, replace(new, drifted=DriftedRates())], 2.0)["R"] < 500

    later = Arrivals(62, 10, {"R": 10_000, "S": 500})
    assert rates([*old, new, later], 2.0) == pytest.approx({"R": 1000.0, "S": 50.0})
    assert rates([new, later], 2.0) == pytest.approx({"R": 1000.0, "S": 50.0})


def test_periods_of_unequal_length_are_rates_per_batch() -> None:
    lengths, at, found = [10, 2, 10, 1, 10, 3, 10], 0, []
    for length in lengths:
        at += length
        found.append(Arrivals(at, length, {"R": 100 * length}))
    assert rates(found, 2.0) == pytest.approx({"R": 100.0})
    assert recent(found)["R"][-1] == (sum(lengths), 100 * sum(lengths))
