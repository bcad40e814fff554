"""Tests of zero-half cuts: which are found, and that every integral point satisfies them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random

import numpy as np
import pytest

from anabranch_planner.solvers.program import INFINITY, Program, Row
from anabranch_planner.solvers.relaxation import Relaxation
from anabranch_planner.solvers.zero_half import BROKEN, zero_half


def cover(sets: list[tuple[int, ...]], costs: list[float]) -> Program:
    """Return the program of hitting every one of ``sets``."""
    program = Program()
    for cost in costs:
        program.variable(cost, integer=True)
    for one in sets:
        program.row(1.0, INFINITY, one, [1.0] * len(one))
    return program


def test_an_odd_cycle_takes_more_than_half() -> None:
    program = cover([(0, 1), (1, 2), (0, 2)], [1.0, 1.0, 1.0])
    rows = zero_half(program, np.array([0.5, 0.5, 0.5]), 10)
    assert [(upper, dict(zip(i, c, strict=True))) for upper, i, c in rows] == [
        (-2.0, {0: -1.0, 1: -1.0, 2: -1.0})
    ]


def test_integral_points_and_fractional_coefficients_give_nothing() -> None:
    program = cover([(0, 1), (1, 2), (0, 2)], [1.0, 1.0, 1.0])
    assert zero_half(program, np.array([1.0, 1.0, 0.0]), 10) == []
    weighed = Program()
    for _ in range(3):
        weighed.variable(1.0, integer=True)
    for pair in ((0, 1), (1, 2), (0, 2)):
        weighed.row(0.75, INFINITY, pair, [0.75, 0.75])
    assert zero_half(weighed, np.array([0.5, 0.5, 0.5]), 10) == []


@pytest.mark.parametrize("seed", range(30))
def test_cuts_exclude_the_point_and_no_integral_one(seed: int) -> None:
    """Random programs with rows of either kind, including cuts of cuts."""
    rng = Random(seed)
    count = rng.randint(5, 9)
    program = cover(
        [tuple(sorted(rng.sample(range(count), rng.choice([2, 2, 3])))) for _ in range(2 * count)],
        [rng.choice([1.0, 1.0, 2.0, 3.5]) for _ in range(count)],
    )
    for _ in range(3):
        some = sorted(rng.sample(range(count), 3))
        program.row(-INFINITY, 2.0, some, [rng.choice([1.0, 2.0, -1.0]) for _ in some])
    rows = range(program.rows)
    points = [p for p in product((0, 1), repeat=count) if all(holds(program, r, p) for r in rows)]
    relaxation = Relaxation(program)
    assert relaxation.solve({})
    for _ in range(4):
        if not np.isfinite(relaxation.objective):
            assert not points
            return
        cuts = zero_half(program, relaxation.values, 20)
        assert cuts == zero_half(program, relaxation.values, 20)
        for cut in cuts:
            assert excess(cut, relaxation.values.tolist()) > BROKEN
            assert all(excess(cut, point) <= 0 for point in points)
            upper, indices, coefficients = cut
            program.row(-INFINITY, upper, indices, coefficients)
        before = relaxation.objective
        if cuts:
            relaxation.extend(cuts)
            assert relaxation.solve({})
            assert relaxation.objective >= before - 1e-9
    best = [sum(c * v for c, v in zip(program.costs, p, strict=True)) for p in points]
    assert relaxation.objective <= min(best, default=float("inf")) + 1e-9


def excess(row: Row, point: Sequence[float]) -> float:
    """Return by how much ``point`` violates ``row``."""
    upper, indices, coefficients = row
    return sum(c * point[i] for i, c in zip(indices, coefficients, strict=True)) - upper


def holds(program: Program, row: int, point: tuple[int, ...]) -> bool:
    """Whether ``point`` satisfies ``row``."""
    entries = range(program.starts[row], program.starts[row + 1])
    activity = sum(program.values[k] * point[program.indices[k]] for k in entries)
    return program.lowers[row] <= activity <= program.uppers[row]
