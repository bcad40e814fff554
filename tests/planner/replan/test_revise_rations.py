"""Tests of revisions under rations: exact prices, compared with every plan over the existing
stores.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from anabranch_contract.queries.joins import Label
from anabranch_planner.allocation.of_plan import forest_of_plan
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import trails
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.cost.validate import priced, step_price
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.revise import RevisionRequest, revise
from anabranch_planner.replan.running import running_plan
from tests.planner.replan.test_revise import THREE, chain, compiled, drawn_statistics, queries_of
from tests.planner.replan.test_revise_optimum import MOST, plans, problem
from tests.support.cases.drawn_worlds import random_world
from tests.support.cases.random_plans import random_plan

#: Possible rations of a query's goals.
SHARES = (0.0, 0.05, 0.3, 1.0)


@pytest.mark.parametrize("seed", range(40))
def test_a_plans_price_is_its_forests_and_what_upkeep_takes(seed: int) -> None:
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    plan = random_plan(queries, rng, mirs=rng.choice((0.0, 0.5)), apart=True)
    model = CostModel(drawn_statistics(queries, rng), parallelism=2, bounds=LoosestBounds(queries))
    found, mirs = trails(plan, queries), {m.id: m for m in plan.mirs}
    forest = forest_of_plan(plan, queries, model)
    rations = {(g.query, Label(g.start)): rng.choice(SHARES) for g in forest.goals}

    upkeep = {
        prefix
        for order, prefixes in zip(plan.orders, found.orders, strict=True)
        if order.maintains
        for prefix in prefixes
    }
    whole = sum(step_price(found.steps[prefix], mirs, model) for prefix in upkeep)
    copies = {(c.owner, c.mir, c.partition): model.insert(mirs[c.mir]) for c in plan.copies}
    used = forest.used([rations[g.query, Label(g.start)] for g in forest.goals])
    price = priced(plan, found, model, rations)
    assert price == pytest.approx(whole + sum(copies.values()) + used)
    # Goals without a ration probe with all tuples; without rations the price is exactly the plain
    # one.
    assert priced(plan, found, model, {("no", Label("one")): 0.5}) == priced(plan, found, model)


def test_what_pays_for_all_tuples_is_closed_for_the_few_that_are_kept() -> None:
    queries, statistics = queries_of(THREE), chain(R=300, S=300, T=3000)
    running = compiled(optimise(queries, statistics, Options()), queries)
    kept = [s.id for s in running.stores if len(s.members) > 1]
    assert [s.split("@")[0] for s in kept] == ["R*S"]
    request = RevisionRequest(
        statistics=statistics, running=running_plan(running, queries), number=1
    )
    assert revise(request) is None
    rations = dict.fromkeys((("q0", label) for label in queries[0].labels), 0.1)

    found = revise(replace(request, rations=rations))

    assert found is not None
    assert list(found.closed) == kept
    # R and S probe each other for all 600 tuples, and 9,000 pairs are stored; a tenth of each half
    # of the pairs probes T, and of T's tuples R*S. Without the store, all steps take a tenth.
    bases = 3600
    assert found.running_cost == pytest.approx(bases + 600 + 9000 + 0.1 * (9000 + 3000))
    assert found.plan.cost < found.running_cost
    assert found.gain == pytest.approx(1 - found.plan.cost / found.running_cost)
    assert found.gain > 0.3
    half = dict.fromkeys(rations, 0.5)
    assert revise(replace(request, rations=half)) is None
    everything = dict.fromkeys(rations, 1.0)
    assert revise(replace(request, rations=everything)) is None


@pytest.mark.parametrize("first", [0, pytest.param(10, marks=pytest.mark.slow)])
def test_revisions_are_the_best_of_all_plans_over_the_stores(first: int) -> None:
    """The returned prices are exact; the search's approximate ones lead to the best plan
    nevertheless.
    """
    behind, compared = [], 0
    for seed in range(first, first + 10):
        rng = Random(1000 + seed)
        queries, rules, statistics, objective, parallelism = problem(seed)
        goals = [(str(q.id), label) for q in queries for label in q.labels]
        rations = {goal: rng.choice(SHARES) for goal in goals}
        running = running_plan(rules, queries, objective=objective)
        every = list(islice(plans(rules, queries, objective), MOST))
        if len(every) == MOST:
            continue
        model = CostModel(
            statistics,
            objective=objective,
            parallelism=parallelism,
            bounds=LoosestBounds(queries),
        )
        best = min(priced(plan, trails(plan, queries), model, rations) for plan in every)
        now = priced(running.plan, running.trails, model, rations)
        options = Options(objective=objective)
        found = revise(
            RevisionRequest(
                statistics=statistics,
                running=running,
                number=1,
                options=options,
                switching=0.0,
                rations=rations,
            )
        )
        cost = now if found is None else found.plan.cost
        if found is not None:
            exact = priced(found.plan, trails(found.plan, queries), model, rations)
            assert cost == pytest.approx(exact)
            assert found.running_cost == pytest.approx(now)
        assert best <= cost * (1 + 1e-6)
        assert cost <= now * (1 + 1e-9)
        behind.append(cost / best - 1 if best else 0.0)
        compared += 1
    assert compared >= 3
    # For random problems of this size, the difference was never more than rounding.
    assert max(behind) <= 1e-6
