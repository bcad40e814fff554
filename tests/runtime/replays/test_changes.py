"""Streams of changes: the sum of all results is the join of the net inputs, after every batch.

``python -m tests.support.scenarios.run --engine local --changes`` runs as many scenarios as one
likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.changes import generate_with_changes
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import CHANGES_FEW, CHANGES_MANY, parts

#: Features that the scenarios must cover.
WANTED = {
    "MIR",
    "invalid tuples",
    "late tuples",
    "one tuple in two aliases",
    "past emitted",
    "restart",
    "result of the past",
    "revision taken",
}


def test_changes_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(
        CHANGES_FEW, tmp_path, redis, generate_with_changes, WANTED, past=True, revised=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(CHANGES_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_changes_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    wanted = {*WANTED, "backfill done"}
    assert_exact(seeds, tmp_path, redis, generate_with_changes, wanted, past=True, revised=True)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(CHANGES_MANY[:50], 25), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_changes_on_several_hosts_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate_with_changes, (), past=True, hosts=True)
