"""Compare queries' cost shares with their definitions, by brute force over coalitions and
permutations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import factorial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Objective, Optimizer, Plan
from anabranch_contract.queries.joins import AttrRef, JoinQuery, QueryId
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.steps import Prefix
from anabranch_planner.cost.validate import cost_of
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.plans.shares import (
    Element,
    Game,
    costs_by_owner,
    game,
    marginal,
    part,
    proportional,
    shapley,
    shares,
)
from tests.support.cases.queries import chain, given_statistics
from tests.support.cases.random_problems import random_queries, uniform_statistics
from tests.support.cases.what_if import priced_plan, small_queries, small_statistics
from tests.support.oracles.walk import walk

Copy = tuple[str, MirId, AttrRef | None]


seeds = st.integers(0, 2**32 - 1)
optimizers = st.sampled_from(list(Optimizer))
objectives = st.sampled_from(list(Objective))

QUERIES = [chain("R.a=S.a", "S.b=T.b", id="q1"), chain("S.b=T.b", "T.c=U.c", id="q2")]
STATISTICS = given_statistics(default=100.0, selectivities={"S.b=T.b": 0.0001})


def standalone(
    queries: Sequence[JoinQuery], statistics: Statistics, **options: Any
) -> dict[QueryId, float]:
    """Return the cost of each query's own optimum."""
    plan = optimise(queries, statistics, Options(optimizer=Optimizer.INDIVIDUAL, **options))
    return costs_by_owner(plan, queries)


def needs(
    plan: Plan, query: JoinQuery, queries: Sequence[JoinQuery]
) -> tuple[dict[Prefix, float], set[Copy]]:
    """Return the steps and copies of ``plan`` that ``query`` needs, collected order by order."""
    pending = [o for o in plan.orders if not o.maintains and o.goal == query.id]
    owner = pending[0].owner
    seen = set(pending)
    steps: dict[Prefix, float] = {}
    copies: set[Copy] = set()
    while pending:
        order = pending.pop()
        for prefix, step, *_ in walk(plan, order, queries):
            steps[prefix] = step.cost
            copies.add((owner, step.target, step.partition))
            more = {
                o
                for o in plan.orders
                if o.maintains and (o.owner, o.goal) == (owner, step.target) and o not in seen
            }
            seen |= more
            pending += more
    if len(query.labels) > 1:
        stores = {store for _, store, _ in copies}
        for relation in {str(r.id) for r in query.relations} - stores:
            first = next(c for c in plan.copies if (c.owner, c.mir) == (owner, relation))
            copies.add((owner, first.mir, first.partition))
    return steps, copies


class Coalitions:
    """Costs c(S) of coalitions of queries, by definition."""

    def __init__(self, plan: Plan, queries: Sequence[JoinQuery]) -> None:
        self.needs = {q.id: needs(plan, q, queries) for q in queries}
        used = {c for _, copies in self.needs.values() for c in copies}
        self.inserts = {(c.owner, c.mir, c.partition): c.insert_cost for c in plan.copies}
        self.idle = self.inserts.keys() - used

    def cost(self, chosen: Sequence[QueryId]) -> float:
        steps: dict[Prefix, float] = {}
        copies: set[Copy] = set()
        for query in chosen:
            steps |= self.needs[query][0]
            copies |= self.needs[query][1]
        stores = {c[:2] for c in copies}
        copies |= {c for c in self.idle if c[:2] in stores}
        return sum(steps.values()) + sum(self.inserts[c] for c in copies)

    def shapley(self) -> dict[QueryId, float]:
        names = sorted(self.needs)
        total = dict.fromkeys(names, 0.0)
        for line in permutations(names):
            for i, query in enumerate(line):
                total[query] += self.cost(line[: i + 1]) - self.cost(line[:i])
        return {query: value / factorial(len(names)) for query, value in total.items()}


def check_everything(plan: Plan, queries: Sequence[JoinQuery]) -> None:
    found = game(plan, queries)
    truth = Coalitions(plan, queries)
    names = [q.id for q in queries]
    assert found.cost == pytest.approx(truth.cost(names)) == pytest.approx(plan.cost)
    parts, margins, values = part(found), marginal(found), shapley(found)
    assert values == pytest.approx(truth.shapley())
    assert sum(values.values()) == pytest.approx(plan.cost)
    for name in names:
        others = [n for n in names if n != name]
        assert parts[name] == pytest.approx(truth.cost([name]))
        assert margins[name] == pytest.approx(plan.cost - truth.cost(others), abs=1e-6)
        assert margins[name] <= values[name] * (1 + 1e-12) <= parts[name] * (1 + 1e-9)
    for element in found.elements:
        assert element.users
        assert (element.step is None) != (element.copy is None)
    assert len({(e.step, e.copy) for e in found.elements}) == len(found.elements)


@given(seeds)
def test_shares_of_any_valid_plan_are_those_of_its_game(seed: int) -> None:
    rng = Random(seed)
    queries = small_queries(rng, least=2)
    check_everything(priced_plan(queries, rng, CostModel(small_statistics(rng))), queries)


