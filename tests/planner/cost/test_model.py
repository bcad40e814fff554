"""Tests of the cost model: cardinalities, step costs, and defaults for missing statistics."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import combinations

import pytest

from anabranch_contract.errors import StatisticsError
from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, is_connected, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from tests.support.cases.queries import chain, given_statistics

TPCH = given_statistics(
    cardinalities={"supplier": 10e3, "partsupp": 800e3, "part": 200e3, "lineitem": 6e6},
    distincts={
        ("supplier", "sk"): 10e3,
        ("part", "pk"): 200e3,
        ("partsupp", "pk"): 200e3,
        ("partsupp", "sk"): 10e3,
        ("partsupp", "pk,sk"): 800e3,
        ("lineitem", "pk"): 200e3,
        ("lineitem", "sk"): 10e3,
        ("lineitem", "pk,sk"): 800e3,
    },
)
Q3 = chain(
    "supplier.sk=partsupp.sk",
    "partsupp.pk=part.pk",
    "partsupp.pk=lineitem.pk",
    "partsupp.sk=lineitem.sk",
)


def over(query: JoinQuery, *labels: str) -> Mir:
    return sub_join(query, frozenset(Label(x) for x in labels))


def test_a_key_class_divides_by_all_but_its_smallest_distinct_count() -> None:
    query = chain("R.a=S.a", "S.a=T.a")
    statistics = given_statistics(
        default=1000.0, distincts={("R", "a"): 10, ("S", "a"): 50, ("T", "a"): 100}
    )
    assert CostModel(statistics).cardinality(over(query, *"RST")) == pytest.approx(1e9 / 50 / 100)


def test_foreign_keys_with_a_composite_key_keep_the_size_of_the_referring_relation() -> None:
    model = CostModel(TPCH)
    for size in range(1, 4):
        for others in combinations(("supplier", "partsupp", "part"), size):
            labels = frozenset(Label(x) for x in (*others, "lineitem"))
            if is_connected(Q3, labels):
                assert model.cardinality(sub_join(Q3, labels)) == pytest.approx(6e6)
    assert model.assumed == ()


def test_an_unknown_composite_count_is_at_most_the_cardinality() -> None:
    known = {k: v for k, v in TPCH.distincts.items() if "," not in k[1]}
    model = CostModel(replace(TPCH, distincts=known))
    joined = over(Q3, "partsupp", "lineitem")
    assert model.cardinality(joined) == pytest.approx(800e3)
    assert model.assumed == (
        "distinct lineitem(pk, sk) = product, at most cardinality",
        "distinct partsupp(pk, sk) = product, at most cardinality",
    )


def test_measured_selectivities_go_before_derived_ones() -> None:
    query = chain("R.a=S.a", "S.b=T.b")
    statistics = given_statistics(
        default=100.0, selectivities={"S.b=T.b": 0.015}, distincts={("R", "a"): 20, ("S", "a"): 5}
    )
    model = CostModel(statistics)
    assert model.cardinality(over(query, "S", "T")) == pytest.approx(150)
    assert model.cardinality(over(query, "R", "S")) == pytest.approx(500)
    assert model.cardinality(over(query, *"RST")) == pytest.approx(750)


def test_a_cycle_of_classes_counts_every_class_once() -> None:
    query = chain("R.a=S.a", "S.b=T.b", "T.c=R.c")
    statistics = given_statistics(default=100.0, selectivity_default=0.1)
    assert CostModel(statistics).cardinality(over(query, *"RST")) == pytest.approx(1e6 * 0.001)


def test_everything_unknown_is_assumed_and_named() -> None:
    query = chain("R.a=S.a")
    model = CostModel(Statistics())
    assert model.cardinality(over(query, "R", "S")) == pytest.approx(1000)
    assert model.assumed == (
        "cardinality of R = 1000",
        "cardinality of S = 1000",
        "distinct R(a) = its cardinality",
        "distinct S(a) = its cardinality",
    )


def test_step_cost_is_the_share_of_the_join_that_this_path_makes() -> None:
    query = chain("R.a=S.a", "S.b=T.b")
    model = CostModel(given_statistics(default=100.0, selectivity_default=0.03), parallelism=4)
    assert model.probe(over(query, "R")) == pytest.approx(100)
    assert model.probe(over(query, "R", "S")) == pytest.approx(150)
    assert (model.chi(broadcast=True), model.chi(broadcast=False)) == (4, 1)
    assert model.insert(over(query, "R", "S")) == pytest.approx(300)
    free = CostModel(Statistics(), objective=Objective.PAPER, parallelism=4, partitioning=False)
    assert free.insert(over(query, "R", "S")) == 0
    assert free.chi(broadcast=True) == 1


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_statistics_that_make_no_sense_are_refused(value: float) -> None:
    model = CostModel(given_statistics(default=value))
    with pytest.raises(StatisticsError, match="cardinality of R") as caught:
        model.cardinality(over(chain("R.a=S.a"), "R"))
    assert pickle.loads(pickle.dumps(caught.value)).field == "statistics"


def test_parallelism_is_at_least_one() -> None:
    with pytest.raises(StatisticsError, match="parallelism is 0"):
        CostModel(Statistics(), parallelism=0)
