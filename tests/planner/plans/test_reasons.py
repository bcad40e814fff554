"""Tests of a plan's reasons for sharing and keeping: each saving is the difference of two plans."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import trails
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.explain.detours import DetourCosts
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.plans.reasons import reasons, reasons_document
from anabranch_planner.plans.shares import game, part
from tests.support.cases.queries import chain, given_statistics
from tests.support.cases.what_if import priced_plan, small_queries, small_statistics
from tests.support.oracles.without_store import without

seeds = st.integers(0, 2**32 - 1)
optimizers = st.sampled_from(list(Optimizer))
objectives = st.sampled_from(list(Objective))

QUERIES = [chain("R.a=S.a", "S.b=T.b", id="q1"), chain("S.b=T.b", "T.c=U.c", id="q2")]
STATISTICS = given_statistics(default=100.0, selectivities={"S.b=T.b": 0.0001})


@given(seeds, optimizers, objectives)
def test_doing_without_a_kept_result_is_a_valid_plan_of_the_cost_that_is_said(
    seed: int, optimizer: Optimizer, objective: Objective
) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    statistics = small_statistics(rng)
    model = CostModel(statistics, objective=objective, parallelism=3)
    plan = optimise(
        queries, statistics, Options(optimizer=optimizer, objective=objective, parallelism=3)
    )
    found = reasons(plan, queries, model)
    mirs = {m.id: m for m in plan.mirs}
    owners = {(c.owner, c.mir) for c in plan.copies if not mirs[c.mir].is_base}
    assert len(found.kept) == len(owners)
    for owner, mir in sorted(owners):
        other = without(plan, queries, mir, model, owner=owner)
        validate_plan(other, queries)
        assert (owner, mir) not in {(c.owner, c.mir) for c in other.copies}
        cost = cost_of(other, queries, statistics, parallelism=3)
        assert other.cost == pytest.approx(cost)
        prefix = f"{owner}:" if owner else ""
        label = prefix + "⋈".join(mirs[mir].members)
        saved = [r.saved for r in found.kept if r.mir == mir and r.label == label]
        assert saved == pytest.approx([cost - plan.cost], abs=1e-6)
    if plan.method == "highs" and optimizer is not Optimizer.SHARED:
        assert all(r.saved >= -1e-6 * plan.cost for r in found.kept)


@given(seeds)
def test_any_valid_plan_stays_one_without_a_kept_result(seed: int) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    model = CostModel(small_statistics(rng), parallelism=3)
    plan = priced_plan(queries, rng, model)
    mirs = {m.id: m for m in plan.mirs}
    ledger = DetourCosts(plan, queries, model, trails(plan, queries))
    for copy in plan.copies:
        if not mirs[copy.mir].is_base:
            other = without(plan, queries, copy.mir, model, owner=copy.owner)
            validate_plan(other, queries)
            saved, _ = ledger.saving(copy.owner, copy.mir)
            assert saved == pytest.approx(other.cost - plan.cost, abs=1e-6)


@given(seeds, optimizers)
def test_savings_by_sharing_add_up_to_what_the_parts_cost_more(
    seed: int, optimizer: Optimizer
) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    statistics = small_statistics(rng)
    plan = optimise(queries, statistics, Options(optimizer=optimizer, parallelism=3))
    found = reasons(plan, queries, CostModel(statistics, parallelism=3))
    parts = sum(part(game(plan, queries)).values())
    assert sum(r.saved for r in found.shared) == pytest.approx(parts - plan.cost, abs=1e-6)
    assert all(len(r.users) > 1 for r in found.shared)
    if optimizer is Optimizer.INDIVIDUAL:
        assert found.shared == ()


def test_the_reasons_for_one_intermediate_result() -> None:
    model = CostModel(STATISTICS, parallelism=4)
    plan = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    found = reasons(plan, QUERIES, model)
    (kept,) = found.kept
    assert (kept.label, kept.users) == ("S⋈T", ("q1", "q2"))
    assert kept.saved == pytest.approx(kept.detours - kept.upkeep)
    assert kept.saved > 0
    # Its inserts cost one tuple per copy; the queries' own orders make its rows anyway.
    copies = [c for c in plan.copies if c.mir == kept.mir]
    assert kept.upkeep >= sum(c.insert_cost for c in copies) > 0
    steps = {r.label for r in found.shared if r.kind == "step"}
    assert {"from S: S probes T[b]", "from T: T probes S[b]"} <= steps


def test_documents_are_bounded_and_say_what_they_leave_out() -> None:
    plan = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    found = reasons(plan, QUERIES, CostModel(STATISTICS, parallelism=4))
    whole, one = reasons_document(found), reasons_document(found, at_most=1)
    assert whole["omitted"] == 0
    assert len(one["shared"]) == 1
    assert one["omitted"] == len(whole["shared"]) + len(whole["kept"]) - 2
    assert one["totals"] == whole["totals"]
    none = reasons(plan, QUERIES, CostModel(STATISTICS, parallelism=4), at_most=0)
    assert (none.kept, none.omitted) == ((), 1)
    assert reasons_document(none)["totals"]["kept"] == 1


def test_what_is_not_kept_leaves_the_plan_as_it_is() -> None:
    plan = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    same = without(plan, QUERIES, MirId("nothing"), CostModel(STATISTICS, parallelism=4))
    assert (same.orders, same.copies, same.mirs) == (plan.orders, plan.copies, plan.mirs)
