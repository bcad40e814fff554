"""Tests of forests of probe trees, random or made from rulesets."""

from __future__ import annotations

import math
from random import Random

import pytest

from anabranch_contract.errors import StatisticsError
from anabranch_contract.plans.rations import Ranking, Ration
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep
from anabranch_planner.allocation.of_ruleset import forest_of
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.index.ranks import limit
from anabranch_runtime.rations.limits import rationing
from tests.support.cases.drawn_worlds import random_world
from tests.support.cases.random_plans import random_plan

RANKING = Ranking((("k", "bigint"),), by_batch=True)
#: Two queries share the first step: one ends there, one continues to the second; a third is
#: separate.
FOREST = Forest(
    (ForestStep(None, 2.0), ForestStep(0, 10.0), ForestStep(None, 1.0)),
    (
        ForestGoal("short", "r", (0,), 1.0, 4.0),
        ForestGoal("long", "r", (1,), 0.0, 6.0),
        ForestGoal("long", "u", (2,), 0.5, 2.0),
        ForestGoal("rows", "r", (), 3.0, 9.0),
    ),
)


def test_a_shared_step_takes_the_largest_ration() -> None:
    shares = (0.5, 0.2, 1.0, 0.0)
    assert FOREST.loads(shares) == [0.5, 0.2, 1.0]
    assert FOREST.used(shares) == pytest.approx(2 * 0.5 + 10 * 0.2 + 1 + 0.5 * 1 + 0.5)
    assert FOREST.full == pytest.approx(2 + 10 + 1 + 1 + 0.5 + 3)
    assert FOREST.output(shares) == pytest.approx(4 * 0.5 + 6 * 0.2 + 2)
    found = FOREST.completeness(shares)
    assert found == pytest.approx({"short": 0.5, "long": (1.2 + 2) / 8, "rows": 0.0})
    assert Forest((), (ForestGoal("q", "r", (), 0.0, 0.0),)).completeness((0.0,)) == {"q": 1.0}


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_figures_are_checked(value: float) -> None:
    for steps, goals, field in (
        ((ForestStep(None, value),), (), "steps[0].cost"),
        ((), (ForestGoal("q", "r", (), value, 1.0),), "goals[0].cost"),
        ((), (ForestGoal("q", "r", (), 1.0, value),), "goals[0].output"),
    ):
        with pytest.raises(StatisticsError) as caught:
            Forest(steps, goals)
        assert caught.value.field == field


def test_numbers_name_steps() -> None:
    with pytest.raises(StatisticsError, match="follows"):
        Forest((ForestStep(0, 1.0),), ())
    with pytest.raises(StatisticsError, match="no step 3"):
        Forest((ForestStep(None, 1.0),), (ForestGoal("q", "r", (3,), 0.0, 0.0),))


def test_a_rulesets_forest_has_the_loads_that_the_runtime_lets_through() -> None:
    paid = limited = 0
    for seed in range(40):
        rng = Random(seed)
        world = random_world(rng, epochs=1)
        queries, streams = world.queries, tuple(world.streams.values())
        plan = random_plan(queries, rng, mirs=rng.choice((0.0, 0.5)), apart=True)
        rules = compile_ruleset(plan, queries, streams, epoch=0, parallelism=1, sinks={})
        every = [(q.id, m.label) for q in queries for m in q.members]
        rationed: set[tuple[QueryId, Label]] = {g for g in every if rng.random() < 0.8}
        prices = {rule.out: rng.uniform(0.1, 5) for rule in rules.probe_rules}
        forest = forest_of(
            rules,
            rationed,
            price=lambda rule, prices=prices: prices[rule.out],  # type: ignore[misc]
            results=lambda _, __: 1.0,
            own=lambda _, __: 0.0,
        )
        assert {(g.query, g.start) for g in forest.goals} == {(str(q), str(a)) for q, a in rationed}
        shares = [rng.choice((0.0, 0.3, 0.8, 1.0)) for _ in forest.goals]
        rations = tuple(
            Ration(QueryId(g.query), Label(g.start), p, RANKING)
            for g, p in zip(forest.goals, shares, strict=True)
        )
        found, used = rationing(rules, rations), 0.0
        for rule in rules.probe_rules:
            limits = found.edge(rule.out)
            if limits is not None:
                used += prices[rule.out] * max((n for _, n in limits), default=0) / limit(1.0)
                limited += 1
        saved = sum(prices.values()) - sum(
            prices[r.out] for r in rules.probe_rules if found.edge(r.out) is None
        )
        # Probes outside the forest are always made in full.
        whole = forest.used([1.0] * len(shares))
        assert whole - forest.used(shares) == pytest.approx(saved - used, abs=1e-9)
        paid += whole > 0
    assert paid > 20
    assert limited > 100
