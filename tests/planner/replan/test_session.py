"""Compare incremental plans for changed queries (``Session``) with full plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Objective, Plan
from anabranch_contract.queries.joins import JoinQuery, QueryId
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.parts import PlanPart, footprint_of_parts
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.statistics.steady import Settled, settle
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.explain.explain import explain
from anabranch_planner.passes import EpochRequest, make_rules, optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan import session
from anabranch_planner.replan.session import Session
from anabranch_planner.search.demands import Switching
from anabranch_planner.solvers.deadline import Deadline
from benchmarks.planner.random_queries import natural
from tests.support.scenarios.seeds import fewer_examples

SLACK = 1 + 1e-9


def drifted(statistics: Statistics, rng: Random) -> Statistics:
    """Return statistics in which one or two relations have other rates, some only slightly."""
    names = sorted(statistics.cardinalities)
    moved = {name: rng.choice((0.3, 0.95, 1.04, 1.5, 4.0)) for name in rng.sample(names, 2)}
    return replace(
        statistics,
        cardinalities={n: c * moved.get(n, 1.0) for n, c in statistics.cardinalities.items()},
    )


def follow(
    seed: int, *, parallelism: int, objective: Objective, weight: float, rounds: int = 6
) -> Counter[str]:
    """Plan a random sequence of arriving and departing queries under drifting statistics.

    Every plan has to be valid, to cost as much as it states, to be runnable, and to be within its
    stated gap of the optimum, which a full plan proves.

    Returns:
        Planning method -> number of plans.
    """
    methods: Counter[str] = Counter()
    rng = Random(seed)
    # Twins share all of their steps, which the remaining query must continue to pay for.
    pool: Sequence[JoinQuery]
    pool, statistics = natural(seed, relations=8, count=10, size=rng.choice((3, 4)))
    twins = [replace(query, id=QueryId(f"{query.id}-twin")) for query in rng.sample(list(pool), 3)]
    left = [*pool, *twins]
    there: list[JoinQuery] = []
    plan: tuple[Plan, tuple[JoinQuery, ...]] | None = None
    planner, steady = Session(), settle(statistics, None, weight)
    parts: tuple[PlanPart, ...] = ()
    for _ in range(rounds):
        rng.shuffle(left)
        for _ in range(rng.choice((0, 1, 1, 2, 5)) if there else 6):
            if left:
                there.append(left.pop())
        for _ in range(rng.choice((0, 0, 1, 2))):
            if len(there) > 1:
                left.append(there.pop(rng.randrange(len(there))))
        if rng.random() < 0.5:
            statistics = drifted(statistics, rng)
        steady = settle(statistics, steady.statistics, weight)
        options = Options(parallelism=parallelism, objective=objective)
        if plan is not None and weight:
            # As in the service, a full replanning is charged for its changes.
            options = replace(options, switching=Switching(footprint(*plan), weight))
        hurried = replace(options, deadline=Deadline(lambda: 0.0, seconds=0.0))
        found = planner.plan(there, steady, hurried if rng.random() < 0.2 else options, weight)
        check(found, there, steady.statistics, options)
        parts = check_rules(found, there, steady, options, parts)
        plan = found, tuple(there)
        methods[found.method.split()[0] + (" around" if "around" in found.method else "")] += 1
    return methods


def check(found: Plan, queries: list[JoinQuery], known: Statistics, options: Options) -> None:
    validate_plan(found, queries)
    cost = cost_of(found, queries, known, parallelism=options.parallelism)
    assert found.cost == pytest.approx(cost)
    anew = optimise(queries, known, options)
    assert anew.gap <= 1e-6
    best = anew.cost + anew.switching
    assert found.bound <= best * SLACK
    assert best <= (found.cost + found.switching) * SLACK
    assert (found.cost + found.switching) * (1 - found.gap) <= best * SLACK


def check_rules(
    plan: Plan,
    queries: list[JoinQuery],
    steady: Settled,
    options: Options,
    before: tuple[PlanPart, ...],
) -> tuple[PlanPart, ...]:
    """Assert that reused parts have the same rules, checks and explanations as new ones; return
    parts.
    """
    request = EpochRequest(
        queries=queries,
        streams=[],
        statistics=steady.statistics,
        epoch=1,
        parallelism=options.parallelism,
        sinks={},
    )
    anew, rules = make_rules(plan, request), make_rules(plan, replace(request, before=before))
    assert rules.ruleset == anew.ruleset
    assert rules.backfills == anew.backfills
    for part in rules.parts:
        part.validate()
    assert footprint_of_parts(rules.parts) == footprint(plan, queries)
    assert numbered(explain(plan, queries, rules.parts)) == numbered(explain(plan, queries))
    ids = [number for part in rules.parts for number in range(part.first, part.end)]
    assert len(ids) == len(set(ids))
    return rules.parts


def numbered(document: Any) -> Any:
    """Return a plan's document with its steps numbered by appearance."""
    document, numbers = deepcopy(document), dict[int, int]()

    def number(given: int) -> int:
        return numbers.setdefault(given, len(numbers))

    for goal in (*document["queries"], *document["maintenance"]):
        for order in goal["orders"]:
            order["steps"] = [number(one) for one in order["steps"]]
    for step in document["steps"]:
        step["id"] = number(step["id"])
        step["parent"] = None if step["parent"] is None else number(step["parent"])
    document["steps"].sort(key=lambda step: step["id"])
    return document