@given(seeds, optimizers, objectives)
def test_shares_of_optimised_plans_are_those_of_their_game(
    seed: int, optimizer: Optimizer, objective: Objective
) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    plan = optimise(
        queries,
        small_statistics(rng),
        Options(optimizer=optimizer, objective=objective, parallelism=3),
    )
    check_everything(plan, queries)


@given(seeds)
def test_what_one_query_alone_uses_is_its_own(seed: int) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    statistics = small_statistics(rng)
    plan = optimise(queries, statistics, Options(optimizer=Optimizer.INDIVIDUAL, parallelism=3))
    for share in shares(plan, queries, standalone(queries, statistics, parallelism=3)):
        expected = pytest.approx(share.part)
        assert share.marginal == share.shapley == expected
        assert share.standalone == expected
        assert share.proportional == expected


@given(seeds, objectives)
def test_nobody_pays_more_than_the_sum_of_what_each_pays_alone(
    seed: int, objective: Objective
) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    statistics = small_statistics(rng)
    plan = optimise(queries, statistics, Options(objective=objective, parallelism=3))
    alone = standalone(queries, statistics, objective=objective, parallelism=3)
    found = shares(plan, queries, alone)
    assert [s.query for s in found] == sorted(q.id for q in queries)
    for share in found:
        # A part of a joint plan could answer the query alone.
        assert share.part >= (share.standalone or 0.0) * (1 - 1e-9)
        assert (share.proportional or 0.0) <= (share.standalone or 0.0) * (1 + 1e-9)
    assert sum(s.proportional or 0.0 for s in found) == pytest.approx(plan.cost)
    for query in queries:
        assert alone[query.id] == pytest.approx(
            optimise(
                [query],
                statistics,
                Options(optimizer=Optimizer.INDIVIDUAL, objective=objective, parallelism=3),
            ).cost
        )


def test_the_worked_example() -> None:
    # Alone each costs 475; jointly 800 with <S,T,R> and <T,S,U>: S-T and T-S are shared (100 each),
    # the rest belongs to one query: 400 each.
    sizes = given_statistics(
        default=100.0, selectivities={"S.b=T.b": 0.015}, selectivity_default=0.01
    )
    plan = optimise(
        QUERIES, sizes, Options(objective=Objective.PAPER, mir=False, partitioning=False)
    )
    assert plan.cost == pytest.approx(800)
    alone = standalone(QUERIES, sizes, objective=Objective.PAPER, mir=False, partitioning=False)
    assert alone == pytest.approx({"q1": 475.0, "q2": 475.0})
    for share in shares(plan, QUERIES, alone):
        assert share.shapley == share.proportional == pytest.approx(400)
        assert share.marginal == pytest.approx(300)
        assert share.part == pytest.approx(500)


def test_maintenance_is_split_among_the_users_of_the_intermediate_result() -> None:
    plan = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    found = game(plan, QUERIES)
    kept = next(m.id for m in plan.mirs if not m.is_base)
    upkeep = {p for o in plan.orders if o.maintains for p, *_ in walk(plan, o, QUERIES)}
    users = [e.users for e in found.elements if e.step in upkeep]
    users += [e.users for e in found.elements if e.copy is not None and e.copy[1] == kept]
    assert len(users) >= 3
    assert set(users[:2]) == {("q1", "q2")}


def test_without_standalone_costs_there_is_no_proportional_share() -> None:
    plan = optimise(QUERIES, STATISTICS, Options())
    for share in shares(plan, QUERIES):
        assert (share.standalone, share.proportional) == (None, None)
        assert share.shapley > 0


def test_nothing_costs_nothing() -> None:
    assert shares(optimise([], STATISTICS, Options()), [], {}) == ()
    assert proportional(0.0, {QueryId("a"): 0.0, QueryId("b"): 0.0}) == {"a": 0.0, "b": 0.0}


def test_an_element_s_cost_is_split_equally() -> None:
    one, two, three = (QueryId(n) for n in ("a", "b", "c"))
    own = Element(("", None, ()), None, 6.0, (one,))  # type: ignore[arg-type]
    both = Element(("x", None, ()), None, 9.0, (one, two, three))  # type: ignore[arg-type]
    found = Game((one, two, three), (own, both))
    assert shapley(found) == {one: 9.0, two: 3.0, three: 3.0}
    assert marginal(found) == {one: 6.0, two: 0.0, three: 0.0}


def test_many_queries() -> None:
    queries = list(random_queries(7, count=40, size=3, relations=10))
    plan = optimise(
        queries, uniform_statistics(), Options(optimizer=Optimizer.SHARED, parallelism=4)
    )
    found = shares(plan, queries, standalone(queries, uniform_statistics(), parallelism=4))
    cost = cost_of(plan, queries, uniform_statistics(), parallelism=4)
    assert sum(s.shapley for s in found) == pytest.approx(cost)
    assert sum(s.proportional or 0 for s in found) == pytest.approx(cost)
    alone = optimise(
        queries, uniform_statistics(), Options(optimizer=Optimizer.INDIVIDUAL, parallelism=4)
    )
    assert costs_by_owner(alone, queries) == pytest.approx({s.query: s.standalone for s in found})
