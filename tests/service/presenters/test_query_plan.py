"""Tests of one query's part of the plan, from rules and measurements written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.plans.ahead import askable
from anabranch_contract.protocol.intake import InputProgress, StreamIntake
from anabranch_contract.protocol.progress import Progress, Resources
from anabranch_contract.protocol.state_report import StateReport
from anabranch_contract.rest.planning.query_plan import QueryPlanOut
from anabranch_service.planning.rations import flows, kept_shares, result_seconds, seconds_of
from anabranch_service.presenters.query_plan import MeasuredFlows, query_plan_out
from anabranch_service.registry.describe import describe
from tests.service.planning.test_rations import JOINED, THREE, TWO, period, rules_of
from tests.service.routes.test_state import report, store


def plan_of(
    *sql: str,
    name: str = "q0",
    state: StateReport | None = None,
    progress: Progress | None = None,
    asking: bool = False,
) -> QueryPlanOut:
    rules, queries = rules_of(*sql)
    if asking:
        known = askable(rules)
        probes = (replace(r, ahead=known.get(r.out, ())) for r in rules.probe_rules)
        rules = replace(rules, probe_rules=tuple(probes))
    periods = [period(rules)]
    found = flows(rules, periods)
    meanings = {str(q.id): describe(q, JOINED) for q in queries}
    measured = MeasuredFlows(
        found,
        result_seconds(periods),
        seconds_of(rules, periods, found, kept_shares(rules, periods)),
        measured=True,
    )
    return query_plan_out(rules, name, meanings, measured, state, progress)


def test_every_alias_has_a_path_with_readable_steps() -> None:
    plan = plan_of(THREE)
    own = [path for path in plan.paths if path.keeps is None]
    assert [(path.alias, path.label) for path in own] == [("r", "r"), ("s", "s"), ("t", "t")]
    for path in own:
        brought = [alias for step in path.steps for alias in step.aliases]
        assert sorted([path.alias, *brought]) == ["r", "s", "t"]
        assert path.tuples_per_second == pytest.approx(100)
        assert not any("@" in step.label for step in path.steps)


@pytest.mark.parametrize("sql", [(TWO,), (TWO, TWO), (THREE, TWO), (THREE, THREE, TWO)])
def test_the_parts_of_all_queries_are_the_whole(sql: tuple[str, ...]) -> None:
    parts = [plan_of(*sql, name=f"q{number}") for number in range(len(sql))]
    assert sum(part.cpu for part in parts) == pytest.approx(parts[0].cpu_of_plan)


def test_a_shared_step_names_the_others() -> None:
    plan = plan_of(TWO, TWO)
    assert {name for path in plan.paths for step in path.steps for name in step.shared} == {"q1"}
    alone = plan_of(TWO)
    assert not any(step.shared for path in alone.paths for step in path.steps)


def test_a_step_names_what_it_asks_for() -> None:
    paths = plan_of(THREE, asking=True).paths
    asked = {(path.alias, step.label): step.asks for path in paths for step in path.steps}
    assert any(asked.values())
    for (_, label), names in asked.items():
        assert set(names) <= {"r", "s", "t"} - {label}
    assert not any(step.asks for path in plan_of(THREE).paths for step in path.steps)


def test_a_store_counts_in_equal_parts_for_its_readers() -> None:
    held = report(store("r", 20), store("s", 20))
    plan = plan_of(TWO, name="q0", state=held)
    assert plan.stores == []
    assert plan.state_of_plan == 2000


def test_waiting_rows_are_those_of_its_own_streams() -> None:
    intake = {"r": StreamIntake(3, 1.5), "t": StreamIntake(100, 60.0)}
    plan = plan_of(
        TWO,
        progress=Progress(
            "running", input=InputProgress(intake), resources=Resources(batch_seconds=0.5)
        ),
    )
    assert (plan.waiting_tuples, plan.waiting_seconds, plan.batch_seconds) == (3, 1.5, 0.5)
    assert plan_of(TWO).waiting_seconds is None
