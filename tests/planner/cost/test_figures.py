"""Tests of contradictory statistics, which are corrected or refused, and of zeros in statistics."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch_contract.errors import StatisticsError
from anabranch_contract.queries.mirs import sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from tests.support.cases.queries import chain, given_statistics

PAIR = chain("R.a=S.a")
COMPOSITE = chain("R.a=S.a", "R.b=S.b")


def cardinality(
    statistics: Statistics, *, composite: bool = False
) -> tuple[float, tuple[str, ...]]:
    query = COMPOSITE if composite else PAIR
    model = CostModel(statistics)
    return model.cardinality(sub_join(query, frozenset(query.labels))), model.contradictions


def test_sound_statistics_contradict_nothing() -> None:
    distincts = {("R", "a"): 10, ("S", "a"): 20}
    assert cardinality(given_statistics(default=100.0, distincts=distincts)) == (500, ())


def test_a_distinct_count_above_the_cardinality_is_the_cardinality() -> None:
    distincts = {("R", "a"): 900, ("S", "a"): 20}
    assert cardinality(given_statistics(default=100.0, distincts=distincts)) == (
        100,
        ("distinct R(a) is 900, above the cardinality: taken as 100",),
    )


def test_what_a_sketch_is_off_by_is_not_worth_mentioning() -> None:
    distincts = {("R", "a"): 104, ("S", "a"): 20}
    assert cardinality(given_statistics(default=100.0, distincts=distincts)) == (100, ())


def test_no_distinct_value_among_tuples_is_one() -> None:
    distincts = {("R", "a"): 0, ("S", "a"): 0}
    assert cardinality(given_statistics(default=100.0, distincts=distincts)) == (
        10_000,
        (
            "distinct R(a) is 0 among 100 tuples: taken as 1",
            "distinct S(a) is 0 among 100 tuples: taken as 1",
        ),
    )


def test_a_selectivity_above_one_is_one() -> None:
    statistics = given_statistics(default=100.0, selectivities={"R.a=S.a": 1.5})
    assert cardinality(statistics) == (
        10_000,
        ("selectivity of R.a = S.a is 1.5, above 1: taken as 1",),
    )


@pytest.mark.parametrize(
    ("count", "result", "notes"),
    [
        (4, 1_000, ("distinct R(a, b) is 4, below 10 of one part: taken as 10",)),
        (70, 200, ("distinct R(a, b) is 70, above the product of its parts: taken as 50",)),
        (
            900,
            200,
            (
                "distinct R(a, b) is 100, above the product of its parts: taken as 50",
                "distinct R(a, b) is 900, above the cardinality: taken as 100",
            ),
        ),
        (30, 10_000 / 30, ()),
    ],
)
def test_a_composite_count_lies_between_its_parts_and_their_product(
    count: float, result: float, notes: tuple[str, ...]
) -> None:
    distincts = {
        ("R", "a"): 10,
        ("R", "b"): 5,
        ("R", "a,b"): count,
        ("S", "a"): 1,
        ("S", "b"): 1,
        ("S", "a,b"): 1,
    }
    found, said = cardinality(given_statistics(default=100.0, distincts=distincts), composite=True)
    assert found == pytest.approx(result)
    assert said == notes


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("statistics", "what"),
    [
        (lambda v: given_statistics(cardinalities={"R": v, "S": 1.0}), "cardinality of R"),
        (lambda v: given_statistics(default=9.0, distincts={("R", "a"): v}), r"distinct R\(a\)"),
        (lambda v: given_statistics(default=9.0, selectivities={"R.a=S.a": v}), "selectivity of R"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    statistics: object, what: str, value: float
) -> None:
    assert callable(statistics)
    with pytest.raises(StatisticsError, match=what):
        cardinality(statistics(value))


@pytest.mark.parametrize("rates", [{"R": 0.0}, {"R": 0.0, "S": 0.0, "T": 0.0}])
def test_relations_that_nothing_arrives_on_cost_nothing(rates: Mapping[str, float]) -> None:
    query = chain("R.a=S.a", "S.b=T.b")
    statistics = given_statistics(cardinalities=rates, default=100.0)
    plan = optimise([query], statistics, Options())
    model = CostModel(statistics)
    assert model.cardinality(sub_join(query, frozenset(query.labels))) == 0
    assert 0 <= plan.cost < 1000
    assert plan.cost == 0 or len(rates) < 3
