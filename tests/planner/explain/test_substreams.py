"""Tests of explanations of substreams: shares, costs, and groups of values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import Label
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.explain.substreams import explain_substreams
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from tests.planner.cost.test_values import with_nulls
from tests.planner.skew.test_substreams import STAR, skewed


def model_of(statistics: Statistics, substreams: Sequence[Substreams]) -> CostModel:
    return CostModel(statistics, bounds=LoosestBounds([STAR]), substreams=substreams)


@pytest.mark.parametrize("seed", range(20))
def test_substreams_are_explained_and_read_back(seed: int) -> None:
    statistics = skewed(Random(seed))
    plan = optimise([STAR], statistics, Options(substreams=3, mir=False))
    found = explain_substreams(plan, [STAR], model_of(statistics, plan.substreams))
    assert [one["start"] for one in found] == [one.start for one in plan.substreams]
    assert json.loads(json.dumps(found)) == found
    probes = sum(step.cost for order in plan.orders for step in order.steps)
    told = {document["start"] for document in found}
    rest = sum(s.cost for o in plan.orders if o.start not in told for s in o.steps)
    costs = sum(one["cost"] for document in found for one in document["substreams"])
    assert costs == pytest.approx(probes - rest)
    for document in found:
        substreams = document["substreams"]
        assert sum(one["share"] for one in substreams) == pytest.approx(1)
        first, *others = substreams
        assert first["others"]
        assert first["cost"] == pytest.approx(first["otherwise"])
        # Each substream has its cheapest probe orders.
        assert all(one["cost"] <= one["otherwise"] * (1 + 1e-9) for one in others)
        assert all(list(one["orders"]) == [STAR.id] for one in substreams)
        known = statistics.values[STAR.relation_of(Label(document["start"])).id, "a"]
        shares = dict(zip(known.hashes, known.arriving, strict=True))
        for one, group in zip(others, document["groups"], strict=True):
            assert sorted(value["share"] for value in one["values"]) == pytest.approx(
                sorted(shares[int(value)] for value in group)
            )


def test_plans_that_tell_nothing_apart_say_nothing() -> None:
    statistics = skewed(Random(1))
    plan = optimise([STAR], statistics, Options())
    assert explain_substreams(plan, [STAR], model_of(statistics, ())) == []


def test_nulls_are_explained_with_the_substream_that_has_them() -> None:
    statistics = with_nulls(skewed(Random(1)), "RSTU")
    plan = optimise([STAR], statistics, Options(substreams=3, mir=False))
    found = explain_substreams(plan, [STAR], model_of(statistics, plan.substreams))
    assert found
    for document in found:
        first, *others = document["substreams"]
        assert first["nulls"] == 0.5
        assert first["share"] >= 0.5
        assert not any(one["nulls"] for one in others)
        assert sum(one["share"] for one in document["substreams"]) == pytest.approx(1)
