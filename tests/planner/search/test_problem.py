"""Tests of planning problems with substreams, solved and compared with sums over all orders."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest

from anabranch_contract.plans.plan import Objective, Optimizer, Plan, Solver
from anabranch_contract.plans.ruleset import Substreams, substream_counts
from anabranch_contract.protocol.measurements import FrequentValues
from anabranch_contract.queries.joins import JoinQuery, Label, RelationId
from anabranch_contract.queries.mirs import join_keys, sub_join
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.replan.running import plan_of
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.assemble import make_plan
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.outcome import SolveSettings
from anabranch_planner.solvers.deadline import Deadline
from tests.support.cases.queries import chain


def drawn(rng: Random) -> tuple[list[JoinQuery], Statistics, tuple[Substreams, ...]]:
    queries = [chain("R.a=S.a", "S.a=T.a", id="q1"), chain("R.a=S.a", "S.b=T.b", id="q2")]
    if rng.random() < 0.5:
        queries.append(chain("R.a=S.a", "S.a=T.a", "T.b=U.b", id="q3"))
    relations = sorted({r.id for q in queries for r in q.relations})
    values = {}
    for relation in relations:
        weights = [rng.random() ** 4 for _ in range(6)]
        order = sorted(range(6), key=lambda i: -weights[i])
        shares = tuple(0.9 * weights[i] / sum(weights) for i in order)
        hashes = tuple(i + 1 for i in order)
        values[relation, "a"] = FrequentValues(hashes, ("",) * 6, shares, shares, 0.01)
    statistics = Statistics(
        {r: rng.uniform(10, 1000) for r in relations},
        every_distinct=dict.fromkeys(relations, 50.0),
        values=values,
    )
    functions = tuple(
        Substreams(Label(name), "a", "bigint", tuple((i + 1,) for i in range(rng.randint(1, 3))))
        for name in "RST"
        if rng.random() < 0.7
    )
    return queries, statistics, functions


def planned(
    queries: list[JoinQuery],
    statistics: Statistics,
    functions: tuple[Substreams, ...],
    *,
    mir: bool = True,
    solver: Solver = Solver.BRANCH,
) -> Plan:
    model = CostModel(statistics, substreams=functions)
    problem = build_problem(queries, model, mir=mir)
    outcome = solve_problem(problem, SolveSettings(solver, 0, 1, 150_000), Deadline())
    return make_plan(Optimizer.CLASH, Objective.TUPLES, [outcome])


@pytest.mark.parametrize("seed", range(12))
def test_plans_by_substream(seed: int) -> None:
    queries, statistics, functions = drawn(Random(seed))
    whole, divided = planned(queries, statistics, ()), planned(queries, statistics, functions)
    other = planned(queries, statistics, functions, solver=Solver.HIGHS)

    validate_plan(divided, queries)
    assert divided.cost == pytest.approx(cost_of(divided, queries, statistics))
    assert divided.cost == pytest.approx(other.cost)
    assert divided.gap < 1e-6
    # One order for all of a start's tuples is also an order for each of its substreams.
    assert divided.cost <= whole.cost * (1 + 1e-9)
    rules = compile_ruleset(divided, queries, (), epoch=0, parallelism=2, sinks={})
    rules.validate()
    read = plan_of(rules, queries)
    validate_plan(read, queries)
    assert cost_of(replace(read, objective=divided.objective), queries, statistics) == (
        pytest.approx(divided.cost)
    )


@pytest.mark.parametrize("seed", range(8))
def test_each_substream_has_its_cheapest_order(seed: int) -> None:
    """Without intermediate results, a single query's orders do not depend on each other."""
    queries, statistics, functions = drawn(Random(seed))
    query = queries[-1]
    plan = planned([query], statistics, functions, mir=False)
    model = CostModel(statistics, substreams=functions)
    counts = substream_counts(functions)
    inserts = sum(copy.insert_cost for copy in plan.copies)
    expected = 0.0
    for start, number in product(query.labels, range(4)):
        if number < counts.get(start, 1):
            expected += min(
                sum(
                    model.probe(sub_join(query, frozenset(order[:at])), start, number)
                    for at in range(1, len(order))
                )
                for order in permutations(query.labels)
                if order[0] == start and _joins(query, order)
            )
    assert plan.cost == pytest.approx(expected + inserts)


def _joins(query: JoinQuery, order: tuple[Label, ...]) -> bool:
    return all(
        join_keys(query.classes, frozenset(order[:at]), frozenset(order[at : at + 1]))
        for at in range(1, len(order))
    )


def test_other_orders_for_other_values() -> None:
    """Value 1 is frequent in S and rare in T, value 2 the reverse."""
    query = chain("R.a=S.a", "S.a=T.a")
    one = FrequentValues((1, 2), ("", ""), (0.8, 0.0001), (0.8, 0.0001), 0.0001)
    two = FrequentValues((2, 1), ("", ""), (0.8, 0.0001), (0.8, 0.0001), 0.0001)
    statistics = Statistics(
        {RelationId(n): 1000.0 for n in "RST"},
        every_distinct={RelationId(n): 500.0 for n in "RST"},
        values={
            (RelationId("S"), "a"): one,
            (RelationId("T"), "a"): two,
        },
    )
    functions = (Substreams(Label("R"), "a", "bigint", ((1,), (2,))),)
    plan = planned([query], statistics, functions, mir=False)
    first = {o.substream: o.steps[0].target for o in plan.orders if o.start == "R"}
    assert (first[1], first[2]) == ("T", "S")
    rules = compile_ruleset(plan, [query], (), epoch=0, parallelism=1, sinks={})
    begins = {r.substreams: r.mir for r in rules.probe_rules if r.start == "R" and r.substreams}
    assert sorted(n for numbers in begins for n in numbers) == [0, 1, 2]
    assert rules.substreams == functions
