"""Tests of adding queries that join like existing ones to the last plan without a search."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.plan import Objective, Plan
from anabranch_contract.queries.joins import JoinQuery, QueryId
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.parts import PlanPart
from anabranch_planner.cost.statistics.steady import Settled, settle
from anabranch_planner.passes import EpochRequest, make_rules, optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan import session
from anabranch_planner.replan.session import Session
from anabranch_planner.search.demands import Switching
from benchmarks.planner.random_queries import natural
from tests.planner.replan.test_session import check, check_rules, drifted
from tests.support.scenarios.seeds import mostly_slow

SECOND = 1_000_000


def member(query: JoinQuery, number: int, longest: int) -> JoinQuery:
    """A query with the joins of ``query``, windows of up to ``longest`` seconds, or none (0)."""
    count = len(query.members)
    limit = longest * SECOND or None
    rows = tuple(tuple(0 if i == j else limit for j in range(count)) for i in range(count))
    return replace(query, id=QueryId(f"{query.id}-{number:03}"), bounds=rows)


@pytest.mark.parametrize("seed", mostly_slow(range(6), 2))
def test_families_whose_queries_come_and_go(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan is valid, within its gap of the optimum, has the rules of a full compilation, and
    is the same when made again.
    """
    monkeypatch.setattr(session, "PART", 0.7)
    rng, entered = Random(seed), 0
    heads, statistics = natural(seed, relations=6, count=4, size=rng.choice((2, 3)))
    plain = Options(
        parallelism=rng.choice((1, 3)),
        objective=rng.choice(list(Objective)),
        mir=rng.random() < 0.5,
    )
    spans = (0, 60, 30, 10)
    there = [member(head, n, spans[n]) for head in heads for n in (0, 1)]
    first, second = Session(), Session()
    steady, parts, before = settle(statistics, None, 0.1), tuple[PlanPart, ...](), None
    options, queries = plain, tuple(there)
    for number in range(2, 14):
        moved = rng.random() < 0.2
        if moved:
            statistics = drifted(statistics, rng)
        steady = settle(statistics, steady.statistics, 0.1)
        fresh = [member(rng.choice(heads), 10 * number + n, rng.choice(spans)) for n in range(2)]
        there += fresh
        if number % 3 == 0:
            there.pop(rng.randrange(len(there) - 2))
        if before is not None:
            # As in the service, a full replanning is charged for its changes.
            options = replace(plain, switching=Switching(footprint(before, queries), 0.1))
        plan = first.plan(there, steady, options, 0.1)
        assert plan == second.plan(there, steady, options, 0.1)
        check(plan, there, steady.statistics, options)
        parts = check_rules(plan, there, steady, options, parts)
        if "entered" in plan.method:
            assert before is not None
            assert (plan.cost, plan.copies, plan.mirs) == (before.cost, before.copies, before.mirs)
            assert steps(plan) == steps(before)
            entered += 1
        before, queries = plan, tuple(there)
    assert entered >= 2


def steps(plan: Plan) -> set[object]:
    """Return the steps of a plan from each start, without their order."""
    return {(order.start, order.steps) for order in plan.orders}


def test_only_queries_without_longer_bounds_are_entered() -> None:
    (head, *others), statistics = natural(1, relations=60, count=100, size=3)
    there = [member(head, 0, 60), *others]
    planner, methods = Session(), []
    planner.plan(there, Settled(statistics), Options(mir=False))
    for number, span in enumerate((60, 30, 0, 90), 1):
        there.append(member(head, number, span))
        plan = planner.plan(there, Settled(statistics), Options(mir=False))
        methods.append(plan.method)
        cost = optimise(there, statistics, Options(mir=False)).cost
        assert plan.cost == pytest.approx(cost)
    entered = [method.endswith("entered beside like ones") for method in methods]
    # When one query has no time bounds, no other query's bounds are longer.
    assert entered == [True, True, False, True]
    assert methods[0].startswith("1 of 101 queries")


