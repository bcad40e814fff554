"""Tests of back-pressure (the size of the next batch): it meets a target, does not collapse, and is
not misled by small batches.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import mean, median

import pytest

from anabranch_runtime.sources.pacing.back_pressure import (
    FIRST_ROWS,
    LEAST_ROWS,
    MARGIN,
    MOST_ROWS,
    SNAPSHOTS,
    BackPressure,
    fit,
    observe,
    shares,
)


def saturated(
    batches: int, fixed: float, rate: float, target: float, *, noise: float = 0.0, seed: int = 1
) -> list[tuple[int, float]]:
    """Return (rows, seconds) of batches that always have more input than they may read."""
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
    assert max(s for _, s in seen) < 2.3


@dataclass(frozen=True)
class Pipeline:
    """Simulated batches whose seconds are ``fixed`` and ``per_row`` times random factors.

    Attributes:
        fixed: mean fixed seconds. ``per_row``: mean seconds of a row.
        noise: fixed and per-row costs vary independently by up to this fraction, both ways.
        odd: share of the batches that have ``oddly`` times the fixed cost.
    """

    fixed: float
    per_row: float = 1e-4
    noise: float = 1 / 3
    odd: float = 0.0
    oddly: float = 1.0

    @property
    def best(self) -> float:
        """Return the rows per second of the best constant limit: rows take as long as the fixed
        cost, or both together take a second.
        """
        fixed = self.fixed * (1 + self.odd * (self.oddly - 1))
        return max(1 - fixed, fixed) / self.per_row / max(1, 2 * fixed)

    def seconds(self, rows: int, chance: random.Random) -> float:
        fixed = self.fixed * (self.oddly if chance.random() < self.odd else 1.0)
        one, other = (1 + self.noise * chance.uniform(-1, 1) for _ in range(2))
        return fixed * one + rows * self.per_row * other


def follow(
    pipelines: list[Pipeline], seed: int, rates: list[float] | None = None
) -> list[tuple[int, float, float]]:
    """Return (rows, seconds, waiting rows) of a batch of each pipeline, with a target of one
    second.

    Args:
        rates: rows that arrive a second, by batch; None: there is always enough.
    """
    chance, pressure, waiting, seen = random.Random(seed), BackPressure(), 0.0, []
    for at, pipeline in enumerate(pipelines):
        rows = pressure.limit if rates is None else max(min(pressure.limit, round(waiting)), 1)
        seconds = pipeline.seconds(rows, chance)
        waiting += 0.0 if rates is None else seconds * rates[at] - rows
        seen.append((rows, seconds, waiting))
        pressure = observe(pressure, rows, seconds, 1.0)
    return seen


def throughput(seen: list[tuple[int, float, float]]) -> float:
    return sum(r for r, _, _ in seen) / sum(s for _, s, _ in seen)


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(3.0),
        Pipeline(3.0, 1e-3),
        Pipeline(3.0, 1e-5),
        Pipeline(3.0, noise=0.6),
        Pipeline(3.0, odd=0.1, oddly=0.1),
        Pipeline(3.0, odd=0.05, oddly=5.0),
        Pipeline(0.6, 2e-5),
        Pipeline(0.3, 2e-5),
        Pipeline(0.02, 1e-5),
    ],
    ids=["3 s", "dear rows", "cheap rows", "noisy", "lucky", "unlucky", "0.6 s", "0.3 s", "small"],
)
def test_a_noisy_fixed_cost_costs_no_throughput(pipeline: Pipeline) -> None:
    """An accidentally fast batch must not have its fixed cost attributed to rows."""
    runs = [follow([pipeline] * 260, seed)[60:] for seed in range(12)]
    found = [throughput(run) / pipeline.best for run in runs]
    assert median(found) >= 0.95
    assert min(found) >= 0.8
    # Batches do not grow either: they take about the target time.
    fixed = pipeline.fixed * (1 + pipeline.odd * (pipeline.oddly - 1))
    meant = max(1.0, (1 + MARGIN) * fixed)
    assert median(mean(s for _, s, _ in run) for run in runs) <= 1.1 * meant
    assert max(mean(s for _, s, _ in run) for run in runs) <= 1.5 * meant


@pytest.mark.parametrize("limit", [LEAST_ROWS, 400, 3_000_000])
@pytest.mark.parametrize("fixed", [None, 0.0, 30.0])
def test_no_limit_is_a_trap(limit: int, fixed: float | None) -> None:
    """With any initial limit and estimate, 90 % of the best throughput is reached."""
    pipeline, found = Pipeline(3.0), []
    for seed in range(8):
        chance, pressure, seen = (
            random.Random(seed),
            BackPressure(limit, fixed=fixed, full=limit),
            [],
        )
        for _ in range(90):
            seconds = pipeline.seconds(pressure.limit, chance)
            seen.append((pressure.limit, seconds, 0.0))
            pressure = observe(pressure, pressure.limit, seconds, 1.0)
        found.append(throughput(seen[30:]) / pipeline.best)
    assert median(found) >= 0.9


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Pipeline(0.2, 1e-5), Pipeline(3.0, 1e-5)),
        (Pipeline(3.0, 1e-5), Pipeline(0.2, 1e-5)),
        (Pipeline(0.2, 1e-5), Pipeline(3.0, 1e-4)),
        (Pipeline(3.0, 1e-4), Pipeline(3.0, 1e-5)),
        (Pipeline(3.0, 1e-5), Pipeline(3.0, 1e-4)),
    ],
    ids=["dearer batches", "cheaper batches", "dearer both", "cheaper rows", "dearer rows"],
)
def test_costs_that_change_are_followed(before: Pipeline, after: Pipeline) -> None:
    """As when queries are added and removed: within twenty batches."""
    runs = [follow([before] * 60 + [after] * 60, seed)[80:] for seed in range(12)]
    assert median(throughput(run) for run in runs) >= 0.9 * after.best
    meant = max(1.0, (1 + MARGIN) * after.fixed)
    assert median(mean(s for _, s, _ in run) for run in runs) <= 1.25 * meant


def test_a_burst_is_worked_off() -> None:
    """A light load, twenty batches with three times the capacity, a light load."""
    pipeline = Pipeline(3.0)
    light, burst = 0.4 * pipeline.best, 3 * pipeline.best
    rates = [light] * 60 + [burst] * 20 + [light] * 300
    for seed in range(12):
        seen = follow([pipeline] * len(rates), seed, rates)
        calm = [w for _, _, w in seen[40:60]]
        assert seen[79][2] > 20 * max(calm)
        # Meanwhile batches have full throughput; then as little waits as before.
        assert throughput(seen[70:120]) >= 0.85 * pipeline.best
        assert mean(w for _, _, w in seen[-20:]) <= 2 * mean(calm)
        assert mean(s for _, s, _ in seen[-20:]) <= 1.25 * mean(s for _, s, _ in seen[40:60])


@pytest.mark.parametrize("rows", [(500, 500), (100, 900)])
def test_a_light_load_does_not_lower_the_limit_for_its_fixed_cost(rows: tuple[int, int]) -> None:
    """Small batches take the fixed cost, whatever the limit."""
    pipeline = Pipeline(3.0)
    pressure, chance = BackPressure(30_000, fixed=3.0, full=30_000), random.Random(3)
    for _ in range(100):
        size = chance.randint(*rows)
        pressure = observe(pressure, size, pipeline.seconds(size, chance), 1.0)
    assert pressure.full == 30_000


@pytest.mark.parametrize("fixed", [0.8, 1.0, 3.0])
def test_a_fixed_cost_near_the_target_does_not_starve_the_rest(fixed: float) -> None:
    """At least half of the time is spent on rows, whatever the target."""
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
    least = BackPressure(LEAST_ROWS, fixed=0.1, full=LEAST_ROWS)
    assert observe(least, 100, 900.0, 1.0, 9.0).limit == LEAST_ROWS
    assert observe(BackPressure(MOST_ROWS, full=MOST_ROWS), MOST_ROWS, 1e-3, 1.0).limit == MOST_ROWS


def test_a_fit_is_never_negative() -> None:
    chance = random.Random(7)
    for _ in range(500):
        count = chance.randint(1, 12)
        batches = tuple(
            (chance.randint(1, 10**6), chance.uniform(1e-4, 10.0)) for _ in range(count)
        )
        line = fit(batches)
        assert 0 <= line.fixed <= line.estimate < max(s for _, s in batches) + 1e-9
        assert line.per_row > 0


def test_what_waits_is_shared_in_proportion() -> None:
    assert shares(None, {"a": 5, "b": 0}) == {"a": 5}
    assert shares(10, {"a": 5, "b": 4}) == {"a": 5, "b": 4}
    assert shares(1_000, {"a": 10**9, "b": 1}) == {"a": 999, "b": 1}


def test_a_snapshot_takes_what_other_streams_leave_and_no_less_than_its_share() -> None:
    chance = random.Random(3)
    for _ in range(500):
        waiting = {name: chance.choice((0, 1, 50, 10**4, 10**7)) for name in "abcd"}
        snapshots = {name for name in waiting if chance.random() < 0.4}
        limit = chance.randint(100, 10**5)
        found = shares(limit, waiting, snapshots)
        assert found.keys() == {name for name, rows in waiting.items() if rows}
        assert all(rows <= waiting[name] for name, rows in found.items())
        assert sum(found.values()) <= limit + 4
        live, theirs = (
            {n: r for n, r in waiting.items() if (n in snapshots) is kind} for kind in (False, True)
        )
        if sum(live.values()) <= (1 - SNAPSHOTS) * limit:
            assert all(found[name] == rows for name, rows in live.items() if rows)
        assert sum(found.get(name, 0) for name in theirs) >= min(
            sum(theirs.values()), int(SNAPSHOTS * limit) - 4
        )


def test_a_snapshot_takes_no_more_than_its_pace() -> None:
    chance = random.Random(4)
    for _ in range(500):
        waiting = {name: chance.choice((0, 1, 50, 10**4, 10**7)) for name in "abcd"}
        snapshots = {name for name in waiting if chance.random() < 0.4}
        limit, pace = chance.choice((None, 100, 10**5)), chance.choice((0, 5, 10**4))
        found, free = (shares(limit, waiting, snapshots, most) for most in (pace, None))
        live = [name for name in waiting if name not in snapshots]
        assert sum(found.get(name, 0) for name in snapshots) <= pace + 4 * (pace > 0)
        assert all(found.get(name, 0) <= waiting[name] for name in waiting)
        # Other streams get no less than without it.
        assert all(found.get(name, 0) >= free.get(name, 0) for name in live)
        if pace:
            assert found.keys() == {name for name, rows in waiting.items() if rows}


@pytest.mark.parametrize("base", [0.0, 0.3, 0.6])
def test_a_batch_takes_its_share_of_memory(base: float) -> None:
    """A row takes a 100,000th of the memory share, and hardly any time."""
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
