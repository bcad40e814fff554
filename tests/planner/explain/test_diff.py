"""Tests of differences between plans: complete, and equal from a footprint and from its plan."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.queries.joins import RelationId
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.validate import cost_of
from anabranch_planner.explain.diff import diff, diff_document
from anabranch_planner.passes import optimise
from anabranch_planner.plans.decisions import Decisions, from_document, to_document
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.demands import DEFAULT_WIDTH
from tests.support.cases.queries import chain, given_statistics
from tests.support.cases.what_if import small_queries, small_statistics

seeds = st.integers(0, 2**32 - 1)
optimizers = st.sampled_from(list(Optimizer))
objectives = st.sampled_from(list(Objective))

QUERIES = [chain("R.a=S.a", "S.b=T.b", id="q1"), chain("S.b=T.b", "T.c=U.c", id="q2")]
STATISTICS = given_statistics(default=100.0, selectivities={"S.b=T.b": 0.0001})
MODEL = CostModel(STATISTICS, parallelism=4)


@given(seeds, optimizers, objectives, st.sampled_from([1, 3]))
def test_a_plan_against_itself_changes_nothing(
    seed: int, optimizer: Optimizer, objective: Objective, parallelism: int
) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    statistics = small_statistics(rng)
    plan = optimise(
        queries,
        statistics,
        Options(optimizer=optimizer, objective=objective, parallelism=parallelism),
    )
    model = CostModel(statistics, objective=objective, parallelism=parallelism)
    found = diff(plan, plan, queries, model)
    assert found.unchanged
    assert found.cost_before == found.cost_after == pytest.approx(plan.cost)


@given(seeds, optimizers, optimizers, objectives)
def test_both_sides_are_accounted_for(
    seed: int, one: Optimizer, other: Optimizer, objective: Objective
) -> None:
    rng = Random(seed)
    before_queries = small_queries(rng)
    queries = [q for q in before_queries if rng.random() < 0.6]
    old_statistics, statistics = small_statistics(rng), small_statistics(rng)
    before = optimise(
        before_queries, old_statistics, Options(optimizer=one, objective=objective, parallelism=3)
    )
    after = optimise(
        queries, statistics, Options(optimizer=other, objective=objective, parallelism=3)
    )
    model = CostModel(statistics, objective=objective, parallelism=3)
    found = diff(before, after, queries, model, before_queries=before_queries)
    old, new = footprint(before, before_queries), footprint(after, queries)
    assert {s.key for s in (*found.kept, *found.removed)} == old.steps
    assert {s.key for s in (*found.kept, *found.added)} == new.steps
    assert {(s.store, s.partition) for s in (*found.retained, *found.dropped)} == old.copies
    assert {(s.store, s.partition) for s in (*found.retained, *found.built)} == new.copies
    assert found.cost_after == pytest.approx(after.cost)
    # The old plan's cost is its cost under the new statistics.
    assert found.cost_before == pytest.approx(
        cost_of(before, before_queries, statistics, parallelism=3)
    )
    if one is not Optimizer.SHARED:
        # A footprint decoded from JSON has the same information.
        kept = from_document(json.loads(json.dumps(to_document(Decisions(old))))).footprint
        assert diff(kept, after, queries, model, before_queries=before_queries) == found


@given(seeds)
def test_steps_and_stores_explain_the_difference_in_cost(seed: int) -> None:
    rng = Random(seed)
    before_queries = small_queries(rng)
    queries = before_queries[1:]
    statistics = small_statistics(rng)
    before, after = (
        optimise(q, statistics, Options(parallelism=3)) for q in (before_queries, queries)
    )
    model = CostModel(statistics, parallelism=3)
    found = diff(before, after, queries, model, before_queries=before_queries)
    totals = diff_document(found)["totals"]
    change = {name: totals[name]["cost"] for name in ("added", "built", "removed", "dropped")}
    kept = {
        s.key: s.cost or 0.0
        for s in diff(after, before, before_queries, model, before_queries=queries).kept
    }
    rerouted = sum((s.cost or 0.0) - kept[s.key] for s in found.kept)
    assert (found.cost_after or 0.0) - (found.cost_before or 0.0) == pytest.approx(
        change["added"] + change["built"] - change["removed"] - change["dropped"] + rerouted,
        abs=1e-6,
    )


def test_a_new_query_builds_what_it_needs() -> None:
    before = optimise(QUERIES[:1], STATISTICS, Options(parallelism=4))
    after = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    widths = {RelationId("S"): 8.0, RelationId("T"): 16.0, RelationId("U"): 32.0}
    found = diff(before, after, QUERIES, MODEL, before_queries=QUERIES[:1], widths=widths)
    built = {s.label: s for s in found.built}
    assert (built["U[c]"].tuples, built["U[c]"].bytes) == (100.0, 3200.0)
    assert built["S⋈T[c]"].tuples == pytest.approx(1.0)
    assert built["S⋈T[c]"].bytes == pytest.approx(24.0)
    assert found.dropped == ()
    assert found.assumed_widths == ("R",)
    assert found.notes == (
        f"{DEFAULT_WIDTH:g} bytes per tuple assumed for R: their width was not given",
    )
    assert {s.label: s.tuples for s in found.added}["from U: U probes S⋈T"] == 100.0


@pytest.mark.parametrize("objective", list(Objective))
def test_tuples_of_a_step_are_tuples_under_every_objective(objective: Objective) -> None:
    """The cost is in the objective's unit, and determines which entries are cut."""
    queries, few = QUERIES[1:], {"U": 5.0}
    statistics = given_statistics(few, {"S.b=T.b": 0.01}, default=100.0)
    plan = optimise(queries, statistics, Options(parallelism=4, mir=False))
    empty = optimise([], statistics, Options())
    model = CostModel(statistics, parallelism=4).charging(objective)
    for after in (plan, footprint(plan, queries)):
        added = diff(empty, after, queries, model).added
        tuples = {s.label: s.tuples for s in added}
        assert tuples["from S: S probes T"] == 100.0
        # T is partitioned by b, so each of five tuples probes all partitions.
        assert tuples["from U: U probes T"] == 20.0
        same = [s.cost == pytest.approx(s.tuples) for s in added]
        assert all(same) == (objective is not Objective.SECONDS)
    document = diff_document(diff(empty, plan, queries, model))
    costs = [s["cost"] for s in document["steps"]["added"]]
    assert costs == sorted(costs, reverse=True)
    assert document["totals"]["added"]["tuples"] == pytest.approx(sum(s.tuples or 0 for s in added))


