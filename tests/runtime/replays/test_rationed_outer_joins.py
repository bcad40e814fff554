"""Outer, semi and anti joins under rations: what is left out follows from the ledger, none lies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.worlds.outer_replays import OuterReplay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Play = Callable[[int, bool], None]

pytestmark = pytest.mark.spark

#: Left, semi and anti joins, and views over some. Seed 5: a driver that came up anew removed a
#: version's file, which was named like a batch's.
FEW = (4, 5, 9, 12)
FEW_OWED = (0, 4, 6, 10)
#: What has to have happened in the few.
WANTED = {"something withheld", "rationed by key class", "nothing let through", "restart"}


@pytest.fixture(scope="module")
def events() -> Counter[str]:
    return Counter()


@pytest.fixture
def play(spark: SparkSession, redis: str, tmp_path: Path, events: Counter[str]) -> Play:
    def run(seed: int, owed: bool) -> None:
        verdict = OuterReplay(spark, tmp_path, redis, seed, owed).play()
        events.update(verdict.events)
        assert verdict.found == verdict.wanted, verdict.statement

    return run


@pytest.mark.parametrize("seed", FEW)
def test_a_rationed_join_is_what_the_ledger_says(seed: int, play: Play) -> None:
    play(seed, False)


@pytest.mark.parametrize("seed", FEW_OWED)
def test_what_is_made_good_is_decided(seed: int, play: Play) -> None:
    play(seed, True)
