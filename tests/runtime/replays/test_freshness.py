"""Tests of random runs of queries with a limit of results' age, against the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.draw import generate
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import FRESH_FEW, FRESH_MANY, few, parts


@pytest.mark.parametrize("seeds", few(FRESH_FEW, 9), ids=str)
def test_runs_with_limits_of_age_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate, {"MIR", "self-join"}, fresh=True)


@pytest.mark.e2e
@pytest.mark.parametrize("seeds", few(FRESH_FEW[:2], 4), ids=str)
def test_they_are_with_rations(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    wanted = {"rationed by batch"}
    assert_exact(seeds, tmp_path, redis, generate, wanted, fresh=True, rationed=True)


@pytest.mark.parametrize("seeds", few(FRESH_FEW[2:], 5), ids=str)
def test_they_are_with_catch_up(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    wanted = {"goal made good", "late result"}
    assert_exact(seeds, tmp_path, redis, generate, wanted, fresh=True, owed=True)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(FRESH_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_with_limits_of_age_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate, {"MIR", "self-join"}, fresh=True)
