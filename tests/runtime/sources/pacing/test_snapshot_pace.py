"""Tests of batch sizes with rows of a snapshot: never too long, never without progress, whatever a
row costs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import mean, quantiles

import pytest

from anabranch_runtime.sources.pacing.snapshot_pace import (
    FEWS,
    FIRST,
    FIRST_ROWS,
    GROWTH,
    LEAST_ROWS,
    PROBE,
    SLOWDOWN,
    SnapshotPace,
    observed,
)


@dataclass(frozen=True)
class Pipeline:
    """Simulated seconds of batches with parts of a snapshot.

    Attributes:
        alone: of a batch without a snapshot. ``reading``: more with the least part of one.
        per_row: of a row. ``noise``: batches vary by up to this fraction, both ways.
        odd: share of the batches that take ``oddly`` times as long.
    """

    alone: float = 0.05
    reading: float = 0.0
    per_row: float = 5e-7
    noise: float = 0.0
    odd: float = 0.0
    oddly: float = 1.0

    def seconds(self, rows: int, chance: random.Random) -> float:
        fixed = self.alone + (self.reading if rows else 0.0)
        odd = self.oddly if chance.random() < self.odd else 1.0
        return odd * (fixed + rows * self.per_row) * (1 + self.noise * chance.uniform(-1, 1))

    @property
    def most(self) -> float:
        """Return the maximum seconds of a batch."""
        return SLOWDOWN * (self.alone + self.reading)


def read(
    pipeline: Pipeline, batches: int, pace: SnapshotPace | None = None, seed: int = 1
) -> tuple[SnapshotPace, list[tuple[int, float]]]:
    """Return the pace, and (rows, seconds) of the batches of a snapshot after live batches."""
    chance, seen = random.Random(seed), list[tuple[int, float]]()
    if pace is None:
        pace = SnapshotPace()
        for _ in range(20):
            pace = observed(pace, 0, pipeline.seconds(0, chance))
    for _ in range(batches):
        rows = pace.limit
        seen.append((rows, pipeline.seconds(rows, chance)))
        pace = observed(pace, *seen[-1])
    return pace, seen


def throughput(seen: list[tuple[int, float]]) -> float:
    return sum(r for r, _ in seen) / sum(s for _, s in seen)


@pytest.mark.parametrize("alone", [0.02, 0.05, 0.4, 3.0])
@pytest.mark.parametrize("per_row", [1e-7, 5e-7, 1e-5, 1e-4])
def test_batches_take_a_multiple_of_the_time_without(alone: float, per_row: float) -> None:
    pipeline = Pipeline(alone, per_row=per_row)
    _, seen = read(pipeline, 60)
    # The first batches are large if rows are very expensive.
    first = pipeline.alone + FIRST_ROWS * per_row
    assert max(s for _, s in seen) <= max(1.05 * pipeline.most, 1.01 * first)
    assert max(s for _, s in seen[16:]) <= 1.05 * pipeline.most
    full = [s for _, s in seen[30:] if s > 0.9 * pipeline.most]
    assert len(full) >= (PROBE - 1) / PROBE * 30 - 1
    # The rest of the time is used for the snapshot.
    assert throughput(seen[30:]) >= 0.9 * (1 - 1 / SLOWDOWN) / per_row


def test_the_first_batches_grow_quickly_and_from_little() -> None:
    pipeline = Pipeline()
    _, seen = read(pipeline, 12)
    assert seen[0][0] == FIRST_ROWS
    greatest = list(accumulate((rows for rows, _ in seen), max))
    assert all(b <= GROWTH * a for a, b in pairwise(greatest))
    best = (SLOWDOWN - 1) * pipeline.alone / pipeline.per_row
    assert max(rows for rows, _ in seen) == pytest.approx(best, rel=0.05)
    # Expensive rows are noticed after few of them.
    _, seen = read(Pipeline(per_row=2e-4), 20)
    assert max(s for _, s in seen[12:]) <= 1.1 * Pipeline().most


@pytest.mark.parametrize("reading", [0.02, 0.05, 0.2])
def test_the_fixed_cost_of_reading_does_not_make_rows_seem_dear(reading: float) -> None:
    """Otherwise fewer rows would be read, each would seem even more expensive, and so on."""
    pipeline = Pipeline(reading=reading)
    _, seen = read(pipeline, 120)
    assert throughput(seen[60:]) >= 0.45 / pipeline.per_row
    assert max(s for _, s in seen) <= 1.05 * pipeline.most


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(noise=0.5),
        Pipeline(reading=0.02, noise=0.5),
        Pipeline(odd=0.1, oddly=4.0),
        Pipeline(odd=0.1, oddly=0.3),
    ],
    ids=["noisy", "noisy reading", "hiccups", "lucky"],
)
def test_noise_neither_stops_a_snapshot_nor_makes_batches_long(pipeline: Pipeline) -> None:
    runs = [read(pipeline, 300, seed=seed)[1][60:] for seed in range(12)]
    assert min(map(throughput, runs)) >= 0.3 / pipeline.per_row
    # Expected seconds, without noise.
    fixed = pipeline.alone + pipeline.reading
    calm = [fixed + rows * pipeline.per_row for run in runs for rows, _ in run]
    assert mean(calm) <= 1.1 * pipeline.most
    assert quantiles(calm, n=20)[-1] <= 1.7 * pipeline.most


def test_costs_that_change_are_followed() -> None:
    pace, _ = read(Pipeline(), 60)
    for pipeline in (Pipeline(alone=0.3), Pipeline(per_row=1e-5), Pipeline(alone=0.01)):
        pace, seen = read(pipeline, 90, pace)
        assert max(s for _, s in seen[45:]) <= 1.2 * pipeline.most
        assert throughput(seen[45:]) >= 0.4 / pipeline.per_row


def test_every_so_many_batches_have_few_rows() -> None:
    _, seen = read(Pipeline(), 40)
    few = [number for number, (rows, _) in enumerate(seen) if number > 9 and rows < 20_000]
    assert {after - before for before, after in pairwise(few)} == {PROBE}


def test_batches_cut_short_do_not_raise_the_number_of_rows() -> None:
    pace, _ = read(Pipeline(), 30)
    for _ in range(20):
        pace = observed(pace, pace.rows // 3, 0.04)
    assert pace.rows <= read(Pipeline(), 30)[0].rows


def test_slow_first_batches_say_nothing() -> None:
    pace = SnapshotPace(few=(0.05,))
    for _ in range(FIRST):
        pace = observed(pace, pace.limit, 3.0)
        assert (pace.rows, pace.few, pace.many) == (FIRST_ROWS, (0.05,), ())
    assert observed(pace, pace.limit, 0.05).rows == GROWTH * FIRST_ROWS


def test_another_snapshot_begins_anew() -> None:
    pace, _ = read(Pipeline(), 60)
    for _ in range(FEWS - 1):
        pace = observed(pace, 0, 0.05)
    assert pace.rows > FIRST_ROWS
    pace = observed(pace, 0, 0.05)
    assert (pace.rows, pace.many, pace.first) == (FIRST_ROWS, (), 0)


def test_without_a_batch_of_live_rows_the_first_counts_as_one() -> None:
    pace = observed(SnapshotPace(first=FIRST), FIRST_ROWS, 0.2)
    assert (pace.rows, pace.few) == (FIRST_ROWS, (0.2,))
    pace = observed(SnapshotPace(rows=LEAST_ROWS, few=(0.1,), first=FIRST), LEAST_ROWS, 90.0)
    assert pace.rows == LEAST_ROWS
