"""Tests that runs whose epochs and revisions are planned by dpPick are exact.

Statistics of revisions are drawn, so that orders change often. Some scenarios begin or end under
another optimiser. Tasks fail and drivers die as in other runs. ``python -m
tests.support.scenarios.run --engine local --dppick --revised`` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.picked import generate_picked
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import PICKED_FEW, PICKED_MANY, few, parts

#: Features that the scenarios must have.
WANTED = {
    "revision by dpPick",
    "revision taken",
    "private store",
    "self-join",
    "residual",
    "window",
    "restart",
    "task failed: meet",
}


@pytest.mark.parametrize("seeds", few(PICKED_FEW, 9615, 9629), ids=str)
def test_runs_by_dppick_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate_picked, WANTED, revised=True)


@pytest.mark.slow
@pytest.mark.parametrize("revised", [False, True])
@pytest.mark.parametrize("seeds", parts(PICKED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_by_dppick_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path, *, revised: bool
) -> None:
    wanted = WANTED if revised else WANTED - {"revision by dpPick", "revision taken"}
    assert_exact(seeds, tmp_path, redis, generate_picked, wanted, revised=revised)
