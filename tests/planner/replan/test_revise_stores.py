"""Tests of revisions of any ruleset: which of the existing stores a probe order may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.plan import Plan
from anabranch_contract.plans.ruleset import Edge, ProbeRule, Ruleset, StoreId
from anabranch_contract.plans.steps import orders_digest
from anabranch_contract.queries.joins import JoinQuery, needed_columns
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import pair_bounds
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.revise import Revised, RevisionRequest, restore, revise
from anabranch_planner.replan.running import plan_of, running_plan
from tests.planner.replan.test_revise import (
    STREAMS,
    assert_revises,
    chain,
    drawn_statistics,
    queries_of,
)
from tests.support.cases.drawn_worlds import random_world
from tests.support.cases.random_plans import random_plan, random_revision
from tests.support.scenarios.seeds import mostly_slow

HOUR = 3_600_000_000


def revised(
    running: Ruleset,
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    options: Options | None = None,
) -> Revised | None:
    request = RevisionRequest(
        statistics=statistics,
        running=running_plan(running, queries),
        number=running.revision + 1,
        options=options or Options(),
    )
    return revise(request)


def paths(rules: Ruleset) -> Iterator[tuple[str, StoreId | None, list[ProbeRule]]]:
    """For each end of an order: the query (or ""), the maintained store (or None), its probes."""
    probes = {p.out: p for p in rules.probe_rules}

    def path(edge: Edge) -> list[ProbeRule]:
        found = []
        while edge in probes:
            found.append(probes[edge])
            edge = probes[edge].edge
        return found

    for output in rules.output_rules:
        yield output.query, None, path(output.edge)
    for rule in rules.store_rules:
        if rule.edge in probes:
            yield "", rule.store, path(rule.edge)


def assert_stores_suffice(rules: Ruleset, queries: Sequence[JoinQuery]) -> None:
    """Assert that probed stores of intermediate results have the columns and time bounds of their
    readers.
    """
    stores = {s.id: s for s in rules.stores}
    by_id: dict[str, JoinQuery] = {q.id: q for q in queries}
    for query, kept_up, probes in paths(rules):
        for store in [stores[p.store] for p in probes if len(stores[p.store].members) > 1]:
            if kept_up is None:
                bounds = pair_bounds(by_id[query])
                need = {(x, c) for x in store.members for c in needed_columns(by_id[query], x)}
            else:
                larger = stores[kept_up]
                bounds = {(b.earlier, b.later): b.micros for b in larger.bounds}
                need = {(x, c) for x, c in larger.columns if x in store.members}
                assert store.owner == larger.owner
            assert need <= set(store.columns)
            for bound in store.bounds:
                assert bounds[bound.earlier, bound.later] <= bound.micros


@pytest.mark.parametrize("seed", mostly_slow(range(60), 20))
def test_any_ruleset_is_revised_within_its_stores(seed: int) -> None:
    """Rulesets may be worse than any optimiser's, with copies by attributes that no query needs."""
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    parallelism = rng.choice((1, 3))
    plan = random_plan(queries, rng, apart=True)
    running = compile_ruleset(plan, queries, (), epoch=3, parallelism=parallelism, sinks={})
    for turn in range(3):
        if turn == 1:
            drawn = random_revision(running, queries, rng, running.revision + 1)
            assert_stores_suffice(drawn, queries)
            running = drawn
        statistics = drawn_statistics(queries, rng)
        found = revised(running, queries, statistics)
        if found is None:
            continue
        assert_revises(running, found.ruleset)
        assert_stores_suffice(found.ruleset, queries)
        validate_plan(found.plan, queries)
        back = plan_of(found.ruleset, queries)
        cost = cost_of(back, queries, statistics, parallelism=parallelism)
        assert found.plan.cost == pytest.approx(cost)
        # Without a deadline the search ends with a proof, since the program models broadcasts.
        assert "out of time" not in found.plan.method
        assert cost < found.running_cost
        running = found.ruleset


@pytest.mark.parametrize("seed", range(60))
def test_earlier_orders_are_restored_where_their_stores_are_there(seed: int) -> None:
    """After a random revision, and into the next epoch's ruleset, with its own orders and
    substreams.
    """
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    plans = [random_plan(queries, rng, apart=True) for _ in range(2)]
    earlier, following = (
        compile_ruleset(plan, queries, (), epoch=epoch, parallelism=2, sinks={})
        for epoch, plan in enumerate(plans, 3)
    )
    for running in (random_revision(earlier, queries, rng, 1), following):
        request = RevisionRequest(
            statistics=drawn_statistics(queries, rng),
            running=running_plan(running, queries),
            number=running.revision + 1,
        )
        found = restore(request, earlier)
        there = {s.id for s in running.stores}
        if not {s.id for s in earlier.stores if len(s.members) > 1} <= there:
            assert found is None
        elif found is None:
            # Base stores of the other epoch have other owners or partitions.
            assert running is following
        else:
            assert_revises(running, found.ruleset)
            assert_stores_suffice(found.ruleset, queries)
            validate_plan(found.plan, queries)
            if running is not following:
                assert orders_digest(found.ruleset) == orders_digest(earlier)


