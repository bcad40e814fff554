"""Tests of plans that wait for approval: the rules published meanwhile, and the effect of each
decision.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.outer_joins import registered
from anabranch_planner.replan.remaining import choices
from anabranch_planner.replan.running import plan_of
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms, usable_streams
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.records import remove
from tests.support.worlds.service import Service, serving

ITEMS = "SELECT o.order_id FROM orders o JOIN items i ON i.order_id = o.order_id WHERE i.part > 3"


COUNT = {"format": "count"}


def manual(service: Service) -> None:
    service.call("PATCH", "/v1/settings", 200, {"approval": "manual"})


def ruleset(service: Service, epoch: int) -> Ruleset:
    found = wire.loads(str(service.redis.get(service.keys.ruleset(epoch))))
    found.validate()
    return found


def names(service: Service, epoch: int) -> list[str]:
    return [str(q.id) for q in ruleset(service, epoch).queries]


def held(service: Service) -> dict[str, Any]:
    return service.get("/v1/plan/held")


def say(service: Service, word: str, version: str, status: int = 200) -> dict[str, Any]:
    answer = service.http.post(f"/v1/plan/held:{word}", headers={"If-Match": version})
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    return document


def measured(epoch: int, orders: int, customers: int, items: int) -> Snapshot:
    sizes = {"orders": orders, "customers": customers, "items": items}
    distincts: dict[str, dict[str, float]] = {
        "orders": {"customer_id": min(orders, customers), "order_id": orders},
        "customers": {"customer_id": customers},
        "items": {"order_id": min(orders, items)},
    }
    return Snapshot(epoch, 4 * epoch + 4, 4, arrivals=sizes, distincts=distincts)


def test_a_new_query_waits_until_its_plan_is_approved(shop: Service) -> None:
    manual(shop)
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    assert names(shop, 0) == []
    query = shop.get("/v1/queries/pair")
    assert (query["status"], query["waits_because"]) == ("pending", "its plan waits for approval")
    found = held(shop)
    assert (found["state"], found["waiting"], found["epoch"]) == ("waiting", ["pair"], 0)
    assert found["change"]["queries_added"] == ["pair"]
    assert found["change"]["diff"]["totals"]["built"]["count"] > 0
    assert found["cost_before"] == 0 < found["cost_after"]

    shop.plan(0)
    assert names(shop, 1) == []
    again = held(shop)
    assert (again["version"], again["since"]) == (found["version"], found["since"])
    assert again["epoch"] == 1

    say(shop, "approve", found["version"])
    assert held(shop)["state"] == "approved"
    assert shop.get("/v1/queries/pair")["waits_because"] is None
    shop.plan(1)
    assert names(shop, 2) == ["pair"]
    record = shop.get("/v1/epochs/2")
    assert (record["method"], record["cost"]) == ("as approved", found["cost_after"])
    assert (record["bound"], record["gap"]) == (None, None)
    shop.get("/v1/plan/held", 404)
    shop.plan(2)
    assert names(shop, 3) == ["pair"]
    assert shop.get("/v1/epochs/3")["method"] != "as approved"
    shop.get("/v1/plan/held", 404)


def test_rules_that_go_on_say_the_same_of_their_queries(shop: Service) -> None:
    """Also what does not depend on plans: the sink, limits of age, the past."""
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR, "past": "stored", "sink": COUNT})
    shop.plan(-1)
    manual(shop)
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(0)
    before, after = (ruleset(shop, epoch).queries for epoch in (0, 1))
    assert names(shop, 1) == ["pair"]
    assert after == before
    assert (after[0].past, after[0].sink.format) == (True, "count")


def test_a_query_that_has_ended_leaves_though_a_plan_waits(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    manual(shop)
    shop.post("/v1/queries", {"id": "parts", "sql": ITEMS})
    shop.plan(0)
    assert names(shop, 1) == ["chain", "pair"]
    assert shop.get("/v1/epochs/1")["method"] == "as before, by approval"
    before = held(shop)
    shop.call("DELETE", "/v1/queries/chain", 202)
    shop.plan(1)
    assert names(shop, 2) == ["pair"]
    assert shop.get("/v1/queries/chain")["last_epoch"] == 1
    after = held(shop)
    assert after["version"] != before["version"]
    assert after["since"] == before["since"]
    assert say(shop, "approve", before["version"], 412)["code"] == "changed-meanwhile"
    shop.call("POST", "/v1/queries/pair:pause", 202)
    shop.plan(2)
    assert names(shop, 3) == []
    assert held(shop)["waiting"] == ["parts"]
    shop.call("DELETE", "/v1/queries/parts", 202)
    shop.plan(3)
    shop.get("/v1/plan/held", 404)


def test_a_query_that_is_replaced_goes_on_until_then(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    manual(shop)
    shop.call("PUT", "/v1/queries/pair", 200, {"sql": PAIR + " WHERE o.total > 3"})
    shop.plan(0)
    shop.call("PUT", "/v1/queries/pair", 200, {"sql": PAIR + " WHERE o.total > 4"})
    shop.plan(1)
    assert names(shop, 2) == ["pair"]
    found = held(shop)
    assert found["waiting"] == ["pair"]
    assert (found["change"]["queries_added"], found["change"]["queries_removed"]) == (
        ["pair~3"],
        ["pair"],
    )
    say(shop, "approve", found["version"])
    shop.plan(2)
    assert names(shop, 3) == ["pair~3"]


def test_what_is_refused_is_not_proposed_again_until_something_changes(shop: Service) -> None:
    manual(shop)
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    found = held(shop)
    assert say(shop, "refuse", found["version"])["state"] == "refused"
    assert shop.get("/v1/queries")["items"][0]["waits_because"] == "its plan was refused"
    shop.plan(0)
    shop.get("/v1/plan/held", 404)
    say(shop, "refuse", found["version"], 404)
    assert names(shop, 1) == []
    shop.call("PATCH", "/v1/settings", 200, {"switching": 0.2})
    shop.plan(1)
    assert held(shop)["waiting"] == ["pair"]
    assert shop.get("/v1/queries/pair")["waits_because"] == "its plan waits for approval"


def test_an_approval_is_of_the_queries_that_there_were(shop: Service) -> None:
    manual(shop)
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    found = held(shop)
    say(shop, "approve", found["version"])
    assert say(shop, "refuse", found["version"], 409)["code"] == "already-approved"
    shop.post("/v1/queries", {"id": "parts", "sql": ITEMS})
    shop.plan(0)
    assert names(shop, 1) == []
    again = held(shop)
    assert again["state"] == "waiting"
    assert "has not been published" in again["note"]
    say(shop, "approve", again["version"])
    shop.plan(1)
    assert names(shop, 2) == ["pair", "parts"]


def test_where_approval_is_automatic_again_nothing_waits(shop: Service) -> None:
    manual(shop)
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    shop.call("PATCH", "/v1/settings", 200, {"approval": "automatic"})
    shop.plan(0)
    assert names(shop, 1) == ["pair"]
    shop.get("/v1/plan/held", 404)


def test_statistics_replace_the_plan_that_waits_and_never_the_one_that_runs(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    shop.plan(0, next_batch=4, snapshot=measured(0, 10_000, 10, 10_000))
    manual(shop)
    shop.call("PATCH", "/v1/settings", 200, {"switching": 0})
    before = ruleset(shop, 1)
    shop.plan(1, next_batch=8, snapshot=measured(1, 10, 10_000, 1_000_000))
    assert orders(shop, 2) == orders(shop, 1)
    assert ruleset(shop, 2).probe_rules == before.probe_rules
    first = held(shop)
    assert first["waiting"] == []
    assert not first["change"]["diff"]["unchanged"]
    assert first["cost_after"] < first["cost_before"]
    assert shop.get("/v1/epochs/2")["cost"] == pytest.approx(first["cost_before"])


def orders(service: Service, epoch: int) -> dict[str, Any]:
    """Return the choices (probe orders, stores) of the plan of a published epoch."""
    found = ruleset(service, epoch)
    records = {
        name: QueryRecord.model_validate_json(text)
        for name, text in service.redis.hgetall(service.keys.queries).items()
    }
    streams = usable_streams(
        StreamRecord.model_validate_json(text)
        for text in service.redis.hgetall(service.keys.streams).values()
    )
    forms = NormalForms()
    queries: list[JoinQuery] = []
    for name in sorted({registered(q.id) for q in found.queries}):
        queries += forms.of(records[name], streams).planned
    return choices(plan_of(found, queries))


def test_what_cannot_be_read_is_proposed_anew(shop: Service) -> None:
    manual(shop)
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    say(shop, "approve", held(shop)["version"])
    shop.redis.hset(shop.keys.approval, "record", "{}")
    shop.plan(0)
    assert names(shop, 1) == []
    assert held(shop)["state"] == "waiting"
    shop.redis.hset(shop.keys.approval, "held", "nothing")
    shop.get("/v1/plan/held", 404)
    shop.plan(1)
    assert held(shop)["waiting"] == ["pair"]


def test_what_streams_are_registered_with_is_not_held(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "parts", "sql": ITEMS})
    shop.plan(-1)
    manual(shop)
    shop.call("PATCH", "/v1/streams/orders", 200, {"retention": {"ttl": "7 days"}})
    shop.post("/v1/streams", {**STREAMS[0], "name": "people"})
    shop.plan(0)
    shop.get("/v1/plan/held", 404)
    assert orders(shop, 1) == orders(shop, 0)
    assert "people" in [stream.name for stream in ruleset(shop, 1).streams]
    # The same is true while a plan waits.
    shop.post("/v1/queries", {"id": "same", "sql": ITEMS.replace("3", "9")})
    shop.call("PATCH", "/v1/streams/orders", 200, {"retention": {"ttl": "3 days"}})
    shop.plan(1)
    assert held(shop)["waiting"] == ["same"]
    now, before = ruleset(shop, 2).queries[0], ruleset(shop, 1).queries[0]
    assert now.id == before.id
    assert now.retention != before.retention


def test_partitions_and_optimisers_are_choices(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    manual(shop)
    shop.call("PATCH", "/v1/settings", 200, {"parallelism": 3})
    shop.plan(0)
    assert {store.partitions for store in ruleset(shop, 1).stores} == {2}
    found = held(shop)
    assert found["change"]["settings"] == {"parallelism": ["2", "3"]}
    shop.call("PATCH", "/v1/settings", 200, {"optimizer": "individual"})
    shop.plan(1)
    assert {store.owner for store in ruleset(shop, 2).stores} == {""}
    say(shop, "approve", held(shop)["version"])
    shop.plan(2)
    assert {(s.owner, s.partitions) for s in ruleset(shop, 3).stores} == {("pair", 3), ("chain", 3)}
    shop.call("DELETE", "/v1/queries/chain", 202)
    shop.post("/v1/queries", {"id": "parts", "sql": ITEMS})
    shop.plan(3)
    assert {store.owner for store in ruleset(shop, 4).stores} == {"pair"}


def test_a_query_that_can_not_be_planned_is_rejected_at_once(shop: Service) -> None:
    manual(shop)
    shop.post("/v1/queries", {"id": "parts", "sql": ITEMS})
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    # Only another writer can do this: the API refuses to delete a stream in use.
    remove(shop.redis, shop.keys, "streams", "items")
    shop.plan(-1)
    assert shop.get("/v1/queries/parts")["status"] == "rejected"
    assert held(shop)["waiting"] == ["pair"]


def test_time_is_up_though_a_plan_waits(settings: ServiceSettings) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with serving(settings, clock=lambda: now[0]) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "brief", "sql": PAIR, "ttl": "1 hour"})
        service.plan(-1)
        manual(service)
        service.post("/v1/queries", {"id": "parts", "sql": ITEMS})
        service.plan(0)
        assert names(service, 1) == ["brief"]
        now[0] += timedelta(hours=2)
        service.plan(1)
        assert names(service, 2) == []
        assert held(service)["waiting"] == ["parts"]


def test_a_restart_forgets_nothing(settings: ServiceSettings) -> None:
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        manual(service)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(-1)
        found = held(service)
    with serving(settings) as service:
        again = held(service)
        assert again == found
        say(service, "approve", found["version"])
    with serving(settings) as service:
        assert held(service)["state"] == "approved"
        service.plan(0)
        assert names(service, 1) == ["pair"]


def test_any_service_approves(settings: ServiceSettings) -> None:
    second = replace(settings, port=settings.port + 1)
    with serving(settings) as leader, serving(second) as other:
        for stream in STREAMS:
            leader.post("/v1/streams", stream)
        manual(other)
        other.post("/v1/queries", {"id": "pair", "sql": PAIR})
        leader.plan(-1)
        assert not other.get("/v1/leader")["is_this"]
        say(other, "approve", held(other)["version"])
        leader.plan(0)
        assert names(other, 1) == ["pair"]
        other.get("/v1/plan/held", 404)


@pytest.mark.parametrize("seed", mostly_slow(range(6), 2))
def test_whatever_happens_only_what_was_approved_runs(shop: Service, seed: int) -> None:
    rng = Random(seed)
    statements = [
        PAIR,
        CHAIN,
        ITEMS,
        PAIR + " WHERE o.total > 3",
        "SELECT o.order_id FROM orders o WHERE o.total > 7",
    ]
    manual(shop)
    alive: set[str] = set()
    shop.plan(-1)
    running = orders(shop, 0)
    for epoch in range(14):
        for _ in range(rng.choice((0, 1, 1, 2))):
            if alive and rng.random() < 0.4:
                gone = rng.choice(sorted(alive))
                alive.discard(gone)
                if rng.random() < 0.5:
                    shop.call("DELETE", f"/v1/queries/{gone}", 202)
                else:
                    shop.call("POST", f"/v1/queries/{gone}:pause", 202)
            else:
                name = f"q{epoch}{len(alive)}{rng.randrange(1000)}"
                shop.post("/v1/queries", {"id": name, "sql": rng.choice(statements)})
                alive.add(name)
        answer = shop.http.get("/v1/plan/held")
        expected = None
        if answer.status_code == 200 and rng.random() < 0.6:
            document = answer.json()
            word = rng.choice(("approve", "approve", "refuse"))
            reply = shop.http.post(
                f"/v1/plan/held:{word}", headers={"If-Match": document["version"]}
            )
            assert reply.status_code == 200
            if word == "approve":
                text = shop.redis.hget(shop.keys.approval, "ruleset")
                expected = wire.loads(str(text))
        sizes = [10 ** rng.randrange(1, 6) for _ in range(3)]
        shop.plan(epoch, next_batch=4 * epoch + 4, snapshot=measured(epoch, *sizes))
        now = ruleset(shop, epoch + 1)
        there = {str(q.id) for q in now.queries}
        assert there <= alive
        found = orders(shop, epoch + 1)
        own = goals(found)
        if expected is not None and {str(q.id) for q in expected.queries} == there:
            assert {p.out for p in now.probe_rules} == {p.out for p in expected.probe_rules}
        else:
            known = goals(running)
            assert own.items() <= known.items()
            copies, before = partitions(found), partitions(running)
            assert {copy[:2] for copy in copies} <= {copy[:2] for copy in before}
            # An attribute that only ended queries compared can't be kept.
            assert copies <= before or own.keys() < known.keys()
        running = found


def partitions(found: dict[str, Any]) -> set[tuple[str, ...]]:
    """Return store copies: owner, intermediate result and partitioning attribute."""
    return {(owner, mir, *attribute) for owner, mir, attribute in found["copies"]}


def goals(found: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Return query and start -> the stores that are probed and what they fill."""
    return {
        (goal, start): [(target, tuple(members)) for target, members, _ in steps]
        for _, goal, maintains, start, steps in found["orders"]
        if not maintains
    }
