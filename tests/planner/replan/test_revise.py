"""Tests of revisions of running rulesets: they use existing stores only, and cost no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.plan import Objective, Optimizer, Plan
from anabranch_contract.plans.ruleset import Ruleset, StoreSpec
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.revise import Revised, RevisionRequest, revise
from anabranch_planner.replan.running import plan_of, running_plan
from tests.support.cases.drawn_worlds import random_world
from tests.support.cases.random_plans import random_plan, random_revision
from tests.support.scenarios.seeds import mostly_slow

INT = parse_type("int")
STREAMS = {
    name: Stream(StreamName(name), tuple((c, INT) for c in "abcd")) for name in ("R", "S", "T", "U")
}


def compiled(plan: Plan, queries: Sequence[JoinQuery], parallelism: int = 1) -> Ruleset:
    read = {r.stream for q in queries for r in q.relations}
    streams = [s for s in STREAMS.values() if s.name in read]
    return compile_ruleset(plan, queries, streams, epoch=3, parallelism=parallelism, sinks={})


def drawn_statistics(queries: Sequence[JoinQuery], rng: Random) -> Statistics:
    """Return random rates and distinct counts over three orders of magnitude."""
    relations = sorted({r.id for q in queries for r in q.relations})
    sizes = {r: 10 ** rng.uniform(0, 3) for r in relations}
    return Statistics(
        cardinalities=sizes,
        every_distinct={r: max(1.0, sizes[r] * rng.random()) for r in relations},
    )


def steps_of(plan: Plan) -> dict[object, object]:
    """Return goal and start -> its steps, without costs."""
    return {
        (o.owner, o.goal, o.start): [
            (s.target, s.members, s.partition, s.broadcast) for s in o.steps
        ]
        for o in plan.orders
    }


def bare(store: StoreSpec) -> StoreSpec:
    return replace(store, indexes=())


def assert_revises(running: Ruleset, found: Ruleset) -> None:
    """Assert that ``found`` differs from ``running`` only where a revision may."""
    found.validate()
    assert found.id == (running.epoch, running.revision + 1)
    before = {s.id: s for s in running.stores}
    for store in found.stores:
        assert bare(before[store.id]) == bare(store)
        assert set(before[store.id].indexes) <= set(store.indexes)
    kept = {s.id for s in found.stores}
    assert {s.id for s in running.stores if len(s.members) == 1} <= kept
    for part in ("queries", "streams", "relations", "derived", "sketches", "latest_rules"):
        assert getattr(found, part) == getattr(running, part)
    assert set(found.backfill_rules) <= set(running.backfill_rules)
    outs = {p.out for p in found.probe_rules}
    arriving = {r for r in running.store_rules if r.edge.startswith("in:")}
    assert {r for r in found.store_rules if r.edge not in outs} == arriving
    assert rulesets.loads(rulesets.dumps(found)) == found


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_is_read_back_from_its_rules(seed: int) -> None:
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    plan = random_plan(queries, rng, apart=True)
    running = compile_ruleset(plan, queries, (), epoch=0, parallelism=2, sinks={})

    found = plan_of(running, queries)

    validate_plan(found, queries)
    told_apart = {one.start for one in found.substreams}
    # Substreams of a start with equal orders are merged.
    orders = tuple(o for o in plan.orders if not o.substream or o.start in told_apart)
    assert footprint(found, queries) == footprint(replace(plan, orders=orders), queries)
    assert set(found.copies) == set(plan.copies)
    assert steps_of(found) == steps_of(plan)


@pytest.mark.parametrize("seed", mostly_slow(range(60), 20))
def test_any_plan_is_revised_within_its_stores(seed: int) -> None:
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    parallelism = rng.choice((1, 3))
    optimizer, objective = rng.choice(tuple(Optimizer)), rng.choice(tuple(Objective))
    options = Options(optimizer=optimizer, objective=objective, parallelism=parallelism)
    plan = optimise(queries, drawn_statistics(queries, rng), options)
    running = compile_ruleset(plan, queries, (), epoch=3, parallelism=parallelism, sinks={})
    for _ in range(3):
        statistics = drawn_statistics(queries, rng)
        request = RevisionRequest(
            statistics=statistics,
            running=running_plan(running, queries, optimizer, objective),
            number=running.revision + 1,
            options=options,
            switching=rng.choice((0.0, 0.1)),
        )
        found = revise(request)
        assert revise(request) == found
        # Tables cached in ``known`` by an earlier revision change nothing.
        known = running_plan(running, queries, optimizer, objective)
        revise(replace(request, running=known, statistics=drawn_statistics(queries, rng)))
        assert revise(replace(request, running=known)) == found
        if found is None:
            continue
        assert_revises(running, found.ruleset)
        validate_plan(found.plan, queries)
        now = plan_of(running, queries, optimizer, objective)
        cost = cost_of(now, queries, statistics, parallelism=parallelism)
        assert found.running_cost == pytest.approx(cost)
        cost = cost_of(found.plan, queries, statistics, parallelism=parallelism)
        assert found.plan.cost == pytest.approx(cost)
        assert cost < found.running_cost
        assert 0 < found.gain <= 1
        running = found.ruleset


@pytest.mark.parametrize("seed", range(40))
def test_random_revisions_stay_within_the_stores(seed: int) -> None:
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    plan = random_plan(queries, rng)
    running = compile_ruleset(plan, queries, (), epoch=3, parallelism=2, sinks={})
    for revision in range(1, 4):
        found = random_revision(running, queries, rng, revision)
        assert_revises(running, found)
        running = found


@pytest.mark.parametrize("seed", range(25))
def test_without_intermediate_results_it_is_the_best_plan(seed: int) -> None:
    """Over base stores only, a revision costs as much as a full new plan."""
    rng = Random(seed)
    queries = random_world(rng, epochs=1).queries
    options = Options(mir=False)
    plan = optimise(queries, drawn_statistics(queries, rng), options)
    running = compile_ruleset(plan, queries, (), epoch=3, parallelism=1, sinks={})
    statistics = drawn_statistics(queries, rng)
    request = RevisionRequest(
        statistics=statistics, running=running_plan(running, queries), number=1, switching=0.0
    )

    found = revise(request)

    anew = optimise(queries, statistics, options)
    cost = cost_of(plan, queries, statistics) if found is None else found.plan.cost
    assert cost == pytest.approx(anew.cost, rel=1e-6)


def chain(**rates: float) -> Statistics:
    """Statistics of R, S and T with these rates and ten distinct values of each attribute."""
    return Statistics(
        cardinalities={r: float(n) for r, n in rates.items()},  # type: ignore[misc]
        every_distinct=dict.fromkeys(rates, 10.0),  # type: ignore[arg-type]
    )


def queries_of(*texts: str) -> list[JoinQuery]:
    return [parse_sql(f"q{i}", text, STREAMS) for i, text in enumerate(texts)]


THREE = "SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"


def revised(queries: Sequence[JoinQuery], before: Statistics, now: Statistics) -> Revised:
    running = compiled(optimise(queries, before, Options()), queries)
    found = revise(
        RevisionRequest(
            statistics=now, running=running_plan(running, queries), number=running.revision + 1
        )
    )
    assert found is not None
    return found


def test_an_intermediate_result_that_no_longer_pays_is_closed() -> None:
    queries = queries_of(THREE)
    before, now = chain(R=10, S=10, T=10000), chain(R=10000, S=10000, T=1)
    running = compiled(optimise(queries, before, Options()), queries)
    kept = [s.id for s in running.stores if len(s.members) > 1]
    assert [s.split("@")[0] for s in kept] == ["R*S"]

    found = revised(queries, before, now)

    assert list(found.closed) == kept
    assert not any(len(s.members) > 1 for s in found.ruleset.stores)
    assert found.gain > 0.7


def test_nothing_is_opened() -> None:
    queries = queries_of(THREE)
    before, now = chain(R=10000, S=10000, T=1), chain(R=10, S=10, T=10000)
    planned = optimise(queries, now, Options())
    assert any(not m.is_base for m in planned.mirs)
    running = compiled(optimise(queries, before, Options()), queries)
    there = {s.id for s in running.stores}

    found = revise(
        RevisionRequest(
            statistics=now, running=running_plan(running, queries), number=running.revision + 1
        )
    )

    assert found is not None
    assert {s.id for s in found.ruleset.stores} < there
    assert found.plan.cost > planned.cost


def test_a_key_without_an_index_is_named_and_charged() -> None:
    # S is probed from T first; from R, S would be probed by another key.
    queries = queries_of("SELECT R.a FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b AND R.c = T.c")
    before, now = chain(R=100, S=100, T=3), chain(R=100, S=3, T=100)
    found = revised(queries, before, now)

    assert found.unindexed
    for store, index in found.unindexed:
        spec = next(s for s in found.ruleset.stores if s.id == store)
        assert index in spec.indexes
    assert found.indexing > 0


def test_equal_statistics_change_nothing() -> None:
    queries = queries_of(THREE, "SELECT S.a FROM S JOIN T ON S.b = T.b JOIN U ON T.d = U.d")
    statistics = chain(R=20, S=300, T=40, U=5)
    running = compiled(optimise(queries, statistics, Options()), queries)

    assert (
        revise(
            RevisionRequest(
                statistics=statistics,
                running=running_plan(running, queries),
                number=running.revision + 1,
            )
        )
        is None
    )


def test_a_query_whose_columns_are_not_kept_does_not_probe_the_store() -> None:
    """The store was made for one query; the other reads an additional column."""
    first, other = queries_of(
        THREE, "SELECT R.a, S.d FROM R JOIN S ON R.a = S.a JOIN U ON S.b = U.b"
    )
    before = chain(R=10, S=10, T=10000, U=1)
    plan = optimise([first], before, Options())
    alone = compiled(plan, [first])
    (kept,) = [s for s in alone.stores if len(s.members) > 1]
    both = optimise([first, other], before, Options(mir=False))
    running = compiled(both, [first, other])
    upkeep = {p.out for p in alone.probe_rules}
    # A ruleset that keeps R*S for the first query and answers the other from base stores.
    running = replace(
        running,
        stores=(*running.stores, kept),
        store_rules=(
            *running.store_rules,
            *(r for r in alone.store_rules if r.store == kept.id and r.edge in upkeep),
        ),
    )
    assert ("S", "d") not in kept.columns
    now = chain(R=10, S=10, T=10000, U=10000)

    found = revise(
        RevisionRequest(
            statistics=now,
            running=running_plan(running, [first, other]),
            number=running.revision + 1,
        )
    )

    rules = running if found is None else found.ruleset
    edges = {p.out: p for p in rules.probe_rules}
    ends = [o.edge for o in rules.output_rules if o.query == other.id]
    (output,) = [edge for edge in ends if edge.startswith("U")]
    path = []
    while output in edges:
        path.append(edges[output])
        output = edges[output].edge
    assert path
    assert all(len(p.members) == 1 for p in path)


def test_rules_of_other_queries_are_refused() -> None:
    queries = queries_of(THREE)
    running = compiled(optimise(queries, chain(R=1, S=2, T=3), Options()), queries)
    others = [replace(queries[0], id="other")]  # type: ignore[arg-type]

    with pytest.raises(RulesetError, match="q0"):
        plan_of(running, others)