def test_equal_orders_have_equal_digests_whatever_their_epoch() -> None:
    rng = Random(1)
    queries = random_world(rng, epochs=1).queries
    digests = set()
    for _ in range(5):
        plan = random_plan(queries, rng, apart=True)
        one, other = (
            orders_digest(compile_ruleset(plan, queries, (), epoch=e, parallelism=2, sinks={}))
            for e in (3, 9)
        )
        assert one == other
        digests.add(one)
    assert len(digests) == 5


@pytest.mark.parametrize("seed", range(20))
def test_what_it_was_planned_for_gives_nothing_dearer(seed: int) -> None:
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    statistics = drawn_statistics(queries, rng)
    options = Options(parallelism=rng.choice((1, 3)))
    plan = optimise(queries, statistics, options)
    running = compile_ruleset(plan, queries, (), epoch=3, parallelism=options.parallelism, sinks={})

    found = revised(running, queries, statistics, options)

    # A revision may be cheaper than a heuristic's plan, never than an optimal one.
    assert found is None or found.plan.cost < plan.cost
    assert found is None or plan.gap > 0


def beside(first: Plan, second: Plan, queries: Sequence[JoinQuery]) -> Plan:
    """Return the plan that executes both, which have no common goal."""
    copies = {replace(c, insert_cost=0.0): c for c in (*second.copies, *first.copies)}
    mirs = {m.id: m for m in (*first.mirs, *second.mirs)}
    return replace(
        first,
        queries=tuple(q.id for q in queries),
        orders=(*first.orders, *second.orders),
        copies=tuple(sorted(copies, key=lambda c: c.mir)),
        mirs=tuple(mirs[m] for m in sorted(mirs)),
    )


THREE = "FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"
FOUR = f"{THREE} JOIN U ON T.c = U.c"


def drawn_rates(rng: Random) -> dict[str, float]:
    """Return random rates over four orders of magnitude; T has the highest, so R*S often pays."""
    rates = {name: 10 ** rng.uniform(0, 3) for name in "RSU"}
    return {**rates, "T": 10 ** rng.uniform(2, 4)}


def by_columns() -> list[JoinQuery]:
    """Two queries; the second reads S.d, which a store made for the first does not have."""
    return queries_of(f"SELECT R.a {THREE}", f"SELECT R.a, S.d {FOUR}")


def by_bounds() -> list[JoinQuery]:
    """Two queries; the second one's tuples may be further apart in time."""
    timed = {
        name: replace(s, columns=(*s.columns, ("at", parse_type("timestamp"))), event_time="at")
        for name, s in STREAMS.items()
    }
    return [
        parse_sql("q0", f"SELECT R.a {THREE}", timed, HOUR),
        parse_sql("q1", f"SELECT R.a {FOUR}", timed, 2 * HOUR),
    ]


@pytest.mark.parametrize("queries", [by_columns(), by_bounds()], ids=["columns", "bounds"])
def test_queries_that_meet_in_a_state_need_not_use_the_same_store(
    queries: list[JoinQuery],
) -> None:
    """Both queries join R, S and T in their orders, and only the first may probe R*S for it.

    In a plan without given stores the two would share whatever enters that state.
    """
    first, second = queries
    rng, seen = Random(1), Counter[str]()
    for _ in range(80):
        rates = drawn_rates(rng)
        planned = optimise([first], chain(**rates), Options())
        alone = optimise([second], chain(**drawn_rates(rng)), Options(mir=False))
        both = beside(planned, alone, queries)
        running = compile_ruleset(both, queries, (), epoch=3, parallelism=1, sinks={})
        assert_stores_suffice(running, queries)
        found = revised(running, queries, chain(**{**rates, "U": 10 ** rng.uniform(0, 4)}))
        if found is None or not any(len(s.members) > 1 for s in found.ruleset.stores):
            continue
        seen["kept"] += 1
        assert_stores_suffice(found.ruleset, queries)
        validate_plan(found.plan, queries)
    assert seen["kept"] > 5