def test_what_belongs_to_forgotten_queries_has_no_estimate() -> None:
    before = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    after = optimise(QUERIES[:1], STATISTICS, Options(parallelism=4))
    found = diff(footprint(before, QUERIES), after, QUERIES[:1], MODEL)
    assert found.cost_before is None
    lost = [s for s in found.removed if s.cost is None]
    assert {s.key.start for s in lost} >= {"U"}
    assert "no longer known" in found.notes[0]
    # Base relations are known by their ids only.
    assert [s.tuples for s in found.dropped if s.label == "U[c]"] == [100.0]


def test_a_name_used_again_for_another_query_is_not_confused() -> None:
    old, new = [chain("R.a=S.a", id="q")], [chain("R.b=S.b", id="q")]
    before, after = (optimise(q, STATISTICS, Options(parallelism=4)) for q in (old, new))
    found = diff(footprint(before, old), after, new, MODEL, before_queries=old)
    assert (len(found.added), len(found.removed), len(found.kept)) == (2, 2, 0)
    assert found.cost_before == pytest.approx(before.cost)


def test_long_lists_are_cut_dearest_first() -> None:
    empty = optimise([], STATISTICS, Options())
    after = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    found = diff(empty, after, QUERIES, MODEL)
    whole, some = diff_document(found), diff_document(found, at_most=2)
    assert some["steps"]["added"] == whole["steps"]["added"][:2]
    tuples = [s["tuples"] for s in whole["steps"]["added"]]
    assert tuples == sorted(tuples, reverse=True)
    assert some["omitted"] == len(found.added) + len(found.built) - 4
    assert some["totals"] == whole["totals"]
    assert whole["totals"]["built"]["count"] == len(found.built)
