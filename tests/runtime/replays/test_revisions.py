"""Tests of runs with a random revision of the ruleset before every batch: results are exact.

A revision has any orders over the stores that are there, and closes some intermediate results; some
are of an epoch that is over, some have a wrong digest. Most rulesets are revised before their epoch
begins. Tasks fail and drivers die as in other runs. ``python -m tests.support.scenarios.run
--engine local --revised`` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.draw import generate
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import REVISED_FEW, REVISED_MANY, few, parts

#: Features that the scenarios must cover.
WANTED = {
    "revision taken",
    "revision closes a store",
    "epoch begins revised",
    "MIR",
    "backfill",
    "gap filled from the parts",
    "restart",
    "driver gone: job",
    "task failed: meet",
}


@pytest.mark.parametrize("seeds", few(REVISED_FEW, 9, 12), ids=str)
def test_revised_runs_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, revised=True)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(REVISED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_revised_runs_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, revised=True)
