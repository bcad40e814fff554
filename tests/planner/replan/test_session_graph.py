"""Tests that the last plan's graph is priced again for new statistics, instead of rebuilt."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.plan import Objective
from anabranch_planner.cost.statistics.steady import settle
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan import session
from anabranch_planner.replan.session import Session
from anabranch_planner.search.building.builder import Builder
from benchmarks.planner.random_queries import natural


@pytest.mark.parametrize("seed", range(12))
def test_a_graph_priced_again_gives_the_plan_of_a_new_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, built = Random(seed), list[int]()
    queries, statistics = natural(seed, relations=8, count=8, size=rng.choice((3, 4)))
    options = Options(
        parallelism=rng.choice((1, 3)),
        objective=rng.choice(list(Objective)),
        substreams=1 if seed % 4 else 2,
        mir=rng.random() < 0.7,
    )
    add, has_graph = Builder.add, session._has_graph

    def counted(builder: Builder, some: object) -> None:
        built.append(1)
        add(builder, some)  # type: ignore[arg-type]

    monkeypatch.setattr(Builder, "add", counted)
    first, second = Session(), Session()
    steady = settle(statistics, None, 0.1)
    there = list(queries)
    for turn in range(6):
        monkeypatch.setattr(session, "_has_graph", has_graph)
        built.clear()
        found = first.plan(there, steady, options, 0.1)
        times = len(built)
        monkeypatch.setattr(session, "_has_graph", lambda *_: False)
        assert second.plan(there, steady, options, 0.1) == found
        if options.substreams == 1 and turn in (1, 2, 4, 5):
            assert found.method.startswith("branch")
            assert times == 0
        if turn == 2:
            # Another set of queries has another graph.
            there = there[3:]
        sizes = {
            name: size * rng.choice((0.1, 4, 9)) for name, size in statistics.cardinalities.items()
        }
        steady = settle(replace(statistics, cardinalities=sizes), steady.statistics, 0.1)
