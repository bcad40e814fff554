"""Tests of random scenarios through REST, Redis, Spark and Parquet; every row is compared with
DuckDB.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scenarios.draw import generate
from tests.support.scenarios.file import read_report
from tests.support.scenarios.seeds import FEW, MANY, TTL_REPLAYS, mostly_slow
from tests.support.scenarios.ttls import generate_with_ttls
from tests.support.worlds.replay_check import replay_and_check


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize("seed", mostly_slow(FEW))
def test_replay_is_exact(seed: int, tmp_path: Path) -> None:
    _replay(seed, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_replay_is_exact_on_many_scenarios(seed: int, tmp_path: Path) -> None:
    _replay(seed, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", TTL_REPLAYS)
def test_replay_with_ttls_that_change_is_exact(seed: int, tmp_path: Path) -> None:
    scenario = generate_with_ttls(seed, tmp_path)
    verdict, _ = replay_and_check(scenario.path, tmp_path / "out", scenario.queries)
    assert not verdict.problems, str(verdict)
    said = read_report(tmp_path / "out")["queries"].values()
    assert any(q["earlier"] and q["earlier"][-1]["results"] < q["results"] for q in said)


def _replay(seed: int, folder: Path) -> None:
    scenario = generate(seed, folder)
    verdict, _ = replay_and_check(scenario.path, folder / "out", scenario.queries)
    assert not verdict.problems, str(verdict)
