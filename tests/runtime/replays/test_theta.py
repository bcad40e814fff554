"""Tests that joins without equalities (theta joins) are exact, through restarts, lost tasks and
changed plans.

``python -m tests.support.scenarios.run --engine local --theta`` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.draw import generate_theta
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import THETA_FEW, THETA_MANY, parts

WANTED = {"window", "restart"}


def test_runs_without_equalities_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(THETA_FEW, tmp_path, redis, generate_theta, WANTED)
    said = [
        query.sql
        for seed in THETA_FEW
        for query in read_scenario(tmp_path / str(seed) / "SCENARIO.yaml").queries.values()
    ]
    assert sum(" = " not in sql and "JOIN" in sql for sql in said) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(THETA_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_without_equalities_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate_theta, WANTED)
