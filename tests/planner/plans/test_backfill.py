"""Tests of backfill decisions: costs compared with counted tuples, thresholds, and later plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.plan import Backfilling, Objective, Plan
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.plans.backfill import BackfillDecision, decide
from anabranch_planner.plans.compile import compile_ruleset
from tests.support.cases.queries import chain, given_statistics
from tests.support.cases.random_plans import random_plan
from tests.support.cases.what_if import priced_plan, small_queries, small_statistics

Floats = NDArray[np.float64]


seeds = st.integers(0, 2**32 - 1)
#: Microseconds per unit of time.
UNIT = 1_000_000
RST = chain("R.a=S.a", "S.b=T.b")


def windowed(windows: tuple[float | None, ...]) -> JoinQuery:
    """Return the query R-S-T with a window per alias, in units of time."""
    micros = [None if w is None else int(w * UNIT) for w in windows]
    bounds = tuple(tuple(0 if i == j else micros[i] for j in range(3)) for i in range(3))
    return replace(RST, bounds=bounds)


def plan_with(query: JoinQuery, start: str, target: tuple[str, ...]) -> Plan:
    """Return a plan in which ``target`` is kept, and is probed only from ``start``."""
    for seed in range(1000):
        plan = random_plan([query], Random(seed), mirs=0.4)
        steps = [(o.start, s.members) for o in plan.orders for s in o.steps if len(s.members) > 1]
        if steps == [(Label(start), tuple(map(Label, target)))] and not plan.orders[0].owner:
            return plan
    raise AssertionError("no such plan")


def model_of(
    query: JoinQuery, sizes: dict[str, int], objective: Objective = Objective.TUPLES
) -> CostModel:
    """A cost model in which every pair of tuples joins; a unit of time has ``sizes`` tuples."""
    known = given_statistics(
        cardinalities=dict(sizes), selectivity_default=1.0, history=float(UNIT)
    )
    return CostModel(known, objective=objective, bounds=LoosestBounds([query]))


def only(found: tuple[BackfillDecision, ...]) -> BackfillDecision:
    assert len(found) == 1
    return found[0]


def arrivals(size: int, units: float) -> Floats:
    """Return evenly distributed arrival times."""
    return (np.arange(round(size * units)) + 0.5) / size


@pytest.mark.parametrize("horizon", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(
    "windows",
    [(None, None, None), (0.4, 0.4, 0.4), (0.2, 0.6, 0.3), (None, 0.5, 0.7), (0.3, 2.0, 1.5)],
)
def test_coverage_costs_what_is_sent(windows: tuple[float | None, ...], horizon: float) -> None:
    query = windowed(windows)
    sizes = {"R": 60, "S": 50, "T": 40}
    plan = plan_with(query, "R", ("S", "T"))
    found = only(decide(plan, [query], model_of(query, sizes), horizon=horizon))

    kept = [w for w in windows[1:] if w is not None]
    life = min(horizon, max(kept)) if len(kept) == 2 else horizon
    probing = 1 + arrivals(sizes["R"], life)
    gap = arrivals(sizes["S"], 1)
    window = np.inf if windows[1] is None else windows[1]
    met = (probing[:, None] - gap[None, :]) <= window
    # R's tuples probe S, those with a partner also T.
    assert found.coverage == pytest.approx(len(probing) + met.sum(), rel=0.02)


def test_partners_that_are_joined_before_the_gap_is_probed_grow_with_the_history() -> None:
    query = chain("R.a=S.a", "S.b=T.b", "T.c=U.c")
    sizes = {"R": 30, "S": 20, "T": 15, "U": 10}
    for seed in range(2000):
        plan = random_plan([query], Random(seed), mirs=0.3)
        steps = [(o, s) for o in plan.orders for s in o.steps if len(s.members) > 1]
        if len(steps) == 1 and steps[0][0].steps[0].members == ("S",) and not steps[0][0].owner:
            break
    assert (steps[0][0].start, steps[0][1].members) == ("R", ("T", "U"))
    found = only(decide(plan, [query], model_of(query, sizes), horizon=1.5))

    sent = sum(np.sum(arrivals(sizes["S"], 2.5) < at) for at in 1 + arrivals(sizes["R"], 1.5))
    assert found.coverage == pytest.approx(sent + sent * sizes["T"], rel=0.02)


@pytest.mark.parametrize("windows", [(None, None, None), (0.3, 0.2, 0.4), (0.1, 0.5, None)])
def test_a_backfill_costs_what_is_sent_and_inserted(windows: tuple[float | None, ...]) -> None:
    query = windowed(windows)
    sizes = {"R": 60, "S": 50, "T": 40}
    plan = plan_with(query, "R", ("S", "T"))
    found = only(decide(plan, [query], model_of(query, sizes)))
    free = only(decide(plan, [query], model_of(query, sizes, Objective.PAPER)))

    stored = {
        name: [t for t in arrivals(sizes[name], 1) if window is None or t >= 1 - window]
        for name, window in zip("ST", windows[1:], strict=True)
    }
    pairs = sum(
        (windows[1] is None or t - s <= windows[1]) and (windows[2] is None or s - t <= windows[2])
        for s, t in product(stored["S"], stored["T"])
    )
    least = min(stored, key=lambda name: len(stored[name]))
    assert found.order[0] == least
    assert free.cost == pytest.approx(len(stored[least]), rel=0.05)
    assert found.cost == pytest.approx(len(stored[least]) + pairs, rel=0.05)


def test_the_decision_turns_with_horizon_and_rates() -> None:
    plan = plan_with(RST, "R", ("S", "T"))

    def chosen(horizon: float, probing: int) -> bool:
        sizes = {"R": probing, "S": 50, "T": 40}
        return only(decide(plan, [RST], model_of(RST, sizes), horizon=horizon)).chosen

    # Cost: 40 + 50 * 40 tuples, saving 51 per tuple of R.
    assert [chosen(1.0, r) for r in (39, 40, 41)] == [False, False, True]
    assert [chosen(h, 20) for h in (0.0, 1.0, 2.0, 2.1)] == [False, False, False, True]


def test_a_gap_that_leaves_the_window_soon_is_not_worth_a_backfill() -> None:
    sizes = {"R": 400, "S": 50, "T": 40}
    assert only(decide(plan_with(RST, "R", ("S", "T")), [RST], model_of(RST, sizes))).chosen
    short = windowed((0.5, 0.02, 0.02))
    found = only(decide(plan_with(short, "R", ("S", "T")), [short], model_of(short, sizes)))
    assert found.coverage < 400 * 0.02 * (1 + 50 * 0.02) + 1


def test_the_setting_overrules() -> None:
    plan = plan_with(RST, "R", ("S", "T"))
    for probing, setting in product((1, 1000), (Backfilling.ALWAYS, Backfilling.NEVER)):
        model = model_of(RST, {"R": probing, "S": 50, "T": 40})
        found = only(decide(plan, [RST], model, setting=setting))
        assert (found.chosen, found.reason) == (setting == "always", f"setting: {setting}")


def test_what_has_been_decided_stands() -> None:
    plan = plan_with(RST, "R", ("S", "T"))
    running = footprint(plan, [RST])

    def at(probing: int, *earlier: BackfillDecision) -> BackfillDecision:
        model = model_of(RST, {"R": probing, "S": 50, "T": 40})
        return only(decide(plan, [RST], model, running=running, earlier=earlier))

    first = only(decide(plan, [RST], model_of(RST, {"R": 100, "S": 50, "T": 40})))
    other = replace(first, order=first.order[::-1])
    assert first.chosen
    # The backfill no longer pays, but it has begun, and continues where it was.
    assert at(1, other) == replace(
        other,
        coverage=51.0,
        cost=50.0 + 2000.0,
        reason="decided when it was introduced",
    )
    assert [at(r).chosen for r in (41, 80, 81)] == [False, False, True]
    refused = replace(first, chosen=False)
    assert [at(r, refused).chosen for r in (41, 80, 81)] == [False, False, True]


@given(seeds)
def test_every_mir_of_any_plan_is_decided_and_compiles(seed: int) -> None:
    rng = Random(seed)
    queries = small_queries(rng)
    parallelism = rng.choice([1, 4])
    model = CostModel(small_statistics(rng), parallelism=parallelism)
    plan = priced_plan(queries, rng, model)
    found = decide(plan, queries, model, setting=Backfilling.ALWAYS)
    kept = {(c.owner, c.mir) for c in plan.copies}
    members = {m.id: m.members for m in plan.mirs if not m.is_base}
    assert {(b.owner, b.mir) for b in found} == {(o, m) for o, m in kept if m in members}
    for one in found:
        assert sorted(one.order) == sorted(members[one.mir])
        assert one.cost > 0
        assert one.coverage > 0
    rules = compile_ruleset(
        plan, queries, [], epoch=0, parallelism=parallelism, sinks={}, backfills=found
    )
    assert rulesets.loads(rulesets.dumps(rules)) == rules
    stores = {s.id: s for s in rules.stores if s.mir in members}
    assert {r.store for r in rules.backfill_rules} == set(stores)
    for rule in rules.backfill_rules:
        spec = stores[rule.store]
        assert sorted((rule.start, *(s.label for s in rule.steps))) == sorted(spec.members)
        assert {b for s in rule.steps for b in s.bounds} == set(spec.bounds)


def test_documents_of_earlier_releases_have_no_backfill() -> None:
    plan = plan_with(RST, "R", ("S", "T"))
    model = model_of(RST, {"R": 100, "S": 50, "T": 40})
    made = [
        compile_ruleset(plan, [RST], [], epoch=0, parallelism=1, sinks={}, backfills=b)
        for b in ((), decide(plan, [RST], model))
    ]
    old = rulesets.to_json(made[1])
    del old["rules"]["backfill"]
    assert made[0] == rulesets.from_json(old) != made[1]


def test_a_horizon_that_is_no_number_is_refused() -> None:
    plan = plan_with(RST, "R", ("S", "T"))
    model = model_of(RST, {"R": 1, "S": 1, "T": 1})
    for horizon in (-1.0, float("inf"), float("nan")):
        with pytest.raises(PlannerError) as caught:
            decide(plan, [RST], model, horizon=horizon)
        assert caught.value.code == "bad-horizon"
        assert caught.value.remedy


def test_plans_that_share_nothing_decide_for_each_owner() -> None:
    query = replace(RST, id=RST.id)
    for seed in range(1000):
        plan = random_plan([query], Random(seed), mirs=0.5)
        if plan.orders[0].owner and any(not m.is_base for m in plan.mirs):
            break
    found = decide(plan, [query], model_of(query, {"R": 9, "S": 9, "T": 9}))
    assert {b.owner for b in found} == {query.id}
    assert {b.mir for b in found} == {MirId(m.id) for m in plan.mirs if not m.is_base}
