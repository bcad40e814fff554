"""Compare views and kept outer joins over inserts and deletes with DuckDB over the net input after
every batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.seeds import (
    CHANGED_VIEWS_FEW,
    CHANGED_VIEWS_MANY,
    KEPT_OUTER_FEW,
    KEPT_OUTER_MANY,
    few,
    parts,
)
from tests.support.worlds.changed_views import ChangedViewReplay


def play(
    seeds: Iterable[int],
    folder: Path,
    redis: str,
    *,
    hosts: bool = False,
    outer: bool = False,
) -> Counter[str]:
    events: Counter[str] = Counter()
    for seed in seeds:
        home = folder / str(seed)
        home.mkdir(parents=True)
        events += ChangedViewReplay(home, redis, seed, hosts, outer).play()
    return events


@pytest.mark.parametrize("seeds", few(CHANGED_VIEWS_FEW, 0, 1), ids=str)
def test_views_follow_changes(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    events = play(seeds, tmp_path, redis)
    assert events["rows"], events


@pytest.mark.e2e
def test_views_follow_changes_on_hosts(redis: str, tmp_path: Path) -> None:
    assert play(CHANGED_VIEWS_FEW[:2], tmp_path, redis, hosts=True)["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(CHANGED_VIEWS_MANY, 25), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_views_follow_changes(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    events = play(seeds, tmp_path / "one", redis)
    events += play(seeds[:5], tmp_path / "hosts", redis, hosts=True)
    assert events["late view"], events


@pytest.mark.parametrize("seeds", few(KEPT_OUTER_FEW, 0, 1), ids=str)
def test_outer_joins_follow_changes(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    events = play(seeds, tmp_path, redis, outer=True)
    assert events["rows"], events


@pytest.mark.e2e
def test_outer_joins_follow_changes_on_hosts(redis: str, tmp_path: Path) -> None:
    assert play(KEPT_OUTER_FEW[:2], tmp_path, redis, hosts=True, outer=True)["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(KEPT_OUTER_MANY, 25), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_outer_joins_follow_changes(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    events = play(seeds, tmp_path / "one", redis, outer=True)
    events += play(seeds[:5], tmp_path / "hosts", redis, hosts=True, outer=True)
    assert events["late view"], events
    assert events["without past"], events
