"""Tests of fitting cost constants to steps generated from known constants."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.protocol.measurements import EdgeStatistics, Writes
from anabranch_planner.cost.statistics.constants import OPERATIONS, CostConstants
from anabranch_planner.cost.statistics.fit import DERIVE, PRIOR, fit

TRUE = CostConstants(
    call=4e-4, probe=2e-7, look=3e-8, match=9e-8, write=8e-4, row=6e-7,
    merge=3e-3, rewrite=2e-7,
)  # fmt: skip


def step(rng: Random, true: CostConstants = TRUE, noise: float = 0.0) -> EdgeStatistics:
    calls, probes = rng.randint(1, 40), int(10 ** rng.uniform(0, 5))
    looked, matches = int(probes * rng.uniform(0, 30)), int(probes * rng.uniform(0, 50))
    seconds = (
        true.call * calls + true.probe * probes + true.look * looked + true.match * matches
    ) * rng.uniform(1 - noise, 1 + noise)
    return EdgeStatistics(probes, matches, seconds, calls=calls, looked=looked)


def inserts(rng: Random, true: CostConstants = TRUE, noise: float = 0.0) -> Writes:
    writes, rows = rng.randint(1, 100), int(10 ** rng.uniform(0, 5))
    return Writes(
        writes, rows, (true.write * writes + true.row * rows) * rng.uniform(1 - noise, 1 + noise)
    )


def merges(rng: Random, true: CostConstants = TRUE) -> Writes:
    number, rows = rng.randint(1, 10), int(10 ** rng.uniform(2, 6))
    return Writes(number, rows, true.merge * number + true.rewrite * rows)


def test_constants_are_found_again() -> None:
    rng = Random(1)
    steps, stored = [step(rng) for _ in range(300)], [inserts(rng) for _ in range(300)]
    merged = [merges(rng) for _ in range(100)]
    found = fit(steps, stored, merged, CostConstants())
    for name in {*OPERATIONS} - {"derive"}:
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.1), name
    assert found.error is not None
    assert found.error < 0.005
    assert found.measurements == 700


def test_derived_rows_cost_more_in_proportion_to_inserts() -> None:
    known, rng = CostConstants(), Random(3)
    usual = [inserts(rng, known) for _ in range(50)]
    slow = [Writes(w.writes, w.rows, 3 * w.seconds) for w in usual]
    assert fit([], usual, [], known).derive == pytest.approx(DERIVE)
    assert fit([], slow, [], known).derive == pytest.approx(3 * DERIVE)
    assert fit([step(rng)], [Writes(0, 0, 1.0)], [merges(rng)], known).derive == known.derive


def test_the_error_says_how_far_measurements_are_off() -> None:
    rng = Random(2)
    found = fit([step(rng, noise=0.4) for _ in range(400)], [], [], CostConstants())
    assert found.error == pytest.approx(0.2, abs=0.03)


@given(st.integers(0, 10**9))
def test_no_constant_is_negative_and_none_better(seed: int) -> None:
    """For any measurements, no change towards another non-negative point lowers the loss."""
    rng = Random(seed)
    some = [
        EdgeStatistics(
            rng.choice([0, 1, 10**6]), rng.choice([0, 5, 10**7]), 10 ** rng.uniform(-6, 2),
            calls=rng.randint(1, 9), looked=rng.choice([0, 10**5]),
        )
        for _ in range(rng.randint(1, 12))
    ]  # fmt: skip
    known = CostConstants()
    before = np.array([known.call, known.probe, known.look, known.match])
    rows = np.array([[s.calls, s.probes, s.looked, s.matches] for s in some], float)
    seconds = np.array([s.seconds for s in some])

    prior = before * seconds.sum() / (rows @ before).sum()

    def loss(point: np.ndarray) -> float:
        shares = len(some) * seconds / seconds.sum()
        off = (shares * (rows @ point / seconds - 1) ** 2).sum()
        return float(off + PRIOR * ((point / prior - 1) ** 2).sum())

    found = fit(some, [], [], known)
    best = np.array([found.call, found.probe, found.look, found.match])
    assert (best >= 0).all()
    for i in range(4):
        for by in (-1e-2, 1e-2):
            other = best.copy()
            other[i] = max(other[i] + by * prior[i], 0.0)
            assert loss(best) <= loss(other) * (1 + 1e-6) + 1e-9
    assert fit(some, [], [], known) == fit(some, [], [], known)


def test_equal_batches_leave_calls_as_they_were_known() -> None:
    """Calls, probes, looks and matches in a constant ratio: the time is divided as by the prior
    constants.
    """
    rows = [EdgeStatistics(1000, 1000, 2e-3, calls=1, looked=1000)] * 50
    known = CostConstants(call=1e-3, probe=1e-6, look=1e-6, match=1e-6, write=1.0, row=1.0)
    found = fit(rows, [], [], known)
    assert found.call == pytest.approx(5e-4, rel=0.02)
    assert found.probe == pytest.approx(5e-7, rel=0.02)
    assert (found.write, found.row) == (1.0, 1.0)


def test_nothing_measured_leaves_everything_as_it_was() -> None:
    old = EdgeStatistics(1000, 1000, 2e-3)
    found = fit([old, EdgeStatistics(calls=3)], [Writes()], [Writes()], TRUE)
    assert found == TRUE
    assert (found.error, found.measurements) == (None, 0)


def test_calls_and_looks_are_kept() -> None:
    known = CostConstants(calls=7.0)
    assert fit([step(Random(3))], [], [], known).calls == 7.0
