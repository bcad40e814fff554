"""The size of the next batch: holds a target, does not collapse, is not fooled by small batches."""

from __future__ import annotations

import random

import pytest

from anabranch_runtime.sources.back_pressure import (
    FIRST_ROWS,
    LEAST_ROWS,
    MOST_ROWS,
    BackPressure,
    fit,
    observe,
    shares,
)


def saturated(
    batches: int, fixed: float, rate: float, target: float, *, noise: float = 0.0, seed: int = 1
) -> list[tuple[int, float]]:
    """(rows, seconds) of batches that always have more input than they may read."""
    chance, pressure, seen = random.Random(seed), BackPressure(), []
    for _ in range(batches):
        seconds = (fixed + pressure.limit / rate) * (1 + noise * chance.uniform(-1, 1))
        seen.append((pressure.limit, seconds))
        pressure = observe(pressure, pressure.limit, seconds, target)
    return seen


@pytest.mark.parametrize("rate", [2_000.0, 50_000.0, 400_000.0])
@pytest.mark.parametrize("fixed", [0.0, 0.1, 0.35])
def test_a_batch_takes_what_it_should(rate: float, fixed: float) -> None:
    rows, seconds = saturated(41, fixed, rate, 1.0)[-1]
    assert 0.9 <= seconds <= 1.1
    assert rows == pytest.approx((1 - fixed) * rate, rel=0.15)


def test_noise_is_followed_on_average() -> None:
    seen = saturated(200, 0.2, 50_000, 1.0, noise=0.3)[50:]
    mean = sum(s for _, s in seen) / len(seen)
    assert 0.85 <= mean <= 1.15
    assert max(s for _, s in seen) < 2.2


@pytest.mark.parametrize("fixed", [0.8, 1.0, 3.0])
def test_a_fixed_cost_near_the_target_does_not_starve_the_rest(fixed: float) -> None:
    """At least half of the time goes into rows, whatever the target is."""
    rows, seconds = saturated(59, fixed, 50_000, 1.0)[-1]
    assert rows / 50_000 >= 0.4 * seconds
    assert seconds <= 2.3 * fixed


def test_batches_that_become_slower_are_made_smaller() -> None:
    pressure = BackPressure()
    for _ in range(20):
        pressure = observe(pressure, pressure.limit, 0.2 + pressure.limit / 100_000, 1.0)
    before = pressure.full
    for _ in range(30):
        pressure = observe(pressure, pressure.limit, 0.2 + pressure.limit / 10_000, 1.0)
    assert pressure.full == pytest.approx(8_000, rel=0.2)
    assert before == pytest.approx(80_000, rel=0.2)


def test_small_batches_do_not_raise_the_limit() -> None:
    pressure = BackPressure()
    for rows in (10, 500, 20, 900) * 10:
        pressure = observe(pressure, rows, 0.25, 1.0)
    assert pressure.limit <= FIRST_ROWS


def test_a_slow_small_batch_lowers_it() -> None:
    assert observe(BackPressure(10_000, full=10_000), 100, 5.0, 1.0).limit < 10_000


def test_one_hiccup_is_forgotten() -> None:
    pressure = BackPressure()
    for batch in range(60):
        seconds = 0.2 + pressure.limit / 50_000
        pressure = observe(pressure, pressure.limit, seconds + 20 * (batch == 30), 1.0)
    assert pressure.full == pytest.approx(40_000, rel=0.2)


def test_empty_batches_say_nothing_and_bounds_hold() -> None:
    assert observe(BackPressure(500), 0, 1.0, 1.0) == BackPressure(500)
    assert observe(BackPressure(LEAST_ROWS, full=LEAST_ROWS), 100, 900.0, 1.0).limit == LEAST_ROWS
    assert observe(BackPressure(MOST_ROWS, full=MOST_ROWS), MOST_ROWS, 1e-3, 1.0).limit == MOST_ROWS


def test_a_fit_is_never_negative() -> None:
    chance = random.Random(7)
    for _ in range(500):
        count = chance.randint(1, 12)
        batches = tuple(
            (chance.randint(1, 10**6), chance.uniform(1e-4, 10.0)) for _ in range(count)
        )
        fixed, per_row = fit(batches)
        assert 0 <= fixed <= min(s for _, s in batches)
        assert per_row > 0


def test_what_waits_is_shared_in_proportion() -> None:
    assert shares(None, {"a": 5, "b": 0}) == {"a": 5}
    assert shares(10, {"a": 5, "b": 4}) == {"a": 5, "b": 4}
    assert shares(1_000, {"a": 10**9, "b": 1}) == {"a": 999, "b": 1}


@pytest.mark.parametrize("base", [0.0, 0.3, 0.6])
def test_a_batch_takes_its_share_of_memory(base: float) -> None:
    """A row takes a 100,000th of the share, and next to no time."""
    pressure, full = BackPressure(), 0.0
    for _ in range(41):
        full = base + pressure.limit / 100_000
        pressure = observe(pressure, pressure.limit, 0.1 + pressure.limit / 10**7, None, full)
    assert full <= 1.05
    assert pressure.full == pytest.approx((1 - base) * 100_000, rel=0.15)


def test_the_scarcer_of_time_and_memory_decides() -> None:
    def settled(target: float, per_row: float) -> int:
        pressure = BackPressure()
        for _ in range(41):
            seconds, full = 0.1 + pressure.limit / 50_000, 0.2 + pressure.limit * per_row
            pressure = observe(pressure, pressure.limit, seconds, target, full)
        return pressure.full

    assert settled(1.0, 1e-6) == pytest.approx(45_000, rel=0.15)
    assert settled(1.0, 1e-4) == pytest.approx(8_000, rel=0.15)


def test_without_room_there_are_still_rows() -> None:
    pressure = BackPressure()
    for _ in range(40):
        pressure = observe(pressure, pressure.limit, 0.1, 1.0, 1.5)
    assert pressure.limit == LEAST_ROWS
