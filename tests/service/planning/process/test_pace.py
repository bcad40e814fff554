"""Tests of how often everything is planned because figures have changed."""

from __future__ import annotations

import random

import pytest

from anabranch_service.planning.process.pace import EDITABLE, QUIET, RECENT, SHARE, Pace


def test_before_the_first_plan_nothing_rests() -> None:
    assert not Pace().rests(0.0)
    assert Pace().due == float("-inf")


def test_a_plan_rests_for_a_multiple_of_its_cost_and_no_longer_than_there_were_plans() -> None:
    pace = Pace()
    pace.planned(100.0, 5.0)
    assert not pace.rests(100.0)
    pace.planned(104.0, 5.0)
    assert [pace.rests(now) for now in (104.0, 107.9, 108.0)] == [True, True, False]
    assert pace.due == 108.0
    pace.planned(300.0, 5.0)
    assert [pace.rests(now) for now in (300.0, 349.9, 350.0)] == [True, True, False]
    pace.planned(350.0, 0.01)
    assert not pace.rests(350.1)


def test_a_plan_rests_while_queries_come_and_go_but_not_for_ever() -> None:
    pace = Pace()
    pace.planned(0.0, 0.01)
    assert [pace.may_edit(now) for now in (0.0, EDITABLE - 1, EDITABLE)] == [True, True, False]
    for now in range(1, int(RECENT)):
        assert not pace.rests(now - 0.1) or now > 1
        pace.edited(now)
        assert pace.rests(now + 0.9)
    assert not pace.rests(RECENT)
    pace.planned(RECENT, 0.01)
    pace.edited(RECENT + 5)
    quiet = RECENT + 5 + QUIET
    assert [pace.rests(now) for now in (quiet - 0.1, quiet)] == [True, False]


@pytest.mark.parametrize("seed", range(20))
def test_in_the_long_run_planning_has_its_share(seed: int) -> None:
    rng, pace = random.Random(seed), Pace()
    now, spent, epoch = 0.0, 0.0, rng.uniform(1, 10)
    while now < 5_000:
        now += epoch
        if not pace.rests(now):
            cost = rng.uniform(2, 8)
            spent += cost
            now += cost
            pace.planned(now, cost)
    assert spent <= SHARE * now + 8 * 8
