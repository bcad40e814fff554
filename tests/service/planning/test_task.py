"""Tests of plans with substreams, as the service publishes and shows them."""

from __future__ import annotations

from random import Random

import pytest

from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_contract.rest.normalised import AliasInfo, NormalisedInfo
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_service.planning.epoch import PlannedEpoch
from anabranch_service.planning.rations import flows
from anabranch_service.planning.task import PlanTask, cost_model
from anabranch_service.presenters.query_plan import MeasuredFlows, query_plan_out
from tests.planner.skew.test_substreams import STAR, skewed
from tests.support.cases.planned import as_running, plan_queries

STREAMS = {
    name: Stream(StreamName(name), (("a", parse_type("bigint")),), None, None) for name in "RSTU"
}


def task(substreams: int) -> PlanTask:
    options = PlanningSettings(
        optimizer=Optimizer.CLASH,
        objective=Objective.TUPLES,
        parallelism=1,
        substreams=substreams,
    )
    return PlanTask(
        queries=(), streams=STREAMS, statistics=skewed(Random(4)), options=options, seconds=5.0
    )


def planned(substreams: int = 3) -> PlannedEpoch:
    found = plan_queries([STAR], task(substreams))
    assert (found.rejected, found.fallback) == ({}, "")
    return found


def test_a_plan_that_tells_tuples_apart_costs_less_and_says_so() -> None:
    alike, apart = planned(1), planned(3)
    assert alike.ruleset.substreams == ()
    assert alike.shown()["substreams"] == []
    assert apart.ruleset.substreams
    assert apart.plan.cost < alike.plan.cost
    assert wire.loads(wire.dumps(apart.ruleset)) == apart.ruleset
    # The individual plans in the comparison have no substreams.
    assert apart.explanation is not None
    assert apart.explanation.individual_cost == pytest.approx(alike.plan.cost)
    assert as_running(apart).decisions == apart.rules.decisions
    assert apart.rules.decisions.substreams == apart.plan.substreams


def test_its_price_is_that_of_its_own_model() -> None:
    found, asked = planned(), task(3)
    model = cost_model(asked, [STAR], 1, found.rules.decisions.substreams)
    assert found.explanation is not None
    assert found.explanation.reasons is not None
    assert model.substreams_of(found.ruleset.substreams[0].start) > 1


def test_flows_divide_a_start_by_expected_shares() -> None:
    rules = planned().ruleset
    function = rules.substreams[0]
    assert sum(function.shares) == pytest.approx(1, abs=1e-3)
    assert function.share(range(function.count)) == pytest.approx(1, abs=1e-3)
    unknown = wire.Substreams(
        function.start, function.attribute, function.type, function.groups, function.others
    )
    assert unknown.share([0]) == pytest.approx(1 / unknown.count)
    found = flows(rules, [])
    assert set(found) >= {rule.out for rule in rules.probe_rules}


def test_a_querys_paths_say_whose_they_are() -> None:
    found = planned()
    rules = found.ruleset
    aliases = [
        AliasInfo(alias=name.lower(), stream=name, relation=name, label=name) for name in "RSTU"
    ]
    meaning = NormalisedInfo(
        aliases=aliases, classes=[], bounds=[], unbounded=[], residuals=[], output=[], notes=[]
    )
    measured = MeasuredFlows(flows(rules, []), 0.0, 0.0, measured=False)
    out = query_plan_out(
        rules, STAR.id, {STAR.id: meaning}, measured, None, None, found.shown()["substreams"]
    )
    assert [one.alias for one in out.divided] == [f.start.lower() for f in rules.substreams]
    for one in out.divided:
        taken = [n for p in out.paths if p.alias == one.alias for n in p.substreams]
        assert sorted(taken) == [s.number for s in one.substreams]
        assert sum(s.share for s in one.substreams) == pytest.approx(1)
    others = {p.alias for p in out.paths} - {one.alias for one in out.divided}
    assert all(p.substreams == [] for p in out.paths if p.alias in others)
    # An explanation with other substreams is not shown.
    stale = query_plan_out(
        planned(1).ruleset,
        STAR.id,
        {STAR.id: meaning},
        MeasuredFlows(flows(planned(1).ruleset, []), 0.0, 0.0, measured=False),
        None,
        None,
        found.shown()["substreams"],
    )
    assert stale.divided == []
