"""Tests of plans' footprints: contents, conversion to JSON, determinism."""

from __future__ import annotations

import json
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.queries.joins import AttrRef, Label
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.footprint import (
    Footprint,
    StepKey,
    footprint,
)
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import trails
from anabranch_planner.passes import optimise
from anabranch_planner.plans.decisions import (
    Decisions,
    DecisionsError,
    from_document,
    to_document,
)
from anabranch_planner.plans.optimise import Options
from tests.support.cases.queries import chain, given_statistics
from tests.support.cases.what_if import priced_plan, small_queries, small_statistics
from tests.support.oracles.walk import walk

seeds = st.integers(0, 2**32 - 1)

QUERIES = [chain("R.a=S.a", "S.b=T.b", id="q1"), chain("S.b=T.b", "T.c=U.c", id="q2")]
STATISTICS = given_statistics(default=100.0, selectivities={"S.b=T.b": 0.0001})


def test_a_step_is_named_by_the_sub_joins_around_it() -> None:
    query = chain("S.a=T.a")
    plan = optimise([query], STATISTICS, Options(parallelism=4))
    both = next(t.after.id for t in trails(plan, [query]).steps.values())
    found = footprint(plan, [query])
    assert found.steps == {
        StepKey(Label("S"), MirId("S"), both, MirId("T"), (Label("T"),)),
        StepKey(Label("T"), MirId("T"), both, MirId("S"), (Label("S"),)),
    }
    assert found.copies == {
        (MirId("S"), AttrRef(Label("S"), "a")),
        (MirId("T"), AttrRef(Label("T"), "a")),
    }


@given(seeds)
def test_trails_are_what_walk_yields(seed: int) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    plan = priced_plan(queries, rng, CostModel(small_statistics(rng), parallelism=3))
    found = trails(plan, queries)
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        walked = list(walk(plan, order, queries))
        assert [prefix for prefix, *_ in walked] == list(prefixes)
        for prefix, step, before, head, _ in walked:
            trail = found.steps[prefix]
            assert (trail.step, trail.before, trail.head) == (step, before, head)
            assert trail.after.id == prefix[2][-1][2]
    assert set(found.steps) == {p for prefixes in found.orders for p in prefixes}


@given(seeds)
def test_json_brings_back_the_footprint(seed: int) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    plan = priced_plan(queries, rng, CostModel(small_statistics(rng), parallelism=3))
    found = footprint(plan, queries)
    document = json.loads(json.dumps(to_document(Decisions(found))))
    assert from_document(document) == Decisions(found)
    assert document == to_document(Decisions(found))


def test_plans_that_share_nothing_have_nothing_in_common_with_others() -> None:
    alone = optimise(QUERIES, STATISTICS, Options(optimizer=Optimizer.INDIVIDUAL, parallelism=4))
    joint = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    one, other = footprint(alone, QUERIES), footprint(joint, QUERIES)
    assert not one.steps & other.steps
    assert not one.copies & other.copies
    assert {k.start.partition(":")[0] for k in one.steps} == {"q1", "q2"}
    assert len(one.copies) == len(alone.copies)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_document_does_not_depend_on_the_hash_seed(seed: str) -> None:
    program = (
        "from tests.planner.cost.test_footprint import *\n"
        "found = footprint(optimise(QUERIES, STATISTICS, Options(parallelism=4)), QUERIES)\n"
        "print(json.dumps(to_document(Decisions(found))))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = footprint(optimise(QUERIES, STATISTICS, Options(parallelism=4)), QUERIES)
    assert run.stdout.strip() == json.dumps(to_document(Decisions(found)))


GOOD = {
    "version": 1,
    "footprint": {"steps": [], "copies": []},
    "backfills": [],
    "substreams": [],
    "hot": {},
}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": None}, "unknown-version"),
        ({"version": 2}, "unknown-version"),
        ({"footprint": {"steps": []}}, "malformed-decisions"),
        ({"footprint": {"steps": [["S"]], "copies": []}}, "malformed-decisions"),
        ({"footprint": {"steps": [[1, 2, 3, 4, [5]]], "copies": []}}, "malformed-decisions"),
        ({"footprint": {"steps": [], "copies": [["S", ["a"]]]}}, "malformed-decisions"),
        ({"substreams": [{}]}, "malformed-decisions"),
        ({"hot": []}, "malformed-decisions"),
    ],
)
def test_malformed_decisions_are_refused(changes: dict[str, object], code: str) -> None:
    assert from_document(GOOD) == Decisions(Footprint(frozenset(), frozenset()))
    with pytest.raises(DecisionsError) as caught:
        from_document(GOOD | changes)
    assert caught.value.code == code
    assert caught.value.remedy
