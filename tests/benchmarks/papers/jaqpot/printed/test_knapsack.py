"""Tests of allowances in whole multiples (knapsack): the paper's example, brute force, a solver."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Solver
from benchmarks.papers.jaqpot.printed.knapsack import (
    exact_multiples,
    greedy_multiples,
    output_of,
    solved_multiples,
)
from benchmarks.papers.jaqpot.printed.paths import Row, input_paths, productivity_table
from tests.benchmarks.papers.jaqpot.printed.plans import figure_4


def test_figure_4() -> None:
    rows = productivity_table(input_paths(figure_4()))
    greedy = greedy_multiples(rows, 30)
    assert greedy == {"a": 0, "b": 1, "c": 1}
    assert output_of(rows, greedy) == 6
    exact = exact_multiples(rows, 30)
    assert exact == {"a": 2, "b": 0, "c": 0}
    assert output_of(rows, exact) == 8
    assert solved_multiples(rows, 30) == exact


def random_rows(random: Random) -> tuple[Row, ...]:
    return tuple(
        Row(f"p{n}", random.randint(1, 12), random.randint(0, 9), random.randint(0, 6))
        for n in range(random.randint(1, 4))
    )


def brute_force(rows: tuple[Row, ...], mu: int) -> int:
    return max(
        sum(m * row.output for m, row in zip(chosen, rows, strict=True))
        for chosen in product(*(range(row.most + 1) for row in rows))
        if sum(m * row.resources for m, row in zip(chosen, rows, strict=True)) <= mu
    )


def check(rows: tuple[Row, ...], mu: int, multiples: dict[str, int]) -> int:
    assert sum(row.resources * multiples[row.path] for row in rows) <= mu
    assert all(0 <= multiples[row.path] <= row.most for row in rows)
    return output_of(rows, multiples)


@given(st.integers(0, 10**6), st.integers(0, 70))
def test_dynamic_programming_is_exact(seed: int, mu: int) -> None:
    rows = random_rows(Random(seed))
    best = brute_force(rows, mu)
    assert check(rows, mu, exact_multiples(rows, mu)) == best
    assert check(rows, mu, greedy_multiples(rows, mu)) <= best


@given(st.integers(0, 10**6), st.integers(0, 70))
def test_a_solver_is_exact(seed: int, mu: int) -> None:
    rows = random_rows(Random(seed))
    assert check(rows, mu, solved_multiples(rows, mu, Solver.HIGHS)) == brute_force(rows, mu)


def test_cp_sat_is_exact() -> None:
    for seed in range(4):
        rows = random_rows(Random(seed))
        assert check(rows, 40, solved_multiples(rows, 40)) == brute_force(rows, 40)


def test_many_probes() -> None:
    rows = (Row("a", 997, 331, 40), Row("b", 1013, 340, 70), Row("c", 89, 29, 500))
    assert output_of(rows, exact_multiples(rows, 60_000)) == output_of(
        rows, solved_multiples(rows, 60_000, Solver.HIGHS)
    )


def test_resources_are_whole() -> None:
    with pytest.raises(PlannerError, match="whole number"):
        exact_multiples((Row("a", 1, 1, 1),), -1)
    with pytest.raises(PlannerError, match="at least one probe"):
        Row("a", 0, 1, 1)
