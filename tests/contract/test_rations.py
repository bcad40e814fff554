"""Tests of a schedule of rations, which interpolates between its points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.plans.rations import (
    Floor,
    Ranking,
    RationedGoal,
    RationSchedule,
    SchedulePoint,
)
from anabranch_contract.queries.joins import Label, QueryId

RANKING = Ranking((("k", "bigint"),), by_batch=True)
SCHEDULE = RationSchedule(
    3,
    1,
    tuple(RationedGoal(QueryId("q"), Label(a), RANKING) for a in ("b", "a")),
    (
        SchedulePoint(0.0, (0.0, 0.0)),
        SchedulePoint(0.4, (1.0, 0.0)),
        SchedulePoint(0.4, (1.0, 0.2)),
        SchedulePoint(1.0, (1.0, 1.0)),
    ),
)


@pytest.mark.parametrize(
    ("budget", "shares"),
    [
        (-1.0, {"b": 0.0, "a": 0.0}),
        (0.1, {"b": 0.25, "a": 0.0}),
        (0.4, {"a": 0.2}),
        (0.7, {"a": 0.6}),
        (1.0, {}),
        (3.0, {}),
    ],
)
def test_rations_follow_the_budget(budget: float, shares: dict[str, float]) -> None:
    found = SCHEDULE.rations(budget)
    assert {str(r.start): r.share for r in found} == pytest.approx(shares)
    assert list(found) == sorted(found)


def test_below_the_first_point_nothing_can_be_saved() -> None:
    floor = RationSchedule(
        3, 0, SCHEDULE.goals, (SchedulePoint(0.3, (0.5, 0.5)), SchedulePoint(1.0, (1.0, 1.0)))
    )
    assert {r.share for r in floor.rations(0.1)} == {0.5}


def test_a_schedule_travels_as_text() -> None:
    assert RationSchedule.loads(SCHEDULE.dumps()) == SCHEDULE
    floors = (Floor(QueryId("q"), 0.9, 0.7),)
    full = replace(SCHEDULE, floors=floors)
    assert RationSchedule.loads(full.dumps()) == full


def test_a_floor_is_broken_below_what_it_needs() -> None:
    floor = Floor(QueryId("q"), 0.9, 0.7)
    assert [floor.broken(budget) for budget in (0.0, 0.69, 0.7, 1.0)] == [True, True, False, False]
