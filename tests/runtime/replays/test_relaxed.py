"""Tests that queries which check a part of their filters after joining, since a store has more
rows, are exact.

``python -m tests.support.scenarios.run --engine local --relaxed`` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.draw import generate
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import RELAXED_FEW, RELAXED_MANY, parts

#: Features that the scenarios must cover.
WANTED = {"MIR", "self-join", "residual", "restart"}


def test_runs_with_weaker_filters_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(RELAXED_FEW, tmp_path, redis, generate, WANTED, relaxed=True)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(RELAXED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_with_weaker_filters_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, relaxed=True)