@pytest.fixture(autouse=True, scope="module")
def bold() -> Iterator[None]:
    """Raise the limits of incremental planning, since each change is a large part of so few
    queries.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "PART", 0.7)
        patch.setattr(session, "LOOSER", 0.5)
        yield


@fewer_examples(10)
@given(
    seed=st.integers(0, 100_000),
    parallelism=st.sampled_from((1, 3)),
    objective=st.sampled_from(list(Objective)),
    weight=st.sampled_from((0.0, 0.1)),
)
def test_every_plan_is_within_its_gap_of_one_made_anew(
    seed: int, parallelism: int, objective: Objective, weight: float
) -> None:
    follow(seed, parallelism=parallelism, objective=objective, weight=weight)


#: Regressions. Seed 44: a copy was not charged, as no step changed for it. 40: a store was
#: partitioned by an attribute that only a deleted query joined by. 529: the session restarts after
#: the first plan. 264: an intermediate result was listed before a smaller one.
@pytest.mark.parametrize("seeds", [(40, 44, 264, 529)], ids=str)
def test_sequences_that_failed(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        sequence(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_a_thousand_sequences(first: int) -> None:
    methods: Counter[str] = Counter()
    for seed in range(first, first + 50):
        methods += sequence(seed)
    assert {"branch around", "branch", "as", "without"} <= methods.keys()


def sequence(seed: int) -> Counter[str]:
    rng = Random(seed)
    return follow(
        seed,
        parallelism=rng.choice((1, 2, 4)),
        objective=rng.choice(list(Objective)),
        weight=rng.choice((0.0, 0.05, 0.1)),
        rounds=8,
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_rules_are_made_for_the_parts_that_change(seed: int) -> None:
    queries, statistics = natural(seed, relations=60, count=130, size=3)
    planner, steady = Session(), settle(statistics, None, 0.1)
    there, left = list(queries[:120]), list(queries[120:])
    parts: tuple[PlanPart, ...] = ()
    kept = []
    for _ in range(6):
        plan = planner.plan(there, steady, Options(), 0.1)
        before, parts = parts, check_rules(plan, there, steady, Options(), parts)
        kept.append(len(set(map(id, parts)) & set(map(id, before))) / len(parts))
        there.append(left.pop())
        there.pop(len(left))
        steady = settle(statistics, steady.statistics, 0.1)
    assert min(kept[1:]) > 0.5, kept


def test_where_nothing_has_moved_the_plan_goes_on() -> None:
    queries, statistics = natural(3, relations=8, count=6, size=3)
    planner = Session()
    first = planner.plan(queries, Settled(statistics), Options())
    again = planner.plan(queries, Settled(statistics), Options())
    assert again.method == "as before"
    assert (again.orders, again.copies, again.cost) == (first.orders, first.copies, first.cost)
    assert again.gap <= 1e-9
    nearby = replace(
        statistics, cardinalities={n: c * 1.05 for n, c in statistics.cardinalities.items()}
    )
    steady = settle(statistics, None, 0.1)
    planner.plan(queries, steady, Options())
    assert (
        planner.plan(queries, settle(nearby, steady.statistics, 0.1), Options()).method
        == "as before"
    )


def test_one_query_beside_two_hundred_is_certified_without_planning_the_rest() -> None:
    queries, statistics = natural(1, relations=60, count=201, size=3)
    planner = Session()
    planner.plan(queries[:200], Settled(statistics), Options())
    plan = planner.plan(queries, Settled(statistics), Options())
    validate_plan(plan, queries)
    assert plan.gap <= 0.01
    assert plan.method == "branch around 1 of 201 queries"
    fewer = planner.plan(queries[1:], Settled(statistics), Options())
    validate_plan(fewer, queries[1:])
    assert fewer.gap <= 0.01
    assert fewer.method == "without 1 queries, else as before"


def test_a_plan_made_in_a_hurry_is_made_again_until_that_brings_nothing() -> None:
    queries, statistics = natural(5, relations=8, count=8, size=4)
    planner, hurried = Session(), Options(deadline=Deadline(seconds=0.0))
    first = planner.plan(queries, Settled(statistics), hurried)
    assert first.gap > 0.01
    assert not planner.stays(queries)
    second = planner.plan(queries, Settled(statistics), Options(), 0.1)
    assert second.method == "branch"
    assert second.gap <= 1e-9
    assert planner.stays(queries)
    assert planner.plan(queries, Settled(statistics), Options(), 0.1).method == "as before"
    # If the time is always too short, the second attempt is the last.
    planner = Session()
    for _ in range(2):
        assert planner.plan(queries, Settled(statistics), hurried, 0.1).method != "as before"
    assert planner.plan(queries, Settled(statistics), hurried, 0.1).method == "as before"


def test_where_much_has_moved_all_is_planned_anew() -> None:
    queries, statistics = natural(4, relations=8, count=6, size=3)
    planner, steady = Session(), settle(statistics, None, 0.1)
    planner.plan(queries, steady, Options())
    more = replace(
        statistics, cardinalities={n: c * 3 for n, c in statistics.cardinalities.items()}
    )
    assert planner.plan(queries, settle(more, steady.statistics, 0.1), Options()).method == "branch"


def test_what_can_not_be_planned_is_refused_and_the_next_plan_is_made_anew() -> None:
    queries, statistics = natural(2, relations=8, count=3, size=3)
    planner = Session()
    plan = planner.plan(queries, Settled(statistics), Options())
    with pytest.raises(QueryError, match="two queries are called"):
        planner.plan([*queries, queries[0]], Settled(statistics), Options())
    assert planner.plan(queries, Settled(statistics), Options()).cost == plan.cost


@given(seed=st.integers(0, 10_000), parallelism=st.sampled_from((1, 4)))
def test_out_of_time_the_running_plan_stays_where_changing_it_is_charged(
    seed: int, parallelism: int
) -> None:
    queries, statistics = natural(seed, relations=8, count=6, size=4)
    best = optimise(queries, statistics, Options(parallelism=parallelism))
    plan = optimise(
        queries,
        statistics,
        Options(
            parallelism=parallelism,
            switching=Switching(footprint(best, queries), 0.5),
            deadline=Deadline(seconds=0.0),
        ),
    )
    validate_plan(plan, queries)
    assert plan.switching == 0.0
    assert plan.cost == pytest.approx(best.cost)


@pytest.mark.parametrize(
    ("field", "value"), [("parallelism", 3), ("mir", False), ("max_flows", 7), ("substreams", 2)]
)
def test_an_option_that_changes_plans_ends_incremental_planning(field: str, value: Any) -> None:
    changed = replace(Options(), **{field: value})
    assert session._settings(changed) != session._settings(Options())


def test_plans_may_differ_in_time_and_in_the_plan_before() -> None:
    later = replace(Options(), deadline=Deadline(), seed=3, threads=2, look_ahead=True)
    assert session._settings(later) == session._settings(Options())
