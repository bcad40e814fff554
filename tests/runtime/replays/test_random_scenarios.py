"""Tests of random scenarios through planner, driver and workers without Spark, compared with
DuckDB.

Each has random plans and layouts in most epochs, tasks that fail, a driver that dies or restarts,
compaction, rulesets that come late or never (``tests.support.scenarios.script``). ``python -m
tests.support.scenarios.run --engine local --seeds 0-199`` runs as many as one likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from anabranch_contract.protocol.progress import Mode
from tests.support.scenarios.features import WANTED_OF_MANY, WANTED_OF_MANY_RUNS, WANTED_OF_RUNS
from tests.support.scenarios.run import local
from tests.support.scenarios.script import draw
from tests.support.scenarios.seeds import LOCAL_FEW, LOCAL_MANY, few, parts
from tests.support.surroundings.folders import passing_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with passing_folder() as found:
        yield found


@pytest.fixture(scope="module")
def covered() -> Counter[str]:
    """Feature -> number of this module's runs that covered it."""
    return Counter()


def assert_exact(seed: int, redis: str, folder: Path) -> set[str]:
    """Assert that the scenario of ``seed`` is exact; return the features that it covered."""
    verdict, happened = local(seed, folder / str(seed), redis)
    assert not verdict.problems, f"seed {seed}: {verdict}"
    return set(happened)


@pytest.mark.parametrize("seeds", few(LOCAL_FEW, 5, 9, 10, 12, 32), ids=str)
def test_runs_are_exact(seeds: Sequence[int], redis: str, folder: Path) -> None:
    found: set[str] = set()
    for seed in seeds:
        found |= assert_exact(seed, redis, folder)
    assert found >= WANTED_OF_RUNS, sorted(WANTED_OF_RUNS - found)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(LOCAL_MANY, 20), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_are_exact(
    seeds: Sequence[int], redis: str, covered: Counter[str], folder: Path
) -> None:
    wrong = {}
    for seed in seeds:
        verdict, happened = local(seed, folder / str(seed), redis)
        covered.update(set(happened))
        if verdict.problems:
            wrong[seed] = str(verdict)
    assert not wrong


@pytest.mark.slow
def test_many_runs_have_everything_in_them(
    request: pytest.FixtureRequest, covered: Counter[str]
) -> None:
    if not covered:
        pytest.skip("the runs were deselected")
    wanted = WANTED_OF_MANY | WANTED_OF_RUNS | WANTED_OF_MANY_RUNS
    assert set(covered) >= wanted, sorted(wanted - set(covered))


def test_equal_seeds_give_equal_scripts() -> None:
    assert draw(7, 9) == draw(7, 9)
    assert {draw(seed, 9).mode for seed in range(20)} == set(Mode)
