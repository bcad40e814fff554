"""Tests of the choice of look-ahead filters, with costs computed by hand."""

from __future__ import annotations

from random import Random

import pytest

from anabranch_contract.plans.ahead import askable
from anabranch_contract.queries.joins import RelationId
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import EpochRequest, make_rules
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.look_ahead import MARGIN, look_ahead, questions
from anabranch_planner.replan.running import plan_of
from tests.support.cases.by_hand import by_hand
from tests.support.cases.queries import chain
from tests.support.cases.random_plans import random_plan
from tests.support.cases.random_problems import random_queries

STAR = chain("S.a=A.a", "S.b=B.b", id="star")
RULES = by_hand({"star:S": ("A", "B")}, STAR)
PRICES = CostConstants(call=0.0, probe=8.0, look=1.0, match=5.0)


def star(rows: float, values: float) -> Statistics:
    """A model: a tuple of S finds 20 of A; B has ``rows`` rows with ``values`` of 1000 values."""
    s, a, b = map(RelationId, "SAB")
    return Statistics(
        {s: 1000.0, a: 1000.0, b: rows},
        {(s, "a"): 50.0, (a, "a"): 50.0, (s, "b"): 1000.0, (b, "b"): values},
    )


def test_a_question_is_worth_what_is_spared_in_front_of_the_later_probe() -> None:
    (found,) = questions(RULES, [STAR], CostModel(star(100, 100)), PRICES)
    assert (found.edge, found.asked.mir) == ("S>A", "B")
    assert found.share == pytest.approx(0.1)
    # 1000 look-ups; one row for each of the 100 tuples that pass.
    assert found.price == pytest.approx(1000 * 9 + 100 * 5)
    # 1000 tuples probe A. S arrives last in half of the 20,000 pairs, and 10,000 probe B.
    assert found.saved == pytest.approx(0.9 * (1000 * 9 + 10_000 * 5 + 10_000 * 9))
    made = look_ahead(RULES, [STAR], CostModel(star(100, 100)), PRICES)
    assert {r.out: r.ahead for r in made.probe_rules if r.ahead} == {"S>A": (found.asked,)}


def test_frequent_values_do_not_look_like_many_values() -> None:
    """1000 rows of 100 values: as many matches as tuples, but only one tuple in ten has any."""
    (found,) = questions(RULES, [STAR], CostModel(star(1000, 100)), PRICES)
    assert found.share == pytest.approx(0.1)


@pytest.mark.parametrize("rows", [1000, 5000])
def test_nothing_is_asked_where_all_is_there(rows: float) -> None:
    assert questions(RULES, [STAR], CostModel(star(rows, 1000)), PRICES) == ()


def test_nothing_is_asked_where_nothing_is_known() -> None:
    assert questions(RULES, [STAR], CostModel(Statistics()), PRICES) == ()


def test_calls_are_part_of_the_price() -> None:
    price = CostConstants(call=1e3, calls=1000.0, probe=8.0, look=1.0, match=5.0)
    assert questions(RULES, [STAR], CostModel(star(100, 100)), price) == ()


def test_nothing_is_asked_on_several_hosts() -> None:
    table = star(100, 100)
    spread = Statistics(table.cardinalities, table.distincts, exchange=ExchangeModel(2))
    assert questions(RULES, [STAR], CostModel(spread), PRICES) == ()


@pytest.mark.parametrize("ahead", [False, True])
def test_rules_ask_where_it_is_wanted(ahead: bool) -> None:
    statistics = star(100, 100)
    request = EpochRequest(
        queries=[STAR],
        streams=(),
        statistics=statistics,
        epoch=0,
        parallelism=1,
        sinks={},
        look_ahead=ahead,
    )
    rules = make_rules(plan_of(RULES, [STAR]), request).ruleset
    assert any(r.ahead for r in rules.probe_rules) is ahead


@pytest.mark.parametrize("seed", range(30))
def test_random_rules_ask_only_what_may_be_asked(seed: int) -> None:
    rng = Random(seed)
    queries = random_queries(seed, count=4, size=4, relations=6)
    relations = sorted({r.id for q in queries for r in q.relations})
    statistics = Statistics(
        {r: rng.uniform(10, 10_000) for r in relations},
        every_distinct={r: rng.uniform(1, 10_000) for r in relations},
    )
    rules = compile_ruleset(
        random_plan(queries, rng), queries, (), epoch=0, parallelism=3, sinks={}
    )
    found = questions(rules, queries, CostModel(statistics, parallelism=3), PRICES)
    known = askable(rules)
    for one in found:
        assert one.asked in known[one.edge]
        assert 0 <= one.share < 1
        assert one.saved > MARGIN * one.price > 0
    assert len({(one.edge, one.asked) for one in found}) == len(found)
    look_ahead(rules, queries, CostModel(statistics, parallelism=3), PRICES).validate()
