"""Tests of revisions that follow interim measurements written by hand, as the runtime would."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from anabranch_contract.errors import PlannerError
from anabranch_contract.packed import unpack
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.rations import Overload, Ranking, Ration
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.plans.steps import steps_of
from anabranch_contract.protocol.interims import (
    DriftedRate,
    DriftedStep,
    Drifts,
    Interim,
    StepMeasures,
)
from anabranch_contract.protocol.measurements import EdgeStatistics, JoinSample, Snapshot
from anabranch_contract.protocol.progress import Mode, Progress, Rationing
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_runtime.epochs.revisions import check_revision
from anabranch_service.planning.replanning import reviser
from anabranch_service.planning.replanning.revisions import Decision, RevisionInput
from anabranch_service.planning.replanning.revisions import decide as decide_revision
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.worlds.service import Service, eventually, serving

#: An order matches twenty customers and a hundred items.
SNAPSHOT = Snapshot(
    0,
    4,
    4,
    arrivals={"orders": 1000, "customers": 1000, "items": 1000},
    distincts={
        "orders": {"customer_id": 50, "order_id": 10},
        "customers": {"customer_id": 50},
        "items": {"order_id": 10},
    },
)


def planned(service: Service) -> Ruleset:
    """Return the ruleset of epoch 1: orders probe customers first, and no join is kept."""
    service.call("PUT", "/v1/settings", 200, {"memory": 1e6})
    service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    service.plan(-1)
    service.plan(0, next_batch=4, snapshot=SNAPSHOT)
    rules = ruleset(service, RulesetId(1))
    assert first_probe(rules) == "customers"
    return rules


def ruleset(service: Service, name: RulesetId) -> Ruleset:
    return wire.loads(unpack(str(service.redis.get(service.keys.ruleset(name)))))


def first_probe(rules: Ruleset) -> str:
    (probe,) = [p for p in rules.probe_rules if p.edge == "in:orders"]
    return str(probe.mir)


def interim(
    rules: Ruleset, next_batch: int, *, customers: float, items: float, asks: bool = True
) -> Interim:
    """Return a period of one batch; ``customers`` and ``items``: matches of an order."""
    steps: dict[object, StepMeasures] = {}
    for joined, head, target, _ in sorted(set(steps_of(rules).values())):
        per = 1.0
        if "customers" in (*head, *target):
            per *= customers
        if "items" in (*head, *target):
            per *= items
        hits = int(100 * per)
        counts = EdgeStatistics(100, hits, 0.01, 100_000, hits, min(hits, 100))
        steps[joined, head] = StepMeasures(joined, head, target, counts)
    return Interim(
        until=1.79e9 + next_batch,
        seconds=1.0,
        epoch=rules.epoch,
        ruleset_epoch=rules.epoch,
        revision=rules.revision,
        next_batch=next_batch,
        batches=1,
        rulesets=(rules.id,),
        arrivals={"orders": 100, "customers": 100, "items": 100},
        steps=tuple(steps[key] for key in sorted(steps, key=repr)),
        asks=asks,
    )


def ask(service: Service, found: Interim) -> RevisionAnswer:
    """Report a period and return the answer."""
    service.redis.rpush(service.keys.interims, found.dumps())

    def answer() -> RevisionAnswer | None:
        text = service.redis.get(service.keys.revision)
        return None if text is None else RevisionAnswer.loads(str(text))

    def done() -> bool:
        now = answer()
        return now is not None and now.answered >= found.next_batch

    eventually(done, "the period is answered")
    now = answer()
    assert now is not None
    return now


def test_a_cheaper_order_is_published_as_a_revision(shop: Service) -> None:
    rules = planned(shop)
    assert ask(shop, interim(rules, 5, customers=20, items=100)).revision == 0

    answer = ask(shop, interim(rules, 6, customers=200, items=0.01))

    assert (answer.epoch, answer.revision, answer.answered) == (1, 1, 6)
    text = str(shop.redis.get(shop.keys.ruleset(RulesetId(1, 1))))
    assert answer.digest == wire.digest(text)
    revision = wire.loads(text)
    check_revision(rules, revision)
    assert first_probe(revision) == "items"
    (item,) = shop.get("/v1/epochs/1/revisions")["items"]
    assert (item["revision"], item["revises"], item["reason"]) == (1, 0, "cheaper")
    assert item["next_batch"] == 6
    assert 0.1 < item["predicted"] <= 1
    assert item["cost"] < item["running_cost"]
    assert item["baseline"] == "1"
    assert item["measured"] is None
    assert item["digest"] == answer.digest
    # No further epoch was published.
    assert shop.redis.zrange(shop.keys.published, 0, -1) == ["0", "1"]
    lines = shop.http.get("/metrics").text
    assert 'anabranch_revisions_published_total{reason="cheaper"} 1.0' in lines


def revised(service: Service, rules: Ruleset, after: float) -> Ruleset:
    """Publish a revision with three periods before it, and three in which customers have ``after``
    times as many matches.
    """
    service.call("PUT", "/v1/settings", 200, {"revision_gain": 1.0})
    for batch in (5, 6, 7):
        ask(service, interim(rules, batch, customers=100, items=0.01))
    service.call("PUT", "/v1/settings", 200, {"revision_gain": 0.1})
    ask(service, interim(rules, 8, customers=100, items=0.01))
    revision = ruleset(service, RulesetId(1, 1))
    for batch in (9, 10, 11):
        ask(service, interim(revision, batch, customers=100 * after, items=0.01))
    return revision


def test_what_gains_stays_and_is_said(shop: Service) -> None:
    revised(shop, planned(shop), 0.5)

    (item,) = shop.get("/v1/epochs/1/revisions")["items"]
    assert item["measured"]["periods"] >= 2
    assert item["measured"]["gain"] > 0
    assert item["measured"]["after"] < item["measured"]["before"]


def test_what_costs_more_is_taken_back(shop: Service) -> None:
    rules = planned(shop)
    revision = revised(shop, rules, 10)

    items = shop.get("/v1/epochs/1/revisions")["items"]
    assert [(i["reason"], i["revises"]) for i in items] == [("cheaper", 0), ("taken-back", 1)]
    assert items[0]["measured"]["gain"] < 0
    assert items[1]["undoes"] == items[0]["measured"]
    back = ruleset(shop, RulesetId(1, 2))
    check_revision(revision, back)
    assert back.probe_rules == rules.probe_rules
    # The same orders are not tried again, until something has drifted.
    answer = ask(shop, interim(back, 20, customers=100, items=0.01))
    assert (answer.revision, answer.answered) == (2, 20)
    changed = replace(
        interim(back, 21, customers=100, items=0.01), drifted=Drifts((DriftedRate("items", 0.1),))
    )
    assert ask(shop, changed).revision == 3
    assert first_probe(ruleset(shop, RulesetId(1, 3))) == "items"


def test_a_plan_that_costs_more_is_taken_back_across_epochs(settings: ServiceSettings) -> None:
    """The plan of an epoch changed orders; epochs later a row costs twenty times as much."""
    with live(settings) as (service, rules):
        service.call("PATCH", "/v1/settings", 200, {"revision_gain": 1.0})
        ask(service, interim(rules, 5, customers=100, items=0.01, asks=False))
        ask(service, interim(rules, 6, customers=100, items=0.01, asks=False))
        samples = tuple(map(sample, interim(rules, 6, customers=100, items=0.01).steps))
        for epoch in (1, 2):
            found = replace(SNAPSHOT, epoch=epoch, steps=samples)
            service.plan(epoch, next_batch=4 + 2 * epoch, snapshot=found)
        changed, next_one = (ruleset(service, RulesetId(epoch)) for epoch in (3, 4))
        assert first_probe(changed) == first_probe(next_one) == "items"
        service.call("PATCH", "/v1/settings", 200, {"revision_gain": 0.1})
        # A period of both epochs, which have equal orders, and one more.
        both = interim(next_one, 9, customers=2000, items=1, asks=False)
        ask(service, replace(both, rulesets=(changed.id, next_one.id)))
        answer = ask(service, interim(next_one, 10, customers=2000, items=1, asks=False))

        assert (answer.epoch, answer.revision) == (4, 1)
        back = ruleset(service, RulesetId(4, 1))
        check_revision(next_one, back)
        assert back.probe_rules == rules.probe_rules
        (item,) = service.get("/v1/epochs/4/revisions")["items"]
        assert item["reason"] == "taken-back"
        assert item["undoes"]["lost"]
        assert item["undoes"]["periods"] == 2


@pytest.mark.parametrize("given", [{"revision_gain": None}, {"approval": "manual"}])
def test_without_revisions_a_period_is_answered_by_none(
    shop: Service, given: dict[str, object]
) -> None:
    rules = planned(shop)
    shop.call("PUT", "/v1/settings", 200, given)

    answer = ask(shop, interim(rules, 5, customers=100, items=0.01))

    assert (answer.revision, answer.answered) == (0, 5)
    assert shop.get("/v1/epochs/1/revisions") == {"items": []}


def test_a_query_that_is_gone_stops_nothing(shop: Service) -> None:
    rules = planned(shop)
    shop.call("DELETE", "/v1/queries/chain", 202)
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})

    answer = ask(shop, interim(rules, 5, customers=100, items=0.01))

    assert answer.answered == 5
    shop.plan(1)
    assert shop.get("/v1/epochs/2")["queries"] == ["pair"]


@pytest.mark.parametrize("text", ["{", '{"until": "soon"}'])
def test_measurements_that_cannot_be_read_are_skipped(shop: Service, text: str) -> None:
    rules = planned(shop)
    shop.redis.rpush(shop.keys.interims, text)

    assert ask(shop, interim(rules, 5, customers=20, items=100)).answered == 5


def test_measurements_of_an_unknown_epoch_are_answered_by_none(shop: Service) -> None:
    rules = planned(shop)
    found = replace(interim(rules, 5, customers=100, items=0.01), ruleset_epoch=77)

    assert ask(shop, found) == RevisionAnswer(77, 0, "", 5)


def test_the_next_epoch_is_compared_with_the_revision(shop: Service) -> None:
    """The revised orders are kept, and there is no switching charge."""
    rules = planned(shop)
    ask(shop, interim(rules, 5, customers=100, items=0.01))
    revision = ruleset(shop, RulesetId(1, 1))
    seen = interim(revision, 6, customers=100, items=0.01)
    samples = tuple(map(sample, seen.steps))
    shop.plan(1, next_batch=6, snapshot=replace(SNAPSHOT, epoch=1, steps=samples))

    assert first_probe(ruleset(shop, RulesetId(2))) == "items"
    found = shop.get("/v1/epochs/2")
    kept = {step["label"] for step in found["diff"]["steps"]["kept"]}
    assert "from orders: orders probes items" in kept
    new = found["diff"]["totals"]["added"]["cost"] + found["diff"]["totals"]["built"]["cost"]
    assert found["switching_cost"] == pytest.approx(0.1 * new)


def test_revised_orders_are_those_that_go_on_where_plans_wait(shop: Service) -> None:
    rules = planned(shop)
    ask(shop, interim(rules, 5, customers=100, items=0.01))
    shop.call("PATCH", "/v1/settings", 200, {"approval": "manual", "switching": 0})
    shop.plan(1, next_batch=8, snapshot=replace(SNAPSHOT, epoch=1))

    assert first_probe(ruleset(shop, RulesetId(1, 1))) == "items"
    assert first_probe(ruleset(shop, RulesetId(2))) == "items"
    assert shop.get("/v1/plan/held")["cost_after"] < shop.get("/v1/plan/held")["cost_before"]


def sample(step: StepMeasures) -> JoinSample:
    c = step.counts
    return JoinSample(step.joined, step.head, step.target, c.probes, c.pairs, c.hits)


@contextmanager
def live(settings: ServiceSettings) -> Iterator[tuple[Service, Ruleset]]:
    """A live service, and the ruleset that is in force after epoch 0."""
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.call("PUT", "/v1/settings", 200, {"memory": 1e6})
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.plan(-1)
        service.plan(0, next_batch=4, snapshot=SNAPSHOT)
        yield service, ruleset(service, RulesetId(2))


def test_live_the_newest_period_is_answered(settings: ServiceSettings) -> None:
    with live(settings) as (service, rules):
        answer = ask(service, interim(rules, 5, customers=100, items=0.01, asks=False))

        assert (answer.epoch, answer.revision) == (2, 1)


def test_rations_that_cannot_be_planned_hold_no_revision_up(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PlannerError("no-solution", "the solver broke", field="allocation")

    monkeypatch.setattr(reviser, "ration_schedule", fail)
    with live(settings) as (service, rules):
        service.call("PUT", "/v1/settings", 200, {"overload": "ration"})
        service.redis.set(service.keys.rations, "the last")
        answer = ask(service, interim(rules, 5, customers=100, items=0.01, asks=False))

        assert (answer.epoch, answer.revision) == (2, 1)
        assert service.redis.get(service.keys.rations) == "the last"


def test_live_a_decision_is_followed_by_a_rest(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviser, "REST", 1e6)
    with live(settings) as (service, rules):
        ask(service, interim(rules, 5, customers=20, items=100, asks=False))
        later = interim(rules, 6, customers=100, items=0.01, asks=False)
        service.redis.rpush(service.keys.interims, later.dumps())

        # Boundaries are answered meanwhile.
        service.plan(1, next_batch=6, snapshot=replace(SNAPSHOT, epoch=1))

        answer = RevisionAnswer.loads(str(service.redis.get(service.keys.revision)))
        assert answer.answered == 5
        assert service.get("/v1/epochs/2/revisions") == {"items": []}


def test_predicted_and_measured_gains_are_over_rules_that_ran(settings: ServiceSettings) -> None:
    """The next epoch's own rules never run; its revision keeps the running orders."""
    with live(settings) as (service, rules):

        def period(by: Ruleset, batch: int, *others: RulesetId) -> Interim:
            found = interim(by, batch, customers=100, items=0.01, asks=False)
            return replace(found, rulesets=(*others, by.id))

        service.call("PATCH", "/v1/settings", 200, {"revision_gain": 1.0})
        ask(service, period(rules, 5))
        ask(service, period(rules, 6))
        service.call("PATCH", "/v1/settings", 200, {"revision_gain": 0.1})
        ask(service, period(rules, 7))
        revision = ruleset(service, RulesetId(2, 1))
        ask(service, period(revision, 8, rules.id))
        service.plan(1, next_batch=8, snapshot=replace(SNAPSHOT, epoch=1))
        eventually(
            lambda: bool(service.get("/v1/epochs/3/revisions")["items"]), "epoch 3 is revised"
        )
        third = ruleset(service, RulesetId(3, 1))
        assert first_probe(ruleset(service, RulesetId(3))) == "customers"
        assert first_probe(revision) == first_probe(third) == "items"
        # No period is within the revision alone.
        ask(service, period(third, 9, rules.id, revision.id))
        for batch in (10, 11):
            ask(service, period(third, batch))

        (made,) = service.get("/v1/epochs/2/revisions")["items"]
        (carried,) = service.get("/v1/epochs/3/revisions")["items"]
        assert (made["baseline"], carried["baseline"]) == ("2", "2.1")
        assert (carried["revises"], carried["reason"]) == (0, "carried-over")
        assert carried["cost"] == pytest.approx(carried["running_cost"])
        assert carried["predicted"] == pytest.approx(0.0)
        assert carried["measured"] is None
        assert made["predicted"] > 0.3
        gain = made["measured"]
        assert (gain["baseline"], gain["predicted"]) == ("2", pytest.approx(made["predicted"]))
        assert gain["gain"] > 0.3
        assert gain["periods"] == 2


