"""Many queries over few streams, which share stores and differ in filters, against DuckDB: through
planner, driver and workers, with rewires, tasks that fail, drivers that die, late and early tuples
(``tests.support.scenarios.script``). In every other batch probes with few tuples go the short way
(``task.direct``), in the others the general one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.scenarios.crowded import BATCHES, generate_crowded
from tests.support.scenarios.run import run_local
from tests.support.scenarios.script import draw

if TYPE_CHECKING:
    from pathlib import Path


def assert_exact(seed: int, count: int, folder: Path, url: str) -> None:
    verdict, _ = run_local(generate_crowded(seed, folder, count), draw(seed, BATCHES), url)
    assert not verdict.problems, f"seed {seed}: {verdict}"
    assert verdict.results > 10 * count


def test_many_queries_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(3, 25, tmp_path, redis)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_queries_are_exact_by_many_scripts(seed: int, redis: str, tmp_path: Path) -> None:
    assert_exact(seed, 40, tmp_path, redis)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_hundreds_of_queries_are_exact(seed: int, redis: str, tmp_path: Path) -> None:
    assert_exact(seed, 300, tmp_path, redis)
