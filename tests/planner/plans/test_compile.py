"""Tests that a compiled ruleset has the join's results, for any plan and any change
between epochs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Objective, Optimizer, Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.plans.ruleset import Ruleset, from_json, to_json
from anabranch_contract.protocol.activations import Visibility
from anabranch_contract.queries.joins import JoinQuery, Label, QueryId, Stream, StreamName
from anabranch_contract.queries.mirs import MirId, base_mir, sub_join
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.solvers.deadline import Deadline
from tests.support.cases.drawn_worlds import World, random_world
from tests.support.cases.random_plans import random_plan
from tests.support.cases.typed_queries import Alias, build_query
from tests.support.oracles.history import record
from tests.support.oracles.interpreter import Outcome, interpret
from tests.support.oracles.nested_loop import nested_loop

seeds = st.integers(0, 2**32 - 1)


def run(world: World, plans: Sequence[Plan], *, expire: bool = False) -> Outcome:
    """Interpret one plan per epoch and compare every query with a nested-loop join."""
    history = record(list(world.streams.values()), world.batches)
    rulesets = []
    for epoch, plan in enumerate(plans):
        validate_plan(plan, world.running(epoch))
        ruleset = compile_ruleset(
            plan,
            world.running(epoch),
            list(world.streams.values()),
            epoch=epoch,
            parallelism=2,
            sinks={},
        )
        rulesets.append(through_json(ruleset))
    outcome = interpret(list(zip(rulesets, world.epochs, strict=True)), history, expire=expire)
    for query in world.queries:
        activation = outcome.activations[query.id]
        expected = nested_loop(query, history, activation)
        got = outcome.results[query.id]
        assert set(got) == set(expected), f"{query.id}: {plans}"
        assert repr(sorted(got.items())) == repr(sorted(expected.items()))
    return outcome


def through_json(ruleset: Ruleset) -> Ruleset:
    back = from_json(json.loads(json.dumps(to_json(ruleset))))
    assert json.dumps(to_json(back)) == json.dumps(to_json(ruleset))
    return back


@given(seeds)
def test_one_epoch_of_any_plan_gives_the_join(seed: int) -> None:
    rng = Random(seed)
    world = random_world(rng, epochs=1)
    run(world, [random_plan(world.running(0), rng, apart=True)])


@given(seeds)
def test_rewires_between_any_plans_lose_and_double_nothing(seed: int) -> None:
    rng = Random(seed)
    epochs = rng.randint(2, 5)
    world = random_world(rng, epochs=epochs)
    plans = [
        random_plan(world.running(e), rng, mirs=rng.choice((0, 0.6)), apart=True)
        for e in range(epochs)
    ]
    run(world, plans)


@given(seeds)
def test_rewires_between_optimisers_lose_and_double_nothing(seed: int) -> None:
    rng = Random(seed)
    epochs = rng.randint(2, 4)
    world = random_world(rng, epochs=epochs)
    plans = [
        optimise(
            world.running(epoch),
            Statistics(),
            Options(
                optimizer=rng.choice(list(Optimizer)),
                objective=rng.choice(list(Objective)),
                parallelism=rng.randint(1, 3),
                deadline=Deadline(seconds=0.5),
            ),
        )
        if rng.random() < 0.8
        else random_plan(world.running(epoch), rng, apart=True)
        for epoch in range(epochs)
    ]
    run(world, plans, expire=rng.random() < 0.5)


@given(seeds)
def test_dropping_what_the_retention_rule_allows_changes_no_result(seed: int) -> None:
    rng = Random(seed)
    epochs = rng.randint(1, 5)
    world = random_world(rng, epochs=epochs, windowed=rng.random() < 0.8)
    run(world, [random_plan(world.running(e), rng, apart=True) for e in range(epochs)], expire=True)


@given(seeds)
def test_stores_that_leave_values_out_lose_and_double_nothing(seed: int) -> None:
    rng = Random(seed)
    epochs = rng.randint(1, 4)
    world = random_world(rng, epochs=epochs, windowed=rng.random() < 0.3, one_key=True)
    plans = [
        random_plan(world.running(e), rng, mirs=rng.choice((0.5, 0.9)), apart=True)
        for e in range(epochs)
    ]
    run(world, plans, expire=rng.random() < 0.5)


# --- the example of docs/semantics.md -----------------------------------------------------------


def _rst() -> tuple[dict[str, Stream], JoinQuery]:
    columns = {"r": ("b",), "s": ("b", "c"), "t": ("c",)}
    streams = {
        name: Stream(StreamName(name), tuple((c, parse_type("int")) for c in names))
        for name, names in columns.items()
    }
    query = build_query(
        "q",
        [Alias(name, name) for name in streams],
        [(("r", "b"), ("s", "b")), (("s", "c"), ("t", "c"))],
        streams,
    )
    return streams, query


def _plan(query: JoinQuery, *, st: bool) -> Plan:
    """Return a plan of ``r JOIN s JOIN t``; with ``st``, r probes a materialised S⋈T."""
    r, s, t = (Label(x) for x in "rst")
    mir = sub_join(query, frozenset({s, t}))

    def step(*members: Label) -> Step:
        target = mir.id if len(members) > 1 else MirId(members[0])
        return Step(target, members, None, False, 0.0, 0.0)

    orders = [
        ProbeOrder("q", False, r, (step(s, t),) if st else (step(s), step(t))),
        ProbeOrder("q", False, s, (step(t), step(r))),
        ProbeOrder("q", False, t, (step(s), step(r))),
    ]
    mirs = [base_mir(relation.id) for relation in query.relations]
    if st:
        orders += [ProbeOrder(mir.id, True, s, (step(t),)), ProbeOrder(mir.id, True, t, (step(s),))]
        mirs.append(mir)
    return Plan(
        Optimizer.CLASH,
        Objective.TUPLES,
        (QueryId("q"),),
        tuple(orders),
        tuple(mirs),
        tuple(StoreCopy(m.id, None) for m in mirs),
        0.0,
        0.0,
        0.0,
        "by hand",
    )


@pytest.mark.parametrize("materialised", range(32))
def test_partners_of_different_epochs_meet_once(materialised: int) -> None:
    """s arrives in epoch 1, t in epoch 2, r in epochs 3 and 4; ST is kept in any subset of the
    epochs.
    """
    streams, query = _rst()
    world = World(
        streams,
        (query,),
        (
            {},
            {"s": [{"b": 1, "c": 1}]},
            {"t": [{"c": 1}]},
            {"r": [{"b": 1}]},
            {"r": [{"b": 1}], "s": [{"b": 1, "c": 1}], "t": [{"c": 1}]},
        ),
        {"q": (0, 5)},
        (1, 1, 1, 1, 1),
    )
    outcome = run(world, [_plan(query, st=bool(materialised >> e & 1)) for e in range(5)])
    # r of epoch 3 joins (s, t); epoch 4 has 2 r, 2 s, 2 t in total, so there are 8 results at the
    # end.
    assert len(outcome.results[query.id]) == 8
    assert outcome.activations[query.id].visible_from["r"] == Visibility(0, None)


def test_a_late_query_sees_what_others_have_stored_without_a_gap() -> None:
    streams, query = _rst()
    pair = build_query("p", [Alias("s", "s"), Alias("t", "t")], [(("s", "c"), ("t", "c"))], streams)
    world = World(
        streams,
        (pair, query),
        (
            {"s": [{"b": 1, "c": 1}], "t": [{"c": 1}], "r": [{"b": 1}]},
            {"r": [{"b": 1}]},
        ),
        {"p": (0, 2), "q": (1, 2)},
        (1, 1),
    )
    rng = Random(1)
    outcome = run(world, [random_plan(world.running(e), rng, apart=True) for e in range(2)])
    seen = outcome.activations[query.id].visible_from
    assert {a: v.batch for a, v in seen.items()} == {"r": 1, "s": 0, "t": 0}
    assert len(outcome.results[query.id]) == 1
