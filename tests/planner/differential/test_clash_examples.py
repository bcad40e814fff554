"""Tests of the worked examples in the CLASH paper, to the printed numbers."""

from __future__ import annotations

import pytest

from anabranch_contract.plans.plan import Objective, Optimizer, Plan
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.printed.candidates import (
    candidate_orders,
    decorate,
    mirs_of,
    partition_candidates,
)
from tests.support.cases.queries import chain, given_statistics, join_query

Q1 = chain("R.a=S.a", "S.b=T.b", id="q1")
Q2 = chain("S.b=T.b", "T.c=U.c", id="q2")
STATISTICS = given_statistics(
    default=100.0, selectivities={"S.b=T.b": 0.015}, selectivity_default=0.01
)


def plan(*queries: JoinQuery, optimizer: Optimizer = Optimizer.CLASH, mir: bool = False) -> Plan:
    made = optimise(
        queries,
        STATISTICS,
        Options(
            optimizer=optimizer,
            objective=Objective.PAPER,
            parallelism=4,
            mir=mir,
            partitioning=False,
        ),
    )
    validate_plan(made, queries)
    assert cost_of(made, queries, STATISTICS, partitioning=False) == pytest.approx(made.cost)
    return made


def order_of(made: Plan, goal: str, start: str) -> list[str]:
    order = next(o for o in made.orders if o.goal == goal and o.start == start)
    return ["".join(step.members) for step in order.steps]


def test_each_query_alone_costs_475() -> None:
    assert plan(Q1).cost == pytest.approx(475)
    assert plan(Q2).cost == pytest.approx(475)
    assert plan(Q1, Q2, optimizer=Optimizer.INDIVIDUAL).cost == pytest.approx(950)


def test_together_they_cost_800_by_orders_that_are_not_best_alone() -> None:
    made = plan(Q1, Q2)
    assert made.cost == pytest.approx(800)
    assert made.gap == 0
    assert order_of(made, "q1", "S") == ["T", "R"]
    assert order_of(made, "q2", "T") == ["S", "U"]


def test_with_intermediate_results_400_alone_and_700_together() -> None:
    assert plan(Q1, mir=True).cost == pytest.approx(400)
    assert plan(Q2, mir=True).cost == pytest.approx(400)
    assert plan(Q1, Q2, mir=True).cost == pytest.approx(700)


F1 = chain("R.b=S.b", "S.c=T.c", id="q1")
F2 = chain("S.c=T.c", "T.d=U.d", id="q2")


def short(mir_id: str) -> str:
    return mir_id.partition("@")[0].replace("*", "")


def orders(query: JoinQuery, start: str) -> list[list[str]]:
    found = candidate_orders(query, Label(start))
    return sorted([start, *(short(p.target) for p in order)] for order in found)


def test_figure_3_materializable_intermediate_results() -> None:
    assert {short(m.id) for query in (F1, F2) for _, m in mirs_of(query)} == {
        "R", "S", "T", "U", "RS", "ST", "TU",
    }  # fmt: skip


def test_figure_3_candidate_probe_orders_of_the_queries() -> None:
    assert {s: orders(F1, s) for s in "RST"} == {
        "R": [["R", "S", "T"], ["R", "ST"]],
        "S": [["S", "R", "T"], ["S", "T", "R"]],
        "T": [["T", "RS"], ["T", "S", "R"]],
    }
    assert {s: orders(F2, s) for s in "STU"} == {
        "S": [["S", "T", "U"], ["S", "TU"]],
        "T": [["T", "S", "U"], ["T", "U", "S"]],
        "U": [["U", "ST"], ["U", "T", "S"]],
    }


@pytest.mark.parametrize(
    ("query", "pair"), [(F1, "RS"), (F1, "ST"), (F2, "ST"), (F2, "TU")], ids=str
)
def test_figure_3_candidate_probe_orders_of_the_sub_queries(query: JoinQuery, pair: str) -> None:
    mir = next(m for labels, m in mirs_of(query) if labels == set(pair))
    text = [f"{c.members[0]}={c.members[1]}" for c in mir.classes]
    sub_query = join_query(text)
    assert orders(sub_query, pair[0]) == [[pair[0], pair[1]]]
    assert orders(sub_query, pair[1]) == [[pair[1], pair[0]]]


def test_figure_3_orders_decorated_with_partition_attributes() -> None:
    partitions = partition_candidates([F1, F2])
    assert {short(m): [str(a) for a in found] for m, found in partitions.items()} == {
        "R": ["R.b"],
        "S": ["S.b", "S.c"],
        "T": ["T.c", "T.d"],
        "U": ["U.d"],
        "RS": ["S.c"],
        "ST": ["S.b", "T.d"],
        "TU": ["T.c"],
    }
    decorated = [
        tuple(f"{short(p.target)}[{p.partition.attribute if p.partition else ''}]" for p in found)
        for order in candidate_orders(F1, Label("R"))
        for found in decorate(order, partitions)
    ]
    assert set(decorated) == {
        ("S[b]", "T[c]"),
        ("S[c]", "T[c]"),
        ("S[b]", "T[d]"),
        ("S[c]", "T[d]"),
        ("ST[b]",),
        ("ST[d]",),
    }
    assert len(decorated) == 6
    assert {found[:1] for found in decorated if len(found) > 1} == {("S[b]",), ("S[c]",)}