def test_live_a_boundary_does_not_wait_for_a_decision(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs are published while a decision is in progress, and revised by it afterwards."""
    begun, ends, decide = threading.Event(), threading.Event(), decide_revision

    def held(asked: RevisionInput) -> Decision:
        begun.set()
        assert ends.wait(120)
        return decide(asked)

    with live(settings) as (service, rules):
        monkeypatch.setattr(reviser, "decide", held)
        found = interim(rules, 5, customers=100, items=0.01, asks=False)
        service.redis.rpush(service.keys.interims, found.dumps())
        try:
            assert begun.wait(120)
            for epoch in (1, 2):
                service.plan(epoch, next_batch=6, snapshot=replace(SNAPSHOT, epoch=epoch))
            assert service.redis.get(service.keys.revision) is None
        finally:
            ends.set()

        def revised() -> bool:
            text = service.redis.get(service.keys.revision)
            answer = None if text is None else RevisionAnswer.loads(str(text))
            return answer is not None and all(answer.of_epoch(n) is not None for n in (2, 3, 4))

        eventually(revised, "all epochs are revised")
        for epoch in (2, 3, 4):
            assert first_probe(ruleset(service, RulesetId(epoch, 1))) == "items"


def test_in_a_replay_only_what_asks_is_answered(shop: Service) -> None:
    rules = planned(shop)
    found = interim(rules, 5, customers=100, items=0.01, asks=False)
    shop.redis.rpush(shop.keys.interims, found.dumps())

    ask(shop, interim(rules, 6, customers=20, items=100))

    assert shop.get("/v1/epochs/1/revisions") == {"items": []}


def test_revisions_go_with_their_epoch(settings: ServiceSettings) -> None:
    with serving(settings.changed(kept_epochs=100)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        rules = planned(service)
        ask(service, interim(rules, 5, customers=100, items=0.01))
        keys = service.keys
        assert service.redis.exists(keys.ruleset(RulesetId(1, 1)), f"{keys.namespace}:revisions:1")
        for epoch in range(1, 102):
            service.boundary(epoch)
        service.answered()

        assert not service.redis.exists(
            keys.ruleset(RulesetId(1, 1)), f"{keys.namespace}:revisions:1"
        )
        assert service.get("/v1/epochs/1/revisions", 404)["code"] == "unknown-epoch"


def test_a_period_that_ended_early_is_answered_by_what_came_with_the_drift(shop: Service) -> None:
    """Ten periods before the drift have little weight then, and the revision names the drift."""
    rules = planned(shop)
    for batch in range(5, 15):
        assert ask(shop, interim(rules, batch, customers=20, items=100)).revision == 0
    changed = interim(rules, 15, customers=100, items=0.01)
    assert ask(shop, changed).revision == 0

    step = changed.steps[0]
    names = step.joined, step.head, step.target
    drift = Drifts((DriftedRate("items", 0.1),), (DriftedStep(*names, "matches", 100.0, 0.01),))
    early = replace(changed, next_batch=16, drifted=drift)
    assert ask(shop, early).revision == 1

    assert first_probe(ruleset(shop, RulesetId(1, 1))) == "items"
    (item,) = shop.get("/v1/epochs/1/revisions")["items"]
    assert item["reason"] == "cheaper"
    assert item["drifted"] == list(drift.shown())
    assert item["drifted"][0] == "items: 0.1 times the arrivals"
    assert item["drifted"][1].endswith("matches per probe from 100 to 0.01")


def test_under_rations_plans_are_priced_for_what_is_probed_with(settings: ServiceSettings) -> None:
    """An intermediate result that pays if all tuples probe does not pay for a few of them."""
    arrivals = {"orders": 300, "items": 300, "customers": 3000}
    distincts = {name: dict.fromkeys(keys, 10.0) for name, keys in SNAPSHOT.distincts.items()}
    ten = replace(SNAPSHOT, arrivals=arrivals, distincts=distincts)
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        given = {"objective": "tuples", "overload": "ration"}
        service.call("PUT", "/v1/settings", 200, given)
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.plan(-1)
        service.plan(0, next_batch=4, snapshot=ten)
        rules = ruleset(service, RulesetId(2))
        kept = [s.id for s in rules.stores if len(s.members) > 1]
        assert len(kept) == 1

        def period(batch: int, *, rationed: bool) -> Interim:
            found = interim(rules, batch, customers=10, items=100, asks=False)
            return replace(found, arrivals=arrivals, rationed=rationed)

        query = rules.queries[0]
        ranking = Ranking((("customer_id", "bigint"),), by_batch=True)
        rations = tuple(Ration(query.id, label, 0.01, ranking) for _, label, _ in query.members)
        shown = Rationing(Overload.RATION, 0.01, overloaded=True, rations=rations)
        progress = Progress("running", committed=4, epoch=2, ruleset_epoch=2, rationing=shown)
        service.redis.set(service.keys.runtime, progress.dumps())
        for batch in (5, 6):
            ask(service, period(batch, rationed=False))
        # One period may have been a peak.
        ask(service, period(7, rationed=True))
        assert service.get("/v1/epochs/2/revisions")["items"] == []
        ask(service, period(8, rationed=True))
        (item,) = service.get("/v1/epochs/2/revisions")["items"]
        assert item["rationed"]
        assert item["closed"] == kept
        assert item["predicted"] > 0.3
        check_revision(rules, ruleset(service, RulesetId(2, 1)))
