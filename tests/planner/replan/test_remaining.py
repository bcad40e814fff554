"""Tests of reducing the running plan to the remaining queries: valid, with unchanged
probe orders.
"""

from __future__ import annotations

from random import Random

import pytest

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.cost.validate import cost_of, validate_plan, with_costs
from anabranch_planner.passes import optimise
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.remaining import choices, plan_of_remaining
from tests.planner.replan.test_revise import drawn_statistics
from tests.support.cases.drawn_worlds import random_world
from tests.support.cases.random_plans import random_plan


@pytest.mark.parametrize("seed", range(60))
def test_orders_of_those_that_remain_are_those_that_they_had(seed: int) -> None:
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    plan = random_plan(queries, rng, apart=True)
    if seed % 2:
        options = Options(optimizer=rng.choice(tuple(Optimizer)), parallelism=3)
        plan = optimise(queries, drawn_statistics(queries, rng), options)
    running = compile_ruleset(plan, queries, (), epoch=0, parallelism=2, sinks={})
    left = [q for q in queries if rng.random() < 0.6]

    found = plan_of_remaining(running, left)

    validate_plan(found, left)
    compile_ruleset(found, left, (), epoch=1, parallelism=2, sinks={}).validate()
    names = {q.id for q in left}
    before = {
        (o.goal, o.start, o.substream): [(s.target, s.members) for s in o.steps]
        for o in plan.orders
        if not o.maintains
    }
    own = [o for o in found.orders if not o.maintains]
    assert {o.goal for o in own} == names
    for order in own:
        assert before[order.goal, order.start, order.substream] == [
            (s.target, s.members) for s in order.steps
        ]
    if len(left) == len(queries):
        assert {(c.owner, c.mir, c.partition) for c in found.copies} <= {
            (c.owner, c.mir, c.partition) for c in plan.copies
        }


@pytest.mark.parametrize("optimizer", tuple(Optimizer))
@pytest.mark.parametrize("seed", range(10))
def test_where_all_remain_the_plan_does_what_it_did(seed: int, optimizer: Optimizer) -> None:
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    statistics = drawn_statistics(queries, rng)
    plan = optimise(queries, statistics, Options(optimizer=optimizer, parallelism=2))
    running = compile_ruleset(plan, queries, (), epoch=0, parallelism=2, sinks={})

    found = plan_of_remaining(running, queries, optimizer)

    assert choices(found) == choices(plan)
    model = CostModel(
        statistics, objective=Objective.TUPLES, parallelism=2, bounds=LoosestBounds(queries)
    )
    costly = with_costs(found, queries, model)
    assert costly.cost == pytest.approx(cost_of(plan, queries, statistics, parallelism=2))
    steps = {(o.owner, o.goal, o.start): [s.cost for s in o.steps] for o in plan.orders if o.steps}
    for order in costly.orders:
        if order.steps:
            known = steps[order.owner, order.goal, order.start]
            assert [s.cost for s in order.steps] == pytest.approx(known)


def test_a_query_that_the_rules_do_not_have_is_refused() -> None:
    rng = Random(0)
    worlds = (random_world(rng, epochs=1) for _ in range(20))
    queries = next(world.queries for world in worlds if len(world.queries) > 1)
    first = queries[:1]
    running = compile_ruleset(
        random_plan(first, rng, apart=True), first, (), epoch=0, parallelism=2, sinks={}
    )
    with pytest.raises(RulesetError, match="has no query"):
        plan_of_remaining(running, queries)
