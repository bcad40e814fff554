"""Tests of runs that withhold random tuples from probes: they have exactly the results that the
ledger leaves.

The driver gets other random rations at each request, so a repeated batch shows whether it uses its
journal. ``python -m tests.support.scenarios.run --engine local --rationed`` runs as many as one
likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from anabranch_contract.plans.rations import Allocation
from tests.support.scenarios.draw import generate
from tests.support.scenarios.rows import LOCAL
from tests.support.scenarios.run import assert_exact, run_local
from tests.support.scenarios.script import draw
from tests.support.scenarios.seeds import RATIONED_FEW, RATIONED_MANY, few, mostly_slow, parts

#: Features that the scenarios must cover.
WANTED = {
    "rationed by batch",
    "rationed by key class",
    "nothing let through",
    "self-join",
    "MIR",
    "restart",
    "driver gone: job",
    "task failed: meet",
    "tasks change between attempts",
}


@pytest.mark.parametrize("seeds", few(RATIONED_FEW, 5, 37, 54), ids=str)
def test_rationed_runs_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, rationed=True)


@pytest.mark.e2e
def test_rations_and_revisions_together_are_exact(redis: str, tmp_path: Path) -> None:
    wanted = {"rationed by batch", "revision taken"}
    seeds = RATIONED_FEW[:2]
    assert_exact(seeds, tmp_path, redis, generate, wanted, revised=True, rationed=True)


@pytest.mark.parametrize("seed", mostly_slow(RATIONED_FEW[:3]))
def test_rations_that_jaqpot_has_planned_are_exact(seed: int, redis: str, tmp_path: Path) -> None:
    rng, script = Random(seed), draw(seed, 8)
    chosen = frozenset(b for b in range(100) if rng.random() < 0.8)
    script = replace(script, rationed=chosen, allocation=Allocation.JAQPOT)
    verdict, happened = run_local(generate(seed, tmp_path, LOCAL), script, redis)
    assert not verdict.problems, str(verdict)
    assert happened["rationed by batch"] + happened["rationed by key class"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(RATIONED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_rationed_runs_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, rationed=True)
