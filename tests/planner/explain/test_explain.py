"""Tests of a plan's explanations against golden files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch_contract.plans.plan import Optimizer
from anabranch_planner.explain.explain import explain, explain_text
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from tests.support.cases.queries import chain, given_statistics

GOLDEN = Path(__file__).parents[1] / "golden"
QUERIES = [chain("R.a=S.a", "S.b=T.b", id="q1"), chain("S.b=T.b", "T.c=U.c", id="q2")]
STATISTICS = given_statistics(
    default=100.0, selectivities={"S.b=T.b": 0.003}, selectivity_default=0.02
)


@pytest.mark.parametrize("optimizer", list(Optimizer))
def test_explain_reads_as_recorded(optimizer: Optimizer) -> None:
    plan = optimise(QUERIES, STATISTICS, Options(optimizer=optimizer, parallelism=4))
    document = json.dumps(explain(plan, QUERIES), indent=1, ensure_ascii=False) + "\n"
    assert explain_text(plan, QUERIES) == (GOLDEN / f"explain_{optimizer}.txt").read_text("utf-8")
    assert document == (GOLDEN / f"explain_{optimizer}.json").read_text("utf-8")


def test_totals_add_up_to_the_plan_s_cost() -> None:
    plan = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    totals = explain(plan, QUERIES)["totals"]
    assert totals["probe_cost"] + totals["insert_cost"] == pytest.approx(plan.cost)
    assert totals["shared_steps"] == 2
    assert totals["intermediate_results"] == 1


def test_an_attribute_is_qualified_where_two_copies_would_read_the_same() -> None:
    queries = [chain("S.b=T.b", "S.k=V.k", id="q1"), chain("S.b=T.b", "T.k=U.k", id="q2")]
    statistics = given_statistics(default=100.0, selectivities={"S.b=T.b": 0.0001})
    plan = optimise(queries, statistics, Options(parallelism=8))
    labels = {s["label"] for s in explain(plan, queries)["stores"]}
    assert {"S⋈T[S.k]", "S⋈T[T.k]"} <= labels
