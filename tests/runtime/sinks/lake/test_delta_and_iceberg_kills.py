"""Tests of a driver with lake tables as sinks that is killed anywhere and rolled back: readers see
each result once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.exceptions import NoSuchTableError

from anabranch_contract.connectors.sinks import LONGEST_INTERVAL, SinkKind
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point
from anabranch_runtime.sinks.delivery import Delivery
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.lakes import FORMATS, Lake
from tests.support.worlds.driven import Killed, expected, publish
from tests.support.worlds.random_cuts import RandomCuts

#: Points of a batch, and of groups beside batches, in the driver.
POINTS = (
    *(Point.STAGED, Point.PUBLISHED, Point.COMMITTED),
    *(Point.GROUPING, Point.GROUPED, Point.DELIVERED),
)


def rows(lake: Lake) -> Counter[int]:
    """Return the results that a reader of the table sees."""
    try:
        return Counter(lake.read()["b"].to_pylist())
    except (TableNotFoundError, NoSuchTableError):
        return Counter()


@contextmanager
def dying_at(point: Point) -> Iterator[None]:
    def reached(here: Point) -> None:
        if here is point:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        for module in ("driver.driver", "sinks.publisher"):
            patch.setattr(f"anabranch_runtime.{module}.reach", reached)
        yield


def mortal(one: Driver, random: Random) -> None:
    """Kill the driver sometimes before or after a commit, or make the commit fail."""
    commit = one.publisher.writers[SinkKind.LAKE]

    def committing(delivery: Delivery) -> None:
        before, after = (random.random() < 0.1 for _ in range(2))
        if before:
            raise Killed
        if random.random() < 0.1:
            raise OSError("the storage is away")
        commit(delivery)
        if after:
            raise Killed

    one.publisher.writers[SinkKind.LAKE] = committing


def states(log: RandomCuts) -> list[str]:
    """Return the names of the states on disk, and of the empty state before them."""
    return ["0", *(path.stem for path in (log.folder / "state" / "manifest").glob("*.json"))]


def lived(log: RandomCuts, lake: Lake, seed: int) -> None:
    random = log.random = Random(seed)
    to = lake.sink(anabranch__batchColumn="origin")
    if random.random() < 0.5:
        to = replace(to, commit_interval=LONGEST_INTERVAL)
    publish(log.url, 0, sinks={"q": to})
    one, newest, seen, whole = log.start(), 0, Counter[int](), Counter(expected(log.total))
    mortal(one, random)
    while True:
        try:
            point = random.choice(POINTS)
            with dying_at(point) if random.random() < 0.4 else nullcontext():
                done = not log.step(one)
                one.publisher.retry(now=random.random() < 0.5)
                if done:
                    one.publisher.finish()
                    break
        except Killed:
            newest = max(newest, *map(int, states(log)))
            # Three states are kept.
            while random.random() < 0.5 and int(max(states(log))) > max(newest - 2, 1):
                (log.folder / "state" / "manifest" / f"{max(states(log))}.json").unlink()
            one = log.start()
            mortal(one, random)
        except SinkError:
            # The sink failed at the end.
            continue
        newest = max(newest, *map(int, states(log)))
        found = rows(lake)
        assert seen <= found <= whole
        seen = found
    assert rows(lake) == whole


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("seed", mostly_slow(range(40), 2))
def test_random_deaths_and_roll_backs_are_exact(
    url: str, form: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(form, tmp_path / "lake").configured(monkeypatch)
    lived(RandomCuts(url, tmp_path), lake, seed)
