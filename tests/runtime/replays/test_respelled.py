"""Tests that queries respelled with subqueries, WITH, parentheses and longer stream names are
exact.

``python -m tests.support.scenarios.run --engine local --respelled`` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.draw import generate_respelled
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.run import assert_exact, replay
from tests.support.scenarios.seeds import RESPELLED_FEW, RESPELLED_MANY, RESPELLED_REPLAYS, parts

#: Features that the scenarios must cover.
WANTED = {"MIR", "self-join", "window map", "residual", "time condition", "4-way", "restart"}


def test_runs_in_other_words_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(RESPELLED_FEW, tmp_path, redis, generate_respelled, WANTED)
    said = [
        query.sql
        for seed in RESPELLED_FEW
        for query in read_scenario(tmp_path / str(seed) / "SCENARIO.yaml").queries.values()
    ]
    assert any("WITH" in sql for sql in said)
    assert any("(SELECT" in sql for sql in said)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(RESPELLED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_in_other_words_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate_respelled, WANTED)


@pytest.mark.slow
@pytest.mark.parametrize("seed", RESPELLED_REPLAYS)
def test_a_replay_in_other_words_is_exact(seed: int, tmp_path: Path) -> None:
    verdict, _ = replay(seed, tmp_path, generate_respelled)
    assert not verdict.problems, str(verdict)
