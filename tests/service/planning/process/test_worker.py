"""Tests that the last plan is kept for a while if only figures have changed, with a record of its
figures.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any, cast

import pytest

from anabranch_contract.protocol.measurements import Snapshot
from anabranch_service.planning import loop
from anabranch_service.planning.process import process as planner_process
from anabranch_service.planning.process.process import TimedTask
from anabranch_service.planning.process.worker import RESTS, _Planner
from anabranch_service.registry.publishing.publication import Sealed
from tests.service.conftest import CHAIN, PAIR
from tests.support.worlds.service import Service


class _Rests:
    def planned(self, now: float, cost: float) -> None:
        """Note that a plan has been made."""

    def rests(self, now: float) -> bool:
        return True

    def edited(self, now: float) -> None:
        """Note that a query was added or deleted."""

    def may_edit(self, now: float) -> bool:
        return True


@pytest.fixture
def asked(shop: Service, monkeypatch: pytest.MonkeyPatch) -> list[TimedTask]:
    """Plan requests to the planner's process: one without statistics, two with changing statistics,
    one with an additional query.
    """
    found: list[TimedTask] = []
    ask = planner_process._ask

    def noted(child: subprocess.Popen[bytes], one: planner_process.Asked) -> Any:
        if isinstance(one, TimedTask):
            found.append(one)
        return ask(child, one)

    monkeypatch.setattr(planner_process, "_ask", noted)
    monkeypatch.setattr(loop, "APART", 1)
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    for epoch, orders in enumerate((1000, 100_000, 10)):
        if epoch == 2:
            shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        arrivals = {"orders": orders, "customers": 500, "items": 500}
        shop.plan(epoch, snapshot=Snapshot(epoch, 4, 4, arrivals=arrivals))
    assert [shop.get(f"/v1/epochs/{n}")["statistics_epoch"] for n in range(4)] == [None, 0, 1, 2]
    assert not any(one.rests for one in found), "in step mode every plan is made"
    return found


@pytest.mark.parametrize("rests", [False, True])
def test_planning_rests_only_where_nothing_but_figures_has_moved(
    asked: list[TimedTask], rests: bool
) -> None:
    planner = _Planner()
    planner._pace = cast("Any", _Rests())
    made = [cast("Sealed", planner.answer(replace(one, rests=rests))).record for one in asked]
    methods = [one.method == RESTS for one in made]
    # Not after a plan without figures, and not if there is another query.
    assert methods == [False, False, rests, False]
    # A query over another stream is planned with new statistics.
    assert [one.statistics_epoch for one in made] == [None, 0, 0 if rests else 1, 2]
    assert [one.epoch for one in made] == [0, 1, 2, 3]
    assert (made[2].cost == made[1].cost) is rests
    assert list(made[3].queries) == ["pair", "chain"]


@pytest.mark.parametrize("rests", [False, True])
def test_a_query_over_known_relations_is_added_under_the_same_statistics(
    asked: list[TimedTask], rests: bool
) -> None:
    planner = _Planner()
    planner._pace = cast("Any", _Rests())
    first, second, moved, both = (replace(one, rests=rests) for one in asked)
    planner.answer(first)
    before = cast("Sealed", planner.answer(second)).record
    # Later tasks have only new queries.
    ((pair, *_), (chain, *_)) = first.task.queries, both.task.queries
    # The same join once more, after a change of statistics.
    other = replace(pair, id=type(pair.id)("other"))
    sinks = {**moved.task.sinks, "other": moved.task.sinks["pair"]}
    task = replace(moved.task, queries=(other,), sinks=sinks)
    made = cast("Sealed", planner.answer(replace(moved, task=task, order=(pair.id, other.id))))
    assert list(made.record.queries) == ["pair", "other"]
    assert made.record.statistics_epoch == (0 if rests else 1)
    # One plan is used for both.
    assert (made.record.cost == before.cost) is rests
    # Without the query, the plan is the first one again.
    task = replace(moved.task, queries=(), sinks=moved.task.sinks, epoch=moved.task.epoch + 1)
    alone = replace(moved, task=task, order=(pair.id,), after=moved.task.epoch)
    less = cast("Sealed", planner.answer(alone)).record
    assert list(less.queries) == ["pair"]
    assert less.statistics_epoch == (0 if rests else 1)
    assert (less.cost == before.cost) is rests
    again = replace(task, queries=(other,), sinks=sinks, epoch=task.epoch + 1)
    two = (pair.id, other.id)
    planner.answer(replace(moved, task=again, order=two, after=task.epoch))
    both = replace(both, after=again.epoch, task=replace(both.task, epoch=again.epoch + 1))
    # A query over a stream that no query read before is planned with new statistics.
    whole = replace(both.task, queries=(chain,), sinks={**sinks, **both.task.sinks})
    order = (pair.id, other.id, chain.id)
    last = cast("Sealed", planner.answer(replace(both, task=whole, order=order))).record
    assert last.statistics_epoch == 2
