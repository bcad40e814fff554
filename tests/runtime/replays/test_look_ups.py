"""Tests of LEFT, SEMI and ANTI joins with tables (look-ups), in whole runs: kills, plan changes,
hosts, rations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.seeds import LOOK_UPS_FEW, LOOK_UPS_MANY, parts
from tests.support.worlds.look_up_replays import LookUpReplay

WANTED = {
    "LEFT", "LEFT SEMI", "LEFT ANTI", "chains", "results", "rows without a partner",
    "as of arrival",
}  # fmt: skip


def play(
    seeds: Iterable[int],
    folder: Path,
    redis: str,
    *,
    above: bool = False,
    hosts: bool = False,
) -> Counter[str]:
    events: Counter[str] = Counter()
    for seed in seeds:
        home = folder / str(seed)
        home.mkdir(parents=True)
        events += LookUpReplay(home, redis, seed, above=above, hosts=hosts).play()
    return events


def test_look_ups_are_exact(redis: str, tmp_path: Path) -> None:
    events = play(LOOK_UPS_FEW, tmp_path, redis)
    assert not WANTED - (+events).keys(), events


def test_look_ups_on_hosts_are_exact(redis: str, tmp_path: Path) -> None:
    events = play(LOOK_UPS_FEW[:2], tmp_path, redis, hosts=True)
    assert events["results"], events


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(LOOK_UPS_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_look_ups_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert not WANTED - (+play(seeds, tmp_path / "one", redis)).keys()
    play(seeds[:10], tmp_path / "hosts", redis, hosts=True)


@pytest.mark.e2e
def test_views_over_look_ups_are_exact(redis: str, tmp_path: Path) -> None:
    events = play(LOOK_UPS_FEW, tmp_path, redis, above=True)
    assert events["results"], events
    assert 0 < events["windows"] < len(LOOK_UPS_FEW), events
