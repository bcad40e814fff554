"""Planning when optimisers fail: one query never takes others down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_planner.errors import QueryError
from anabranch_planner.model import QueryId
from anabranch_planner.optimiser.optimise import optimise
from anabranch_planner.plan import Objective, Optimizer
from anabranch_planner.statistics import NoStatistics
from anabranch_service import planning
from anabranch_service.normalise import parse, usable_streams
from anabranch_service.planning import StatedStatistics, Task, plan_queries
from anabranch_service.records import PlanningRecord, StreamRecord
from anabranch_service.routes.streams import read_stream
from anabranch_service.wire import StreamIn
from tests.service.conftest import CHAIN, PAIR, STREAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from anabranch_planner.model import JoinQuery
    from anabranch_planner.plan import Plan

RECORDS: dict[str, StreamRecord] = {
    record.name: record for record in (read_stream(StreamIn.model_validate(s)) for s in STREAMS)
}


def task() -> Task:
    return Task(
        streams=usable_streams(RECORDS),
        statistics=NoStatistics(),
        options=PlanningRecord(
            optimizer=Optimizer.CLASH, objective=Objective.DEFAULT, parallelism=2
        ),
        epoch=3,
        sinks={},
        seconds=5.0,
    )


def queries() -> list[JoinQuery]:
    streams = usable_streams(RECORDS)
    return [
        parse(name, streams, sql=sql, query=None, window=None)
        for name, sql in (("pair", PAIR), ("chain", CHAIN))
    ]


def test_a_joint_plan() -> None:
    planned = plan_queries(queries(), task())
    assert planned.plan.queries == (QueryId("chain"), QueryId("pair"))
    assert (planned.rejected, planned.fallback) == ({}, "")
    assert planned.ruleset.epoch == 3
    assert planned.individual_cost is not None
    assert planned.plan.cost <= planned.individual_cost


def _failing(
    monkeypatch: pytest.MonkeyPatch, *, on: str = "", jointly: bool = False, error: Exception
) -> None:
    """Make the solver fail on one query, or on several at once (unless individually)."""
    solve = optimise

    def fragile(given: Sequence[JoinQuery], *args: object, **options: object) -> Plan:
        if any(q.id == on for q in given):
            raise error
        if jointly and len(given) > 1 and options["optimizer"] is not Optimizer.INDIVIDUAL:
            raise error
        return solve(given, *args, **options)  # type: ignore[arg-type]

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
    assert planned.shared_cost is None


def test_stated_cardinalities_go_before_measured_ones() -> None:
    pair = queries()[0]
    relation = pair.relations[0]
    stated = StatedStatistics(NoStatistics(), {relation.stream: 7.0}, {relation.id: "orders"})
    assert stated.cardinality(relation.id) == (7.0 if relation.stream == "orders" else None)
    assert StatedStatistics(stated, {relation.id: 9.0}).cardinality(relation.id) == 9.0
    assert stated.distinct(relation.id, ("customer_id",)) is None
    assert stated.selectivity(pair.predicates[0]) is None
