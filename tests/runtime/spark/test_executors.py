"""Tests that batches run on executors with working Python processes; new ones are warmed up beside
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JError

from anabranch_runtime.spark import executors
from anabranch_runtime.spark.executors import Executor, Executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 120


@dataclass
class Cluster:
    """Executors by id, with numbers of slots; warm-up tasks wait until they are released."""

    slots: dict[str, int]
    #: Lost executors that Spark still lists, with their slots.
    stale: dict[str, int] = field(default_factory=dict)
    free: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    warmed: list[list[str]] = field(default_factory=list)

    def mapPartitions(self, _: Callable[..., Any]) -> Cluster:
        return self

    def collect(self) -> None:
        assert self.free.wait(PATIENCE)
        if self.error is not None:
            raise self.error


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster({"0": 1, "1": 2})

    def at(_: object, places: Sequence[str]) -> Any:
        found.warmed.append(list(places))
        return found

    monkeypatch.setattr(executors, "free_slots", lambda _: sum(found.slots.values()))
    monkeypatch.setattr(executors, "present", lambda _: frozenset(found.slots))
    monkeypatch.setattr(
        executors,
        "executors",
        lambda _: [Executor(i, i, n) for i, n in {**found.slots, **found.stale}.items()],
    )
    monkeypatch.setattr(executors, "at", at)
    return found


def _made() -> Executors:
    return Executors(cast("SparkSession", None))


def _slots(one: Executors) -> tuple[int, list[str] | None]:
    count, places = one.slots()
    return count, None if places is None else list(places)


def _ended() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("warm-up-"):
            thread.join(PATIENCE)


def test_those_that_are_there_at_first_take_part_at_once(cluster: Cluster) -> None:
    one = _made()
    assert _slots(one) == (3, None)
    del cluster.slots["0"]
    assert _slots(one) == (2, None)
    assert not cluster.warmed


def test_one_that_comes_takes_part_when_it_is_warm(cluster: Cluster) -> None:
    one = _made()
    one.slots()
    cluster.slots["2"] = 2
    cluster.stale["9"] = 1
    for _ in range(3):
        assert _slots(one) == (3, ["0", "1", "1"])
    cluster.free.set()
    _ended()
    assert _slots(one) == (5, None)
    # Each executor is warmed up once.
    assert cluster.warmed == [["2", "2"]]


def test_one_that_can_not_be_warmed_up_takes_part_all_the_same(cluster: Cluster) -> None:
    one = _made()
    one.slots()
    cluster.slots["2"] = 1
    cluster.error = Py4JError("no package")
    cluster.free.set()
    one.slots()
    _ended()
    assert _slots(one) == (4, None)


def test_where_all_others_have_gone_nobody_waits_for_it(cluster: Cluster) -> None:
    one = _made()
    one.slots()
    cluster.slots = {"2": 1}
    assert _slots(one) == (1, None)
    cluster.free.set()
    _ended()
