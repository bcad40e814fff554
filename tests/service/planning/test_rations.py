"""Tests of schedules of rations, from measurements written by hand as the runtime would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.plan import Objective, Optimizer
from anabranch_contract.plans.rations import Allocation, Overload, RationSchedule, shares_at
from anabranch_contract.plans.ruleset import Ruleset, RulesetId, arrival_edge
from anabranch_contract.plans.steps import steps_of
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.interims import Interim, StepMeasures
from anabranch_contract.protocol.measurements import EdgeStatistics, Snapshot, Writes
from anabranch_contract.protocol.progress import Mode, Progress, Rationing
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_contract.rest.slo import Slo
from anabranch_planner.allocation.jaqpot import input_paths
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_service.planning import loop
from anabranch_service.planning.rations import (
    FADE,
    flows,
    kept_shares,
    may_ration,
    measured_forest,
    ration_schedule,
)
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, STREAMS
from tests.support.worlds.records import put
from tests.support.worlds.service import Service, eventually, serving

_LONG = parse_type("bigint")
JOINED = {
    name: Stream(StreamName(name), tuple((c, _LONG) for c in columns))
    for name, columns in {"r": "ax", "s": "ab", "t": "bc"}.items()
}
OPTIONS = PlanningSettings(
    optimizer=Optimizer.CLASH,
    objective=Objective.TUPLES,
    parallelism=1,
    overload=Overload.RATION,
    allocation=Allocation.RESULTS,
    latency_goal=3.0,
)


def rules_of(*sql: str) -> tuple[Ruleset, tuple[JoinQuery, ...]]:
    """Return queries ``q0``, ``q1``, ... and their rules, without intermediate results."""
    queries = tuple(parse_sql(f"q{n}", text, JOINED) for n, text in enumerate(sql))
    plan = optimise(queries, Statistics(), Options(optimizer=Optimizer.SHARED))
    streams = tuple(JOINED.values())
    return compile_ruleset(plan, queries, streams, epoch=4, parallelism=1, sinks={}), queries


def period(
    rules: Ruleset,
    number: int = 0,
    *,
    made: float = 2.0,
    seconds: float = 0.01,
    kept: float = 1.0,
    arrivals: int = 1000,
) -> Interim:
    """Return a period of ten seconds in which each tuple of a step makes ``made`` results and takes
    ``seconds``; a share ``kept`` of all tuples probed.
    """
    probes = int(1000 * kept)
    counts = EdgeStatistics(
        probes, int(probes * made), probes * seconds, made=int(probes * made), calls=1
    )
    return Interim(
        until=10.0 * number,
        seconds=10.0,
        epoch=rules.epoch,
        ruleset_epoch=rules.epoch,
        next_batch=number + 1,
        batches=1,
        arrivals={str(r.id): arrivals for r in rules.relations},
        steps=tuple(
            StepMeasures.of(step, counts) for step in sorted(set(steps_of(rules).values()))
        ),
        results=Writes(1, 100, 0.05),
    )


TWO = "SELECT r.x FROM r JOIN s ON r.a = s.a"
THREE = "SELECT r.x FROM r JOIN s ON r.a = s.a JOIN t ON s.b = t.b"


def test_flows_multiply_along_a_path() -> None:
    rules, _ = rules_of(THREE)
    found = flows(rules, [period(rules)])
    for relation in rules.relations:
        assert found[arrival_edge(relation.id)].tuples == 100
    for rule in rules.probe_rules:
        sent = found[rule.edge].tuples
        assert found[rule.out].tuples == pytest.approx(2 * sent)
        assert found[rule.out].seconds == pytest.approx(0.01 * sent)


def test_what_was_withheld_is_in_the_flows() -> None:
    rules, _ = rules_of(THREE)
    assert flows(rules, [period(rules, kept=0.1)]) == flows(rules, [period(rules)])


def test_newer_periods_count_for_more() -> None:
    rules, _ = rules_of(TWO)
    both = flows(rules, [period(rules, made=1.0), period(rules, made=3.0, arrivals=3000)])
    rate = (FADE * 100 + 300) / (FADE + 1)
    assert both[arrival_edge(rules.relations[0].id)].tuples == pytest.approx(rate)
    made = (FADE * 1 + 3) / (FADE + 1)
    assert both[rules.probe_rules[0].out].tuples == pytest.approx(rate * made)


def test_a_step_that_was_never_measured_is_like_the_others() -> None:
    rules, _ = rules_of(THREE)
    whole = period(rules)
    missing, *others = whole.steps
    found = flows(rules, [replace(whole, steps=tuple(others))])
    for rule in rules.probe_rules:
        if steps_of(rules)[rule.out] == missing.step:
            assert found[rule.out].tuples == found[rule.edge].tuples
        assert found[rule.out].seconds == pytest.approx(0.01 * found[rule.edge].tuples)
    nothing = flows(rules, [replace(whole, steps=())])
    assert {flow.seconds for flow in nothing.values()} == {0.0}


def test_a_schedule_has_the_goals_of_plain_queries() -> None:
    rules, queries = rules_of(TWO, THREE)
    found = ration_schedule(rules, queries, {}, [period(rules)], OPTIONS)
    assert found is not None
    assert (found.epoch, found.revision, found.latency) == (4, 0, 3.0)
    goals = {(g.query, g.start) for g in found.goals}
    assert goals == {(q.id, m.label) for q in queries for m in q.members}
    assert found.rationable == pytest.approx(1.0)
    assert found.points[-1].shares == (1.0,) * len(goals)
    assert found.rations(1.0) == ()
    assert 0 < len(found.rations(0.5)) < len(goals)


def test_greater_priority_comes_first() -> None:
    rules, queries = rules_of(TWO, THREE)
    given = {"q1": 5}
    found = ration_schedule(rules, queries, given, [period(rules)], OPTIONS)
    assert found is not None
    first = next(p for p in found.points if 1.0 in p.shares)
    assert {g.query for g, p in zip(found.goals, first.shares, strict=True) if p == 1.0} == {"q1"}


def test_one_query_that_takes_everything_pays_for_its_own_results() -> None:
    """Thirty filtered queries and one without a condition share a store, and so their steps. The
    one has nearly all results: with a lower priority it alone is rationed.
    """
    conditions = {f"q{n}": f" WHERE r.x = {n}" for n in range(30)} | {"all": ""}
    queries = tuple(
        parse_sql(name, f"SELECT r.x FROM r JOIN s ON r.a = s.a{text}", JOINED, relaxed={"r": ()})
        for name, text in conditions.items()
    )
    plan = optimise(queries, Statistics(), Options(optimizer=Optimizer.SHARED))
    streams = tuple(JOINED.values())
    rules = compile_ruleset(plan, queries, streams, epoch=4, parallelism=1, sinks={})
    assert len(rules.probe_rules) == 2
    emitted = {"all": 4000} | {f"q{n}": 5 for n in range(20)}
    # Two steps of 1,000 tuples take 20 s, the results 60 s.
    counted = replace(period(rules), results=Writes(1, 4150, 60.0), emitted=emitted)
    kept = {str(q): share for q, share in kept_shares(rules, [counted]).items()}
    assert kept["all"] == 1.0
    assert kept["q3"] == pytest.approx(5 / 4000)
    # Unnamed queries share the rest.
    assert kept["q25"] == pytest.approx(50 / 10 / 4000)
    found = ration_schedule(rules, queries, {"all": -1}, [counted], OPTIONS)
    assert found is not None
    for budget in (0.4, 0.6, 0.9):
        assert {r.query for r in found.rations(budget)} == {"all"}
    # Without these counts, all queries seem to have equally many results.
    uncounted = replace(counted, emitted={})
    blind = ration_schedule(rules, queries, {"all": -1}, [uncounted], OPTIONS)
    assert blind is not None
    assert len({r.query for r in blind.rations(0.6)}) > 20


def test_what_queries_need_is_in_the_schedule() -> None:
    rules, queries = rules_of(TWO, THREE)
    slos = {
        "q0": Slo(completeness=0.9, latency="1 second 500 milliseconds"),
        "q1": Slo(completeness=0.5, latency="1 hour"),
    }
    found = ration_schedule(rules, queries, {}, [period(rules)], OPTIONS, slos)
    assert found is not None
    assert found.latency == 1.5
    assert [(f.query, f.completeness) for f in found.floors] == [("q0", 0.9), ("q1", 0.5)]
    needs = found.floors[0].needs
    assert needs == found.floors[1].needs
    # All goals of a query yield equally much here, so the mean ration is the completeness.
    for budget, part in ((needs, 1.0), (needs / 2, 0.5)):
        shares = {(r.query, r.start): r.share for r in found.rations(budget)}
        for query, floor in (("q0", 0.9), ("q1", 0.5)):
            own = [shares.get((g.query, g.start), 1.0) for g in found.goals if g.query == query]
            assert sum(own) / len(own) >= part * floor - 1e-6


def test_a_query_that_goes_by_keys_has_one_ration() -> None:
    rules, queries = rules_of("SELECT r.x FROM r JOIN r q ON r.a = q.a", TWO)
    found = ration_schedule(rules, queries, {}, [period(rules)], OPTIONS)
    assert found is not None
    assert not any(g.ranking.by_batch for g in found.goals if g.query == "q0")
    for budget in (0.1, 0.3, 0.5, 0.7, 0.9):
        shares = {(r.query, r.start): r.share for r in found.rations(budget)}
        own = [shares.get((g.query, g.start), 1.0) for g in found.goals if g.query == "q0"]
        assert max(own) - min(own) <= 1e-6


def test_without_measurements_there_is_none() -> None:
    rules, queries = rules_of(TWO)
    assert ration_schedule(rules, queries, {}, [], OPTIONS) is None
    unmeasured = replace(period(rules), steps=())
    assert ration_schedule(rules, queries, {}, [unmeasured], OPTIONS) is None


def test_jaqpot_fills_measured_paths_by_productivity() -> None:
    rules, queries = rules_of(TWO, THREE)
    options = OPTIONS.model_copy(update={"allocation": Allocation.JAQPOT})
    found, best = (
        ration_schedule(rules, queries, {}, [period(rules)], one) for one in (options, OPTIONS)
    )
    assert found is not None
    assert best is not None
    assert found.allocation is Allocation.JAQPOT
    rationed = {(goal.query, goal.start) for goal in found.goals}
    forest, _ = measured_forest(rules, rationed, [period(rules)])
    first = input_paths(forest, sorted(forest.outputs))[0]
    shares = found.points[1].shares
    assert all(shares[goal] == 1 for goal in first)
    for budget in (0.1, 0.4, 0.7):
        kept, most = (forest.output(shares_at(one.points, budget)) for one in (found, best))
        assert kept <= most * (1 + 1e-9)


def test_the_policy_decides_whether_a_schedule_is_published(settings: ServiceSettings) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.call("PUT", "/v1/settings", 200, {"memory": 1e6, "revision_gain": None})
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.plan(-1)
        service.plan(0, next_batch=1, snapshot=Snapshot(0, 1, 1))
        text = str(service.redis.get(service.keys.ruleset(RulesetId(0))))
        rules = wire.loads(text)

        def schedule() -> RationSchedule | None:
            found = service.redis.get(service.keys.rations)
            return None if found is None else RationSchedule.loads(str(found))

        report(service, period(rules, 1))
        assert schedule() is None
        given = {"overload": "ration", "latency_goal": 4.0, "capacity": 0.5}
        service.call("PUT", "/v1/settings", 200, given)
        report(service, period(rules, 2))
        found = schedule()
        assert found is not None
        assert (found.latency, found.budget, found.allocation) == (4.0, 0.5, Allocation.FAIR)
        assert {g.query for g in found.goals} == {"chain"}
        service.call("PUT", "/v1/settings", 200, {"overload": "wait"})
        report(service, period(rules, 3))
        eventually(lambda: schedule() is None, "the schedule is withdrawn")


@pytest.mark.parametrize("allocation", ["results", "jaqpot"])
def test_the_first_epoch_is_published_with_an_expected_schedule(
    settings: ServiceSettings, allocation: str
) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        given = {"overload": "ration", "latency_goal": 4.0, "memory": 1e6}
        given["allocation"] = allocation
        service.call("PUT", "/v1/settings", 200, given)
        floor = {"completeness": 0.25, "latency": "3 seconds"}
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN, "slo": floor})
        service.plan(-1)
        first = RationSchedule.loads(str(service.redis.get(service.keys.rations)))
        assert (first.epoch, first.revision, first.latency) == (0, 0, 3.0)
        assert first.allocation == allocation
        assert {g.query for g in first.goals} == {"chain"}
        assert 0 < first.rationable <= 1
        assert [f.query for f in first.floors] == ["chain"]
        assert first.points[-1].shares == (1.0,) * len(first.goals)

        # Nothing is measured yet, so the schedule stays; then it is replaced, though no epoch has
        # ended.
        rules = wire.loads(str(service.redis.get(service.keys.ruleset(RulesetId(0)))))
        measured = period(rules, 1, made=5.0)
        report(service, replace(measured, steps=()))
        assert RationSchedule.loads(str(service.redis.get(service.keys.rations))) == first
        report(service, replace(measured, next_batch=3))
        second = RationSchedule.loads(str(service.redis.get(service.keys.rations)))
        assert second.goals == first.goals
        assert second != first


def test_in_a_replay_no_schedule_is_expected(shop: Service) -> None:
    shop.call("PUT", "/v1/settings", 200, {"overload": "ration", "capacity": 0.5})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    assert shop.redis.get(shop.keys.rations) is None


def test_a_schedule_that_cannot_be_expected_holds_no_epoch_up(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PlannerError("no-solution", "the solver broke", field="allocation")

    monkeypatch.setattr(loop, "expected_schedule", fail)
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.call("PUT", "/v1/settings", 200, {"overload": "ration", "memory": 1e6})
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.plan(-1)
        assert service.redis.get(service.keys.rations) is None
        assert service.redis.get(service.keys.ruleset(RulesetId(0))) is not None


def test_a_replay_is_rationed_by_a_stated_capacity_only() -> None:
    def may(mode: Mode, **given: object) -> bool:
        return may_ration(OPTIONS.model_copy(update=given), mode)

    for policy in (Overload.RATION, Overload.CATCH_UP):
        assert may(Mode.LIVE, overload=policy, capacity=None)
        assert may(Mode.STEP, overload=policy, capacity=0.5)
        assert not may(Mode.STEP, overload=policy, capacity=None)
    assert not may(Mode.LIVE, overload=Overload.WAIT, capacity=0.5)


def report(service: Service, found: Interim) -> None:
    """Report a period and wait until it has been processed."""
    service.redis.rpush(service.keys.interims, found.dumps())

    def answered() -> bool:
        text = service.redis.get(service.keys.revision)
        return text is not None and f'"answered":{found.next_batch}' in str(text)

    eventually(answered, "the period is answered")


def test_what_overload_withholds_is_shown(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    assert shop.get("/v1/queries/chain")["rationed"] is None
    rules = wire.loads(str(shop.redis.get(shop.keys.ruleset(RulesetId(0)))))
    queries = [parse_chain(rules)]
    found = ration_schedule(rules, queries, {}, [period(rules)], OPTIONS)
    assert found is not None
    rations = found.rations(0.5)
    rationing = Rationing(
        Overload.RATION, 0.5, 1.7, overloaded=True, latency=2.0, rations=rations, owed=3
    )
    progress = Progress("running", committed=9, epoch=0, ruleset_epoch=0, rationing=rationing)
    shop.redis.set(shop.keys.runtime, progress.dumps())
    activation = Activation(0, {}, results=30, withheld=10.0, blind=2)
    put(shop.redis, shop.keys, "activations", "chain", activation.dumps())

    shown = shop.get("/v1/queries/chain")["rationed"]
    assert (shown["withheld"], shown["completeness"], shown["blind"]) == (10.0, 0.75, 2)
    assert shown["shares"]
    assert set(shown["shares"]) <= {"c", "o", "i"}
    runtime = shop.get("/v1/epochs/current")["runtime"]["rationing"]
    assert runtime == {
        "policy": "ration",
        "budget": 0.5,
        "needed": 1.7,
        "overloaded": True,
        "latency": 2.0,
        "owed": 3,
    }
    lines = shop.http.get("/metrics").text
    assert "anabranch_ration_budget 0.5" in lines
    assert "anabranch_owed_batches 3.0" in lines
    assert "anabranch_load 1.7" in lines


def test_a_floor_that_the_budget_breaks_is_flagged(shop: Service) -> None:
    given = {"id": "chain", "sql": CHAIN, "slo": {"completeness": 0.8}}
    shop.post("/v1/queries", given)
    shop.plan(-1)
    rules = wire.loads(str(shop.redis.get(shop.keys.ruleset(RulesetId(0)))))
    slos = {"chain": Slo(completeness=0.8)}
    found = ration_schedule(rules, [parse_chain(rules)], {}, [period(rules)], OPTIONS, slos)
    assert found is not None
    shop.redis.set(shop.keys.rations, found.dumps())
    needs = found.floors[0].needs
    for budget, broken in ((needs, False), (needs - 0.01, True)):
        rationing = Rationing(Overload.RATION, budget, 1.7, overloaded=True, latency=2.0)
        progress = Progress("running", committed=9, epoch=0, ruleset_epoch=0, rationing=rationing)
        shop.redis.set(shop.keys.runtime, progress.dumps())
        shown = shop.get("/v1/queries/chain")["rationed"]
        assert (shown["floor"], shown["floor_broken"], shown["withheld"]) == (0.8, broken, 0.0)
        assert shown["floor_needs"] == pytest.approx(needs)
        assert shop.get("/v1/queries")["items"][0]["rationed"] == shown
        lines = shop.http.get("/metrics").text
        assert f'anabranch_floor_broken{{query="chain"}} {float(broken)}' in lines
        assert 'anabranch_floor_needs{query="chain"}' in lines


def parse_chain(rules: Ruleset) -> JoinQuery:
    """Return the chain query over the streams of ``rules``."""
    return parse_sql("chain", CHAIN, {str(s.name): s for s in rules.streams})
