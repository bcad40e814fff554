"""Tests of the optimiser against brute force, of promises about every plan, and of determinism."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Objective, Optimizer, Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise, optimise_apart
from anabranch_planner.plans.optimise import Options, apart_of
from anabranch_planner.plans.shares import costs_by_owner
from anabranch_planner.solvers.deadline import Deadline
from tests.support.cases.queries import chain, given_statistics, join_query, single
from tests.support.cases.random_problems import random_queries, uniform_statistics
from tests.support.oracles.brute_force import cheapest

seeds = st.integers(0, 2**32 - 1)
objectives = st.sampled_from(list(Objective))
parallelisms = st.sampled_from([1, 2, 5])


def random_query(rng: Random, id: str, size: int, *, extra: float = 0.3) -> JoinQuery:
    """A random join graph over few relations and attributes: self-joins, composite keys, cycles."""
    names = list("RSTU")
    chosen = rng.sample(names, min(size, len(names)))
    if size > 1 and rng.random() < 0.25:
        chosen[1] = f"{chosen[0]}#1"
    predicates = []
    for i in range(1, size):
        partners = [rng.randrange(i)]
        if rng.random() < extra:
            partners.append(rng.randrange(i))
        predicates += [
            f"{chosen[i]}.{rng.choice('ab')}={chosen[j]}.{rng.choice('ab')}" for j in partners
        ]
    return join_query(dict.fromkeys(predicates), id=id, labels=chosen)


def random_statistics(rng: Random) -> Statistics:
    sizes = {name: float(rng.choice([5, 10, 40, 100, 300])) for name in "RSTU"}
    distincts = {
        (name, key): float(rng.randint(1, int(sizes[name])))
        for name in "RSTU"
        for key in ("a", "b", "a,b")
        if rng.random() < 0.7
    }
    return given_statistics(cardinalities=sizes, distincts=distincts)


def checked(
    queries: list[JoinQuery], statistics: Statistics, optimizer: Optimizer,
    objective: Objective, parallelism: int, *, mir: bool = True, partitioning: bool = True,
) -> Plan:  # fmt: skip
    plan = optimise(
        queries,
        statistics,
        Options(
            optimizer=optimizer,
            objective=objective,
            parallelism=parallelism,
            mir=mir,
            partitioning=partitioning,
        ),
    )
    validate_plan(plan, queries)
    again = cost_of(plan, queries, statistics, parallelism=parallelism, partitioning=partitioning)
    assert again == pytest.approx(plan.cost)
    assert plan.bound <= plan.cost
    return plan


@given(seeds, objectives, parallelisms, st.booleans())
def test_two_three_way_queries_cost_what_brute_force_finds(
    seed: int, objective: Objective, parallelism: int, mir: bool
) -> None:
    rng = Random(seed)
    queries = [random_query(rng, "q1", 3), random_query(rng, "q2", 3)]
    statistics = random_statistics(rng)
    plan = checked(queries, statistics, Optimizer.CLASH, objective, parallelism, mir=mir)
    model = CostModel(statistics, objective=objective, parallelism=parallelism)
    assert plan.cost == pytest.approx(cheapest(queries, model, mir=mir, at_most=plan.cost))
    assert plan.method == "branch"
    assert plan.gap == 0


@given(seeds, objectives, parallelisms)
def test_a_four_way_query_costs_what_brute_force_finds(
    seed: int, objective: Objective, parallelism: int
) -> None:
    rng = Random(seed)
    queries = [random_query(rng, "q1", 4, extra=0.1)]
    statistics = random_statistics(rng)
    plan = checked(queries, statistics, Optimizer.CLASH, objective, parallelism)
    model = CostModel(statistics, objective=objective, parallelism=parallelism)
    assert plan.cost == pytest.approx(cheapest(queries, model, mir=True, at_most=plan.cost))


@given(seeds, objectives, parallelisms, st.booleans(), st.booleans())
def test_joint_is_at_most_shared_is_at_most_individual(
    seed: int, objective: Objective, parallelism: int, mir: bool, partitioning: bool
) -> None:
    rng = Random(seed)
    queries = [random_query(rng, f"q{i}", rng.randint(1, 4)) for i in range(rng.randint(1, 4))]
    statistics = random_statistics(rng)
    clash, shared, alone = (
        checked(
            queries, statistics, optimizer, objective, parallelism,
            mir=mir, partitioning=partitioning,
        ).cost
        for optimizer in (Optimizer.CLASH, Optimizer.SHARED, Optimizer.INDIVIDUAL)
    )  # fmt: skip
    assert clash <= shared * (1 + 1e-9)
    assert shared <= alone * (1 + 1e-9)
    assert alone == pytest.approx(
        sum(
            optimise(
                [q], statistics, Options(optimizer=Optimizer.INDIVIDUAL, objective=objective,
                parallelism=parallelism, mir=mir, partitioning=partitioning),
            ).cost
            for q in queries
        )
    )  # fmt: skip


@given(seeds)
def test_plans_to_compare_with_are_those_of_their_optimisers(seed: int) -> None:
    rng = Random(seed)
    queries = [random_query(rng, f"q{i}", rng.randint(2, 3)) for i in range(rng.randint(1, 3))]
    statistics = random_statistics(rng)
    apart = optimise_apart(queries, statistics, Options())
    for optimizer, found in (
        (Optimizer.INDIVIDUAL, apart.individual),
        (Optimizer.SHARED, apart.shared),
    ):
        assert found == optimise(queries, statistics, Options(optimizer=optimizer))
    joint = optimise(queries, statistics, Options())
    lone = apart_of(joint, Options())
    assert (lone is None) == (len(queries) > 1)
    if lone is not None:
        assert lone.individual.cost == pytest.approx(apart.individual.cost)
        assert lone.shared.cost == pytest.approx(apart.shared.cost)
        (cost,) = costs_by_owner(lone.individual, queries).values()
        assert [cost] == pytest.approx([*costs_by_owner(apart.individual, queries).values()])
        validate_plan(lone.individual, queries)
        assert cost_of(lone.individual, queries, statistics) == pytest.approx(lone.individual.cost)


@given(seeds)
def test_equal_input_gives_an_equal_plan_in_whatever_order(seed: int) -> None:
    rng = Random(seed)
    queries = list(random_queries(seed, count=4, size=3, relations=5))
    plan = optimise(queries, uniform_statistics(), Options(parallelism=4))
    rng.shuffle(queries)
    assert optimise(queries, uniform_statistics(), Options(parallelism=4)) == plan


@pytest.mark.parametrize("optimizer", [o for o in Optimizer if o is not Optimizer.DPPICK])
def test_the_section_vii_c_workload_is_solved_to_optimality(optimizer: Optimizer) -> None:
    queries = list(random_queries(7, count=20, size=3, relations=10))
    plan = checked(queries, uniform_statistics(), optimizer, Objective.PAPER, 4)
    assert plan.method == "branch"
    assert plan.queries == tuple(sorted(q.id for q in queries))


def test_a_query_over_one_relation_needs_no_store() -> None:
    plan = checked([single("R")], given_statistics(), Optimizer.CLASH, Objective.TUPLES, 4)
    assert plan.cost == 0
    assert plan.copies == ()
    assert [o.steps for o in plan.orders] == [()]


def test_no_query_at_all_gives_the_empty_plan() -> None:
    plan = optimise([], given_statistics(), Options())
    assert (plan.orders, plan.copies, plan.cost) == ((), (), 0)


def test_self_join_probes_the_base_store_of_the_relation() -> None:
    query = chain("S.a=S#1.b")
    plan = checked([query], given_statistics(), Optimizer.CLASH, Objective.TUPLES, 4)
    assert [(o.start, s.target, s.members) for o in plan.orders for s in o.steps] == [
        ("S", "S", ("S#1",)),
        ("S#1", "S", ("S",)),
    ]
    # Each direction knows one attribute: a second copy (cost 1000) is cheaper than broadcasts (3 *
    # 1000).
    assert [str(c.partition) for c in plan.copies] == ["S.a", "S.b"]
    assert plan.cost == pytest.approx(4000)


def test_the_same_labels_under_different_predicates_are_different_steps() -> None:
    queries = [chain("R.a=S.a", id="q1"), chain("R.b=S.b", id="q2")]
    plan = checked(queries, given_statistics(), Optimizer.CLASH, Objective.PAPER, 1)
    assert plan.cost == pytest.approx(4000)


def test_a_shared_intermediate_result_is_maintained_once() -> None:
    queries = [chain("R.a=S.a", "S.b=T.b", id="q1"), chain("S.b=T.b", "T.c=U.c", id="q2")]
    statistics = given_statistics(default=100.0, selectivities={"S.b=T.b": 0.0001})
    plan = checked(queries, statistics, Optimizer.CLASH, Objective.TUPLES, 4)
    kept = [m.members for m in plan.mirs if not m.is_base]
    assert kept == [("S", "T")]
    assert [o.start for o in plan.orders if o.maintains] == ["S", "T"]
    alone = optimise(queries, statistics, Options(optimizer=Optimizer.INDIVIDUAL, parallelism=4))
    assert {(o.owner, o.start) for o in alone.orders if o.maintains} == {
        ("q1", "S"), ("q1", "T"), ("q2", "S"), ("q2", "T"),
    }  # fmt: skip


def test_above_the_cap_local_search_decides_and_the_plan_says_so() -> None:
    queries = list(random_queries(3, count=6, size=4, relations=6))
    plan = optimise(queries, uniform_statistics(), Options(parallelism=4, max_flows=10))
    validate_plan(plan, queries)
    assert "exceed the cap of 10" in plan.method
    assert (
        plan.bound
        <= optimise(queries, uniform_statistics(), Options(parallelism=4)).cost
        <= plan.cost
    )
    assert plan.gap == pytest.approx((plan.cost - plan.bound) / plan.cost)


def test_a_query_with_too_many_sub_joins_is_reduced_and_named() -> None:
    labels = [f"r{i}" for i in range(14)]
    clique = join_query([f"{a}.k={b}.k" for a, b in pairwise(labels)], id="big")
    plan = checked([clique], given_statistics(), Optimizer.CLASH, Objective.TUPLES, 2)
    assert "one order per start for big" in plan.method
    assert plan.gap > 0


def test_out_of_time_the_plan_is_complete_and_carries_its_gap() -> None:
    queries = list(random_queries(5, count=8, size=4, relations=8))
    plan = optimise(
        queries, uniform_statistics(), Options(parallelism=4, deadline=Deadline(seconds=0.0))
    )
    validate_plan(plan, queries)
    assert plan.method != "branch"
    assert plan.bound <= plan.cost
    shared = optimise(
        queries, uniform_statistics(), Options(parallelism=4, optimizer=Optimizer.SHARED)
    )
    assert plan.bound <= shared.cost


def test_duplicate_ids_and_cross_products_are_refused() -> None:
    with pytest.raises(QueryError, match="two queries are called"):
        optimise([chain("R.a=S.a"), chain("S.b=T.b")], given_statistics(), Options())
    with pytest.raises(QueryError, match="cross product"):
        optimise([chain("R.a=S.a", "T.a=U.a")], given_statistics(), Options())
