"""Tests of cuts for the maintenance that a path needs, whichever intermediate result it probes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from anabranch_planner.cost.model import CostModel
from anabranch_planner.search.bounds.cuts import broken
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.formulation import formulate, start_values
from anabranch_planner.search.routes import route_greedily
from anabranch_planner.solvers.program import Row
from anabranch_planner.solvers.relaxation import Relaxation
from benchmarks.planner.random_queries import natural


def excess(row: Row, point: Sequence[float]) -> float:
    """Return by how much ``point`` violates ``row``."""
    upper, indices, coefficients = row
    return sum(c * point[i] for i, c in zip(indices, coefficients, strict=True)) - upper


@pytest.mark.parametrize("seed", range(4))
def test_cuts_exclude_the_relaxation_and_no_plan(seed: int) -> None:
    queries, statistics = natural(seed, relations=30, count=8, size=5)
    problem = build_problem(queries, CostModel(statistics, parallelism=4))
    made = formulate(problem)
    relaxation = Relaxation(made.program)
    assert relaxation.solve({})
    before = relaxation.objective
    cuts = broken(problem, made, relaxation.values.tolist())
    assert cuts == broken(problem, made, relaxation.values.tolist())
    assert cuts
    assert all(excess(row, relaxation.values.tolist()) > 0 for row in cuts)
    rng = Random(seed)
    for _ in range(20):
        kept = [m for m in problem.mirs if rng.random() < 0.3]
        plan = route_greedily(problem, kept, hints=[rng.random() for _ in problem.graph.cost])
        assert plan is not None
        point = start_values(problem, made, plan)
        assert all(excess(row, point) <= 0 for row in cuts)
    relaxation.extend(cuts)
    assert relaxation.solve({})
    assert relaxation.objective > before


def test_integral_points_break_none() -> None:
    queries, statistics = natural(0, relations=30, count=8, size=5)
    problem = build_problem(queries, CostModel(statistics, parallelism=4))
    made = formulate(problem)
    plan = route_greedily(problem, problem.mirs)
    assert plan is not None
    assert broken(problem, made, start_values(problem, made, plan)) == []
