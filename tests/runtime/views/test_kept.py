"""Compare kept outer, semi and anti joins with DuckDB, up to the watermark of the
partner's stream.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.worlds.outer_runs import BEGIN, Drawn, OuterRun, draw, run_seed


def at(minute: int) -> dt.datetime:
    return BEGIN + dt.timedelta(minutes=minute)


#: An anti join, left joins of one stream and of two, a semi join; views over two of them.
FEW = (0, 1, 4, 5)


@pytest.mark.parametrize("seed", FEW)
def test_a_random_join_is_what_the_oracle_says(seed: int, tmp_path: Path) -> None:
    run_seed(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_random_joins_are_what_the_oracle_says(seed: int, tmp_path: Path) -> None:
    run_seed(tmp_path, seed)


def test_the_seeds_have_every_kind() -> None:
    drawn = [draw(Random(seed)) for seed in FEW]
    assert {d.kind for d in drawn} == {"left", "semi", "anti"}
    assert any("JOIN b" in d.left for d in drawn)
    assert any(d.left == "a" for d in drawn)
    assert {len(d.above or ()) for d in drawn} == {0, 3}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], OuterRun]]:
    runs: list[OuterRun] = []

    def begin(kind: str) -> OuterRun:
        drawn = Drawn(
            kind,
            "a.v AS y, c.v AS w" if kind == "left" else "a.v AS y",
            "a",
            "c.k = a.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL '10' MINUTE",
            "",
            "a.ts + INTERVAL 10 MINUTE",
        )
        runs.append(OuterRun(tmp_path, drawn))
        return runs[-1]

    yield begin
    for run in runs:
        run.tables.close()


def test_a_pair_comes_at_once_and_a_lonely_row_when_it_is_certain(
    start: Callable[[str], OuterRun],
) -> None:
    run = start("left")
    run.feed([("a", 1, 7, at(0)), ("a", 2, 8, at(0)), ("c", 1, 5, at(3))])
    run.tables.drain()
    assert run.table() == [(7, 5)]
    # With five minutes of lateness a partner at minute 10 may still arrive.
    run.feed([("c", 9, 0, at(14))])
    run.tables.drain()
    assert run.table() == [(7, 5)]
    run.feed([("c", 9, 0, at(16))])
    run.tables.drain()
    assert run.table() == run.wanted() == [(7, 5), (8, None)]


def test_rows_that_agree_are_as_many_as_they_were(start: Callable[[str], OuterRun]) -> None:
    run = start("anti")
    run.feed([("a", 1, 7, at(0)), ("a", 1, 7, at(0)), ("a", 2, 7, at(0)), ("c", 2, 0, at(1))])
    run.feed([("a", 1, 7, at(0))])
    run.feed([("c", 9, 0, at(30))])
    run.tables.drain()
    assert run.table() == run.wanted() == [(7,), (7,), (7,)]


def test_a_row_whose_deadline_is_past_when_it_comes_is_decided_at_once(
    start: Callable[[str], OuterRun],
) -> None:
    run = start("left")
    run.feed([("c", 9, 0, at(100)), ("c", 1, 5, at(1))])
    run.tables.drain()
    # Stream a is far behind stream c, whose tuples are stored, and which has no more input.
    run.feed([("a", 1, 7, at(0)), ("a", 2, 8, at(0)), ("a", 2, 8, at(0)), ("a", 1, 7, at(80))])
    run.tables.drain()
    assert run.table() == run.wanted() == [(7, 5), (7, None), (8, None), (8, None)]


def test_the_clock_alone_decides(start: Callable[[str], OuterRun]) -> None:
    run = start("anti")
    run.feed([("a", 1, 7, at(0))])
    run.tables.drain()
    run.world.restart()
    run.feed([("c", None, 0, at(60))])
    run.tables.drain()
    assert run.table() == [(7,)]