@pytest.mark.parametrize("seed", mostly_slow(range(4)))
def test_a_query_leaves_as_it_came(seed: int) -> None:
    """Without the added queries, the plan is the previous one; other changes need a search. Every
    plan costs as much as the plan before the additions.
    """
    rng = Random(seed)
    (head, *others), statistics = natural(seed, relations=60, count=100, size=3)
    steady = settle(statistics, None, 0.1)
    first = [member(head, 0, 60), *others]
    planner = Session()
    before = planner.plan(first, steady, Options(mir=False))
    parts = check_rules(before, first, steady, Options(mir=False), ())
    there, own = list(first), [member(head, number, 30) for number in range(1, 5)]
    for query in own:
        there.append(query)
        planner.plan(there, steady, Options(mir=False))
    while own:
        there.remove(own.pop(rng.randrange(len(own))))
        new = [member(head, 10 + len(own), 20)] if rng.random() < 0.5 else []
        plan = planner.plan([*there, *new], steady, Options(mir=False))
        method = "entered beside like ones" if new else "without 1 queries, else as before"
        assert plan.method.endswith(method)
        assert (plan.cost, plan.bound, plan.gap) == (before.cost, before.bound, before.gap)
        parts = check_rules(plan, [*there, *new], steady, Options(mir=False), parts)
        if new:
            plan = planner.plan(there, steady, Options(mir=False))
    assert replace(plan, method=before.method, variables=0, constraints=0) == replace(
        before, variables=0, constraints=0
    )
    # The query with the longest bounds determined the prices of others.
    last = [member(head, 9, 30), *others]
    planner.plan([*last, first[0]], steady, Options(mir=False))
    plan = planner.plan(last, steady, Options(mir=False))
    assert plan.cost == pytest.approx(optimise(last, statistics, Options(mir=False)).cost)


def test_queries_that_probe_intermediate_results_are_planned() -> None:
    found = set[bool]()
    for seed in range(12):
        queries, statistics = natural(seed, relations=6, count=4, size=4)
        planner = Session()
        plan = planner.plan(queries, Settled(statistics), Options())
        kept = {mir.id for mir in plan.mirs if not mir.is_base}
        probing = {
            order.goal
            for order in plan.orders
            for step in order.steps
            if not order.maintains and step.target in kept
        }
        for query in queries:
            twin = replace(query, id=QueryId(f"{query.id}-twin"))
            other = Session()
            other.plan(queries, Settled(statistics), Options())
            entered = (
                "entered" in other.plan([*queries, twin], Settled(statistics), Options()).method
            )
            assert entered is (query.id not in probing)
            found.add(entered)
    assert found == {False, True}


def test_rules_are_compiled_anew_where_an_edge_checks_too_much() -> None:
    """All queries of an edge have its residuals; a new query without them changes the edge."""
    from tests.runtime.tags.test_program import JOIN, STREAMS

    def parsed(name: str, condition: str) -> JoinQuery:
        return parse_sql(name, f"{JOIN} WHERE {condition}", STREAMS, relaxed={"a": (), "b": ()})

    there = [parsed("q0", "a.v > 5 AND a.v < b.v"), parsed("q1", "a.v > 6 AND a.v < b.v")]
    _, statistics = natural(1, relations=6, count=1, size=2)
    planner, steady = Session(), settle(statistics, None, 0.1)
    parts: tuple[PlanPart, ...] = ()
    for query in ("a.v > 7 AND a.v < b.v", "a.v > 7 AND b.v < 9", "a.v > 8"):
        plan = planner.plan(there, steady, Options(), 0.1)
        parts = rules(plan, there, steady, parts)
        there.append(parsed(f"q{len(there)}", query))
    plan = planner.plan(there, steady, Options(), 0.1)
    parts = rules(plan, there, steady, parts)
    assert sum(len(part.grown) for part in parts) == 1


def rules(
    plan: Plan, queries: list[JoinQuery], steady: Settled, before: tuple[PlanPart, ...]
) -> tuple[PlanPart, ...]:
    """Assert that rules of extended parts equal newly compiled ones; return the parts."""
    from tests.runtime.tags.test_program import STREAMS

    streams = list(STREAMS.values())
    request = EpochRequest(
        queries=queries,
        streams=streams,
        statistics=steady.statistics,
        epoch=1,
        parallelism=1,
        sinks={},
        before=before,
    )
    made = make_rules(plan, request)
    anew = compile_ruleset(plan, queries, streams, epoch=1, parallelism=1, sinks={})
    assert made.ruleset == anew
    for part in made.parts:
        part.validate()
    return made.parts
