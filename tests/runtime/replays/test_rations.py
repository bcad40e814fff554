"""Runs that withhold random tuples from probes give exactly the results that the ledger leaves.

Rations are drawn anew whenever the driver asks, so a batch that is repeated after a failure shows
whether it goes by its journal. ``python -m tests.support.scenarios.run --engine local --rationed``
runs as many as one likes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.scenarios.draw import generate
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import RATIONED_FEW, RATIONED_MANY, parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: What the scenarios have to have had in them.
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


def test_rationed_runs_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(RATIONED_FEW, tmp_path, redis, generate, WANTED, rationed=True)


def test_rations_and_revisions_together_are_exact(redis: str, tmp_path: Path) -> None:
    wanted = {"rationed by batch", "revision taken"}
    seeds = RATIONED_FEW[:2]
    assert_exact(seeds, tmp_path, redis, generate, wanted, revised=True, rationed=True)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(RATIONED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_rationed_runs_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, rationed=True)
