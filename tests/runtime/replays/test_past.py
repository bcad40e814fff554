"""Tests that queries that emit results of past rows have each result of what they can see once.

``python -m tests.support.scenarios.run --engine local --past`` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.past import generate_with_past
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import PAST_FEW, PAST_MANY, few, parts

#: Features that the scenarios must cover.
WANTED = {
    "past emitted",
    "past given-up",
    "past in parts",
    "result of the past",
    "sees part of the past",
    "sees what has not expired",
    "self-join",
    "one tuple in two aliases",
    "MIR",
    "merge",
    "restart",
    "driver gone: commit",
    "task failed: end",
}


@pytest.mark.e2e
def test_the_past_is_emitted_exactly_once(redis: str, tmp_path: Path) -> None:
    assert_exact(PAST_FEW, tmp_path, redis, generate_with_past, WANTED, past=True)


@pytest.mark.parametrize("seeds", few(PAST_FEW[:2], 11), ids=str)
def test_past_rations_and_revisions_together_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    wanted = {"result of the past", "goal made good", "revision taken"}
    assert_exact(
        seeds, tmp_path, redis, generate_with_past, wanted, past=True, owed=True, revised=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(PAST_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_pasts_are_emitted_exactly(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate_with_past, WANTED, past=True)
