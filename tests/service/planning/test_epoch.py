"""Tests of planning an epoch when optimisers fail: one query's failure never affects others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import (
    Backfilling,
    LookingAhead,
    Objective,
    Optimizer,
    Plan,
    Solver,
)
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import JoinQuery, QueryId, RelationId
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_contract.rest.streams import StreamIn
from anabranch_planner.cost.footprint import Footprint
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise
from anabranch_planner.plans.decisions import Decisions
from anabranch_planner.plans.optimise import Options
from anabranch_service.planning import epoch as planning
from anabranch_service.planning.task import PlanTask, RunningEpoch
from anabranch_service.planning.what_if.assumptions import Names, assume
from anabranch_service.planning.widths import relation_widths
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.statements import read_statement, usable_streams
from anabranch_service.routes.streams import read_stream
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.cases.planned import as_running, plan_queries
from tests.support.surroundings.policy import OPEN

RECORDS: dict[str, StreamRecord] = {
    str(stream["name"]): read_stream(StreamIn.model_validate(stream), ServiceSettings(access=OPEN))
    for stream in STREAMS
}

#: A thousand tuples of each relation.
COUNTED = Statistics(dict.fromkeys(map(RelationId, RECORDS), 1000.0))


def task() -> PlanTask:
    return PlanTask(
        queries=(),
        streams=usable_streams(RECORDS.values()),
        statistics=Statistics(),
        options=PlanningSettings(
            optimizer=Optimizer.CLASH, objective=Objective.TUPLES, parallelism=2
        ),
        epoch=3,
        sinks={},
        seconds=5.0,
    )


def queries() -> list[JoinQuery]:
    streams = usable_streams(RECORDS.values())
    return [
        read_statement(sql).normalise(name, streams)
        for name, sql in (("pair", PAIR), ("chain", CHAIN))
    ]


def test_probes_look_ahead_where_the_setting_says_so() -> None:
    """Few orders have a customer, few have items, and each of these orders has many of them."""
    joins = [query for query in queries() if query.id == "chain"]
    every = {r.id: 1e5 if r.id == "orders" else 1e3 for r in joins[0].relations}
    known = Statistics(dict.fromkeys(every, 1e5), every_distinct=every)
    asked, explained = {}, {}
    for look_ahead in LookingAhead:
        changes = {"look_ahead": look_ahead, "objective": Objective.SECONDS}
        options = task().options.model_copy(update=changes)
        planned = plan_queries(joins, replace(task(), statistics=known, options=options))
        asked[look_ahead] = [r.out for r in planned.ruleset.probe_rules if r.ahead]
        said = [one["edge"] for one in planned.shown().get("look_ahead", ())]
        assert said == asked[look_ahead]
        explained[look_ahead] = planned.shown()
    assert asked[LookingAhead.NEVER] == []
    assert asked[LookingAhead.AUTO] == ["orders>customers"]
    (one,) = explained[LookingAhead.AUTO]["look_ahead"]
    assert (one["start"], one["probe"], one["asked"]) == ("orders", "customers", "items")
    assert one["keys"] == ["items.order_id = orders.order_id"]
    assert 0 < one["left"] < 0.1
    assert one["saved"] > one["price"] > 0


def test_a_joint_plan() -> None:
    planned = plan_queries(queries(), task())
    assert planned.plan.queries == (QueryId("chain"), QueryId("pair"))
    assert (planned.rejected, planned.fallback) == ({}, "")
    assert planned.ruleset.epoch == 3
    assert planned.explanation is not None
    assert planned.explanation.individual_cost is not None
    assert planned.plan.cost <= planned.explanation.individual_cost


def _failing(
    monkeypatch: pytest.MonkeyPatch, *, on: str = "", jointly: bool = False, error: Exception
) -> None:
    """Make the solver fail on one query, or on several together (unless individually)."""
    solve = optimise

    def fragile(given: Sequence[JoinQuery], statistics: Statistics, options: Options) -> Plan:
        if any(q.id == on for q in given):
            raise error
        if jointly and len(given) > 1 and options.optimizer is not Optimizer.INDIVIDUAL:
            raise error
        return solve(given, statistics, options)

    monkeypatch.setattr(planning, "optimise", fragile)


def test_a_query_that_fails_is_set_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    error = QueryError("cross-product", "no predicate", field="sql", remedy="add one")
    _failing(monkeypatch, on="chain", error=error)
    planned = plan_queries(queries(), task())
    assert planned.plan.queries == (QueryId("pair"),)
    problem = planned.rejected["chain"]
    assert (problem.code, problem.message, problem.field, problem.remedy) == error.args


def test_a_solver_that_crashes_on_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, on="pair", error=MemoryError("too much"))
    planned = plan_queries(queries(), task())
    assert planned.plan.queries == (QueryId("chain"),)
    assert planned.rejected["pair"].code == "planner-failed"
    assert "too much" in planned.rejected["pair"].message


def test_a_solver_that_crashes_on_their_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, jointly=True, error=RuntimeError("solver says no"))
    planned = plan_queries(queries(), task())
    assert planned.plan.optimizer is Optimizer.INDIVIDUAL
    assert planned.rejected == {}
    assert "solver says no" in planned.fallback
    # It is made of plans of single queries.
    assert planned.explanation is not None
    assert planned.explanation.shared_cost is not None


def test_stated_cardinalities_go_before_measured_ones() -> None:
    pair = queries()[0]
    relation = pair.relations[0]
    names = Names([pair])
    stated = assume(Statistics({relation.id: 5.0}), names, {relation.stream: 7.0}, {}, {})
    assert stated.cardinality(relation.id) == 7.0
    assert assume(stated, names, {relation.id: 9.0}, {}, {}).cardinality(relation.id) == 9.0
    assert stated.distinct(relation.id, ("customer_id",)) is None
    assert stated.selectivity(pair.predicates[0]) is None


def limited(**options: object) -> PlanTask:
    given = task()
    return replace(given, options=given.options.model_copy(update=options))


def test_limits_are_kept() -> None:
    free = plan_queries(queries(), limited())
    assert any(not m.is_base for m in free.plan.mirs)
    # An unknown relation counts as 1000 tuples, as wide as the types of its columns.
    widths = relation_widths(queries(), task().streams, {})
    planned = plan_queries(queries(), limited(memory=1000 * sum(widths.values())))
    assert all(m.is_base for m in planned.plan.mirs)
    assert len(planned.plan.copies) == len(widths)
    assert planned.plan.cost > free.plan.cost
    assert (planned.rejected, planned.fallback) == ({}, "")


def test_a_memory_that_is_too_small_is_left_out_and_refuses_nobody() -> None:
    planned = plan_queries(queries(), limited(memory=10.0, copies=1))
    assert planned.rejected == {}
    assert planned.plan.queries == (QueryId("chain"), QueryId("pair"))
    assert "without the memory budget: one copy of every relation takes" in planned.fallback
    # Other limits stay.
    assert max(Counter(c.mir for c in planned.plan.copies).values()) == 1


def test_the_running_plan_stays_where_little_is_gained() -> None:
    running = plan_queries(queries(), task())
    known = as_running(running)
    again = plan_queries(queries(), replace(limited(switching=0.5), running=known))
    assert again.plan.switching == 0
    assert again.rules.decisions.footprint == running.rules.decisions.footprint
    nothing = replace(known, decisions=Decisions(Footprint(frozenset(), frozenset())))
    charged = plan_queries(queries(), replace(limited(switching=0.5), running=nothing))
    assert charged.plan.switching > 0
    off = plan_queries(queries(), replace(limited(switching=0.0), running=nothing))
    assert off.plan == running.plan


def test_the_past_of_what_is_kept_is_decided_and_the_decision_is_remembered() -> None:
    before = plan_queries(queries(), task())
    assert any(not m.is_base for m in before.plan.mirs)
    assert before.shown()["backfill"] == [], "nothing has arrived, so nothing has a past"

    def seen(**options: object) -> PlanTask:
        known = COUNTED
        return replace(limited(**options), statistics=known)

    kept = {c.mir for c in before.plan.copies if "*" in c.mir}
    for setting, chosen in (("always", True), ("never", False)):
        planned = plan_queries(queries(), seen(backfill=Backfilling(setting)))
        assert {b["mir"] for b in planned.shown()["backfill"]} == kept
        assert all(b["chosen"] is chosen for b in planned.shown()["backfill"])
        assert bool(planned.ruleset.backfill_rules) is chosen

    soon = plan_queries(queries(), seen(backfill_horizon=0.0))
    late = plan_queries(queries(), seen(backfill_horizon=1000.0))
    assert not any(b["chosen"] for b in soon.shown()["backfill"])
    assert all(b["chosen"] for b in late.shown()["backfill"])
    again = replace(seen(backfill_horizon=0.0), running=as_running(late))
    assert plan_queries(queries(), again).ruleset.backfill_rules == late.ruleset.backfill_rules


def test_the_explanation_that_is_shown_decides_nothing() -> None:
    """The next plan is the same, whatever the content of the displayed document."""
    known = COUNTED
    given = replace(limited(backfill=Backfilling.ALWAYS, switching=0.5), statistics=known)
    running = as_running(plan_queries(queries(), given))
    shown = running.record.explain
    assert shown["backfill"]
    plans = []
    for explain in (shown, {}, {"backfill": "none", "substreams": 5, "hot_keys": [], "x": shown}):
        record = running.record.model_copy(update={"explain": explain})
        read = EpochRecord.model_validate_json(record.model_dump_json())
        running = RunningEpoch.of(read, running.queries)
        again = plan_queries(queries(), replace(given, epoch=4, running=running))
        plans.append((again.plan, again.ruleset, again.rules.decisions))
    assert plans[1:] == plans[:-1]
    assert plans[0][0].switching == 0
    # Unreadable decisions are ignored in planning, and logged.
    broken = running.record.model_copy(update={"decisions": {"version": 99}})
    unread = RunningEpoch.of(broken, running.queries)
    assert unread.decisions is None
    assert "version 99" in unread.problem


def test_a_solver_that_is_missing_leaves_a_plan_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ortools.py").write_text("raise ModuleNotFoundError('No module named ortools')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    planned = plan_queries(queries(), limited(solver=Solver.CP_SAT))
    assert planned.rejected == {}
    assert planned.plan.queries == (QueryId("chain"), QueryId("pair"))
    assert "install the package ortools" in planned.plan.method
    assert 0 <= planned.plan.bound <= planned.plan.cost
    planned.ruleset.validate()


def test_statistics_that_make_no_sense_cost_only_the_query_that_needs_them() -> None:
    planned = plan_queries(
        queries(), replace(task(), statistics=Statistics({RelationId("items"): -1.0}))
    )
    assert planned.plan.queries == (QueryId("pair"),)
    problem = planned.rejected["chain"]
    assert (problem.code, problem.field) == ("bad-statistic", "statistics")
    assert "items" in problem.message


def test_no_time_at_all_gives_a_plan_with_a_gap() -> None:
    planned = plan_queries(queries(), replace(task(), seconds=0.0))
    assert planned.rejected == {}
    assert "no time" in planned.plan.method
    assert planned.plan.bound <= plan_queries(queries(), task()).plan.cost
