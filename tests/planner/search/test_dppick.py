"""Tests that dpPick's probe orders are the cheapest of all permutations by Eq. 8, at epochs and at
revisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest

from anabranch_contract.plans.plan import Objective, Optimizer, Plan
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import DEFAULT_LOOKS, CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.cost.validate import validate_plan, with_costs
from anabranch_planner.passes import optimise, optimise_apart
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.revise import RevisionRequest, revise
from anabranch_planner.replan.running import running_plan
from tests.planner.replan.test_revise import assert_revises, drawn_statistics
from tests.support.cases.drawn_worlds import random_world
from tests.support.cases.queries import chain, given_statistics, single
from tests.support.cases.small_problems import small_problem


class Eq8:
    """Cost by Eq. 8, by recursion over the labels of one query, without a graph."""

    def __init__(self, query: JoinQuery, model: CostModel, constants: CostConstants) -> None:
        self.query, self.model, self.constants = query, model, constants
        self.relation = {member.label: member.relation for member in query.members}

    def cost(self, start: Label, order: Sequence[Label]) -> float:
        """Return the seconds per tuple of ``start``; infinite if a probe has no key."""
        return self._cost(start, frozenset({start}), order)

    def _cost(self, start: Label, joined: frozenset[Label], order: Sequence[Label]) -> float:
        if not order:
            return 0.0
        target, rest = order[0], order[1:]
        keys = sorted(
            {
                member.attribute
                for one in self.query.classes
                if any(other.label in joined for other in one.members)
                for member in one.members
                if member.label == target
            }
        )
        if not keys:
            return float("inf")
        before = sub_join(self.query, joined)
        after = sub_join(self.query, joined | {target})
        sent, made = self.model.probe(before, start), self.model.probe(after, start)
        per_query = made / sent if sent else 0.0
        relation = self.relation[target]
        share = self.model.present(before, after, relation, tuple(keys))
        gamma = min(per_query, share) if share else min(per_query, 1.0)
        mu = per_query / gamma if gamma else 0.0
        looks = self.constants.looks.get(sub_join(self.query, frozenset({target})).id, None)
        query = self.constants.probe + self.constants.look * (looks or DEFAULT_LOOKS)
        match = self.constants.match
        return query + gamma * (match * mu + self._cost(start, joined | {target}, rest))

    def least(self, start: Label) -> float:
        """Return the cost of the best permutation."""
        others = [label for label in self.query.labels if label != start]
        return min(self.cost(start, order) for order in permutations(others))


def assert_least(
    plan: Plan, queries: Sequence[JoinQuery], statistics: Statistics, model: CostModel
) -> int:
    """Assert that each order of ``plan`` is as cheap as the best permutation; return how many had a
    more expensive rival.
    """
    constants, chosen = statistics.constants or CostConstants(), 0
    by_id = {str(query.id): query for query in queries}
    for order in plan.orders:
        assert not order.maintains
        eq8 = Eq8(by_id[order.goal], model, constants)
        taken = [step.members[0] for step in order.steps]
        assert sorted([order.start, *taken]) == sorted(by_id[order.goal].labels)
        assert eq8.cost(order.start, taken) == pytest.approx(eq8.least(order.start), rel=1e-9)
        others = permutations(sorted(taken))
        costs = [c for o in others if (c := eq8.cost(order.start, o)) < float("inf")]
        chosen += max(costs) > min(costs) * (1 + 1e-9)
    return chosen


def test_small_problems_against_all_permutations() -> None:
    chosen = 0
    for number in range(150):
        problem = small_problem(f"dppick:{number}")
        options = Options(
            optimizer=Optimizer.DPPICK,
            objective=problem.objective,
            parallelism=problem.parallelism,
        )
        plan = optimise(problem.queries, problem.statistics, options)
        validate_plan(plan, problem.queries)
        assert len(plan.orders) == sum(len(q.labels) for q in problem.queries)
        assert {m for m in plan.mirs if not m.is_base} == set()
        chosen += assert_least(plan, problem.queries, problem.statistics, problem.model)
    assert chosen >= 200


@pytest.mark.parametrize("seed", range(12))
def test_windows_filters_and_self_joins_against_all_permutations(seed: int) -> None:
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    statistics = replace(drawn_statistics(queries, rng), history=60_000_000)
    plan = optimise(queries, statistics, Options(optimizer=Optimizer.DPPICK, parallelism=3))
    validate_plan(plan, queries)
    compile_ruleset(plan, queries, (), epoch=0, parallelism=3, sinks={}).validate()
    assert_least(plan, queries, statistics, CostModel(statistics, bounds=LoosestBounds(queries)))


def star() -> tuple[JoinQuery, Statistics]:
    """Return statistics of R with S and T. One in ten of R's tuples finds 40 rows of S, and each
    finds one of T.
    """
    statistics = given_statistics(
        cardinalities={"R": 1000.0, "S": 4000.0, "T": 1000.0},
        selectivities={"R.a=S.a": 1e-3, "R.b=T.b": 1e-3},
        distincts={("S", "a"): 100.0, ("T", "b"): 1000.0},
    )
    return chain("R.a=S.a", "R.b=T.b"), statistics


def test_a_query_that_rarely_finds_much_goes_first_as_printed() -> None:
    """Eq. 8 charges later probes once per tuple that finds anything; this runtime pays them for
    every match, so ``individual`` begins with the store that has fewer rows.
    """
    query, statistics = star()
    orders = {}
    for optimizer in (Optimizer.DPPICK, Optimizer.INDIVIDUAL):
        options = Options(optimizer=optimizer, objective=Objective.SECONDS, mir=False)
        plan = optimise([query], statistics, options)
        (order,) = (order for order in plan.orders if order.start == "R")
        orders[optimizer] = [step.target for step in order.steps]
    assert orders == {Optimizer.DPPICK: ["S", "T"], Optimizer.INDIVIDUAL: ["T", "S"]}


@pytest.mark.parametrize("match", [5e-8, 5e-7])
def test_constants_of_the_running_pipeline_price_queries_and_matches(match: float) -> None:
    query, statistics = star()
    constants = CostConstants(probe=8e-8, look=1e-8, match=match)
    plan = optimise(
        [query], replace(statistics, constants=constants), Options(optimizer=Optimizer.DPPICK)
    )
    (order,) = (order for order in plan.orders if order.start == "R")
    # If matches are expensive, the 2 of S make a probe of T before it worthwhile.
    assert [step.target for step in order.steps] == (["S", "T"] if match < 1e-7 else ["T", "S"])


def test_nothing_is_shared_and_costs_are_by_the_pipeline_s_objective() -> None:
    for number in range(60):
        problem = small_problem(f"2:{number}")
        options = Options(
            objective=problem.objective, parallelism=problem.parallelism, mir=problem.mir
        )
        picked = replace(options, optimizer=Optimizer.DPPICK)
        plan = optimise(problem.queries, problem.statistics, picked)
        assert plan.optimizer is Optimizer.DPPICK
        assert plan.method == "dppick"
        assert {order.owner for order in plan.orders} == {str(q.id) for q in problem.queries}
        priced = with_costs(plan, problem.queries, problem.model)
        assert plan.cost == pytest.approx(priced.cost)
        assert 0 <= plan.bound <= plan.cost
        apart = optimise_apart(problem.queries, problem.statistics, picked)
        alone = replace(options, optimizer=Optimizer.INDIVIDUAL)
        individual = optimise(problem.queries, problem.statistics, alone)
        assert apart.individual.cost == pytest.approx(individual.cost)
        assert individual.cost <= plan.cost * (1 + 1e-9) + 1e-9


def test_a_query_over_one_relation_has_nothing_to_choose() -> None:
    plan = optimise([single()], given_statistics(default=5.0), Options(optimizer=Optimizer.DPPICK))
    assert [order.steps for order in plan.orders] == [()]


def test_relations_that_bring_nothing_have_an_order() -> None:
    query = chain("R.a=S.a", "S.b=T.b")
    statistics = given_statistics(default=0.0)
    plan = optimise([query], statistics, Options(optimizer=Optimizer.DPPICK))
    assert_least(plan, [query], statistics, CostModel(statistics))


@pytest.mark.parametrize("seed", range(12))
def test_revisions_are_dppick_s_orders_for_the_statistics_of_now(seed: int) -> None:
    """Over the existing stores, for any change of the statistics."""
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    options = Options(optimizer=Optimizer.DPPICK, parallelism=2)
    plan = optimise(queries, drawn_statistics(queries, rng), options)
    running = compile_ruleset(plan, queries, (), epoch=0, parallelism=2, sinks={})
    plans = running_plan(running, queries, Optimizer.DPPICK)
    revised = 0
    for _ in range(8):
        now = drawn_statistics(queries, rng)
        request = RevisionRequest(statistics=now, running=plans, number=1, options=options)
        found = revise(request)
        model = CostModel(now, bounds=LoosestBounds(queries))
        if found is None:
            continue
        revised += 1
        assert found.plan.optimizer is Optimizer.DPPICK
        assert found.plan.cost < found.running_cost
        assert not found.closed
        assert_revises(running, found.ruleset)
        assert_least(found.plan, queries, now, model)
    assert revised or max(len(q.labels) for q in queries) < 3
