"""Tests of outer, semi and anti joins under rations: the ledger accounts for every missing row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.support.cases import random_rations
from tests.support.scenarios.seeds import mostly_slow, parts
from tests.support.worlds.outer_replays import OuterReplay

#: Left, semi and anti joins, some of them under a view. Seed 5: a restarted driver removed a
#: version's file, which was named like a batch's. Seed 1: a view over an outer join with withheld
#: rows stopped the pipeline.
FEW, FEW_OWED = (1, 2, 5), (0, 13)
MANY = range(100, 150)


def _assert_exact(
    seeds: Iterable[int], redis: str, folder: Path, *, owed: bool = False
) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        home = folder / str(seed)
        home.mkdir()
        verdict = OuterReplay(home, redis, seed, owed).play()
        assert verdict.found == verdict.wanted, (seed, verdict.statement)
        happened.update(verdict.events)
    return happened


def test_rationed_joins_are_what_the_ledger_says(redis: str, tmp_path: Path) -> None:
    happened = _assert_exact(FEW, redis, tmp_path)
    assert happened["something withheld"] > 1
    assert happened["nothing let through"]
    assert happened["driver gone: commit"]
    assert happened["restart"]


def test_what_is_made_good_is_decided(redis: str, tmp_path: Path) -> None:
    happened = _assert_exact(FEW_OWED, redis, tmp_path, owed=True)
    assert happened["made good"]
    assert happened["late result"]
    assert happened["something withheld"]


@pytest.mark.slow
@pytest.mark.parametrize("owed", [False, True], ids=["rationed", "made good"])
@pytest.mark.parametrize("seeds", parts(MANY, 10), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_rationed_joins_are_what_the_ledger_says(
    seeds: Sequence[int], owed: bool, redis: str, tmp_path: Path
) -> None:
    _assert_exact(seeds, redis, tmp_path, owed=owed)


#: Seeds of a left, a semi and an anti join without a view.
KINDS = {"LEFT JOIN": 46, "LEFT SEMI": 47, "LEFT ANTI": 27}


@pytest.mark.parametrize("kind", mostly_slow(KINDS))
def test_what_is_missing_of_their_results_is_estimated(
    kind: str, redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_rations, "_SHARES", (0.3, 0.5, 0.7))
    replay = OuterReplay(tmp_path, redis, KINDS[kind], keys=400, sizes=(100, 150))
    verdict = replay.play()
    assert kind in verdict.statement
    assert verdict.found == verdict.wanted
    assert verdict.share < 1
    said = verdict.said
    assert said is not None
    assert said.results == len(verdict.found)
    assert said.completeness < 1
    assert 0 < verdict.missing == pytest.approx(verdict.left.missing, rel=1e-4)
    assert said.withheld >= verdict.left.missing
