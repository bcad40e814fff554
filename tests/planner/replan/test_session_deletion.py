"""Tests of removing queries from the last plan without a search, with a cost bound that stays
proven and close.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import JoinQuery, QueryId
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.statistics.steady import Settled
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan import session
from anabranch_planner.replan.session import Session
from anabranch_planner.search.demands import Switching
from benchmarks.planner.random_queries import natural
from tests.planner.replan.test_session import check
from tests.support.scenarios.seeds import mostly_slow


def mixed(seed: int, sizes: tuple[int, ...]) -> tuple[list[JoinQuery], Statistics]:
    """Return queries of several sizes over the same relations; some have a twin."""
    every = list[JoinQuery]()
    for size in sizes:
        some, statistics = natural(seed, relations=6, count=4, size=size)
        every += [replace(q, id=QueryId(f"{q.id}-{size}")) for q in some]
    twins = [replace(q, id=QueryId(f"{q.id}-twin")) for q in every[::3]]
    return [*every, *twins], statistics


@pytest.mark.parametrize("seed", mostly_slow(range(60), 8))
def test_bounds_hold_while_one_query_after_the_other_goes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with the proven optimum of a full plan; also long after the last search."""
    monkeypatch.setattr(session, "PART", 1.0)
    monkeypatch.setattr(session, "LOOSEST", 1.0)
    rng = Random(seed)
    there, statistics = mixed(seed, rng.choice(((2, 3), (2, 4), (3,), (2,))))
    options = Options(
        parallelism=rng.choice((1, 3)), objective=rng.choice(list(Objective)), mir=seed % 2 == 0
    )
    weight = rng.choice((0.0, 0.1))
    planner, searched, charged = Session(), 0, options
    last = planner.plan(there, Settled(statistics), options, weight)
    # With more deleted queries than remaining ones, the graph would be rebuilt.
    for _ in range(len(there) // 2):
        if weight:
            # As in the service, a full replanning is charged for its changes.
            charged = replace(options, switching=Switching(footprint(last, there), weight))
        there.pop(rng.randrange(len(there)))
        last = planner.plan(there, Settled(statistics), charged, weight)
        check(last, there, statistics, charged)
        searched += not last.method.startswith("without 1 queries")
    # Only a partitioned store may keep an attribute that no remaining query joins by.
    assert not searched or options.parallelism > 1


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_of_queries_with_one_order_stays_the_optimum(seed: int) -> None:
    """Every plan has the queries' stores and steps, so the bound stays exact."""
    there, statistics = mixed(seed, (2,))
    planner, options = Session(), Options(mir=False, parallelism=1)
    planner.plan(there, Settled(statistics), options)
    while len(there) > 4:
        gone = there.pop(0)
        found = planner.plan(there, Settled(statistics), options)
        assert found.method == "without 1 queries, else as before", gone.id
        assert found.gap <= 1e-9


def test_a_plan_loosened_by_deletions_is_searched_when_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "LOOSER", 1e-6)
    monkeypatch.setattr(session, "LOOSEST", 0.5)
    there, statistics = natural(1, relations=20, count=60, size=4)
    planner, options = Session(), Options(parallelism=1)
    searches = list[int]()
    anew = Session._anew

    def counted(*given: object) -> object:
        searches.append(1)
        return anew(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "_anew", counted)
    planner.plan(there, Settled(statistics), options)
    assert planner.stays(there)
    while planner.stays(there):
        there = there[1:]
        found = planner.plan(there, Settled(statistics), options)
    # The plan is still valid, with a stated gap, and needs no search yet.
    check(found, list(there), statistics, options)
    assert session.LOOSER < found.gap <= session.LOOSEST
    assert planner.may_rest(there)
    assert not planner.may_rest(there[1:])
    # Further queries are removed without a search.
    for _ in range(3):
        there = there[1:]
        assert planner.plan(there, Settled(statistics), options).gap <= session.LOOSEST
    assert len(searches) == 1
    again = planner.plan(there, Settled(statistics), options)
    assert len(searches) == 2
    assert again.gap <= session.LOOSER
    assert planner.stays(there)
    # Beyond the maximum gap, the search is made at once.
    monkeypatch.setattr(session, "LOOSEST", 0.0)
    while len(searches) == 2:
        there = there[1:]
        found = planner.plan(there, Settled(statistics), options)
    assert found.gap <= session.LOOSER
    assert planner.stays(there)
