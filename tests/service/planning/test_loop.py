"""Tests of the epoch loop with boundaries written by hand, as the runtime would."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from anabranch_contract import codec
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary, Mode, Progress
from anabranch_runtime.control import Control
from anabranch_service.registry.publishing.publication import LEAST_EPOCHS
from anabranch_service.registry.redis import connections
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import CHAIN, PAIR, STREAMS
from tests.support.surroundings.redis import StoppableRedis
from tests.support.worlds.records import put, remove
from tests.support.worlds.service import Service, eventually, serving


def test_the_start_of_the_runtime_is_answered_with_epoch_0(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    text = shop.redis.get(shop.keys.ruleset(0))
    ruleset = wire.loads(str(text))
    ruleset.validate()
    assert ruleset.epoch == 0
    assert [q.id for q in ruleset.queries] == ["chain"]
    assert [s.name for s in ruleset.streams] == ["customers", "items", "orders"]
    assert ruleset.probe_rules
    assert shop.redis.zrange(shop.keys.published, 0, -1) == ["0"]
    record = shop.get("/v1/epochs/0")
    assert record["statistics_epoch"] is None
    assert record["assumed"] == ["customers", "items", "orders"]


def test_an_epoch_without_queries_is_published_as_well(service: Service) -> None:
    service.plan(-1)
    record = service.get("/v1/epochs/0")
    assert (record["queries"], record["cost"], record["method"]) == ([], 0, "empty")
    ruleset = wire.from_json(service.get("/v1/epochs/0/ruleset"))
    assert (ruleset.queries, ruleset.probe_rules, ruleset.stores) == ((), (), ())


def test_a_restarted_runtime_changes_nothing_that_was_published(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    before = shop.redis.get(shop.keys.ruleset(0))
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    assert shop.redis.get(shop.keys.ruleset(0)) == before
    assert shop.get("/v1/epochs/0")["queries"] == ["pair"]
    assert shop.get("/v1/queries/chain")["first_epoch"] is None
    shop.plan(0)
    assert shop.get("/v1/queries/chain")["first_epoch"] == 1


def test_statistics_of_the_boundary_decide_the_cost(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    snapshot = Snapshot(
        0,
        4,
        4,
        arrivals={"orders": 50_000, "customers": 10},
        distincts={"orders": {"customer_id": 10}, "customers": {"customer_id": 10}},
    )
    shop.plan(0, next_batch=4, snapshot=snapshot)
    first, second = shop.get("/v1/epochs/0"), shop.get("/v1/epochs/1")
    assert second["statistics_epoch"] == 0
    assert second["assumed"] == []
    assert second["cost"] > first["cost"]
    assert second["queries"] == ["pair"]


def test_live_answers_leave_the_runtime_an_epoch_of_time(settings: ServiceSettings) -> None:
    with serving(replace(settings, mode=Mode.LIVE)) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.plan(-1)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(0)
        assert [e["epoch"] for e in service.get("/v1/epochs")["items"]] == [2, 0]
        assert service.get("/v1/queries/pair")["first_epoch"] == 2
        service.call("DELETE", "/v1/queries/pair", 202)
        service.plan(1)
        assert service.get("/v1/epochs/3")["queries"] == []
        assert service.get("/v1/queries/pair")["last_epoch"] == 2
        service.progress(Progress("running", committed=5, epoch=1, ruleset_epoch=0))
        current = service.get("/v1/epochs/current")
        assert (current["running"], current["epoch"]["epoch"]) == (1, 0)


def test_the_newest_of_several_boundaries_is_answered(settings: ServiceSettings) -> None:
    """Live: planning is slower than epochs, or no service was running."""

    def measured(epoch: int) -> Snapshot:
        return Snapshot(epoch, 4, 4, arrivals={"orders": 100 * epoch, "customers": 10})

    live = replace(settings, mode=Mode.LIVE)
    with serving(live) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(-1)
        keys, redis = service.keys, service.redis
    for epoch in range(1, 7):
        redis.rpush(
            keys.boundaries,
            Boundary(epoch, 4, codec.dumps(measured(epoch))).dumps(),
        )
    with serving(live) as service:
        service.answered()
        assert [e["epoch"] for e in service.get("/v1/epochs")["items"]] == [8, 0]
        assert service.get("/v1/epochs/8")["statistics_epoch"] == 6
        assert "anabranch_boundaries_passed_over_total 5.0" in service.http.get("/metrics").text
        service.plan(7, snapshot=measured(7))
        # A start of the runtime reports nothing newer.
        service.boundary(8, snapshot=measured(8))
        service.plan(-1)
        assert [e["epoch"] for e in service.get("/v1/epochs")["items"]] == [10, 9, 8, 0]


def test_reports_of_the_runtime_wake_the_loop(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it looks for them once an hour. Its wait ends when the service stops."""
    monkeypatch.setattr(connections, "SECONDS", 7200.0)
    with serving(settings.changed(poll_seconds=3600.0)) as service:
        control = Control(settings.redis_url, settings.namespace)
        for epoch in range(-1, 4):
            control.report_boundary(Boundary(epoch, 0))
            service.answered()
        assert service.redis.xlen(service.keys.reports) == 1


def test_queries_that_share_are_cheaper_together(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    record = shop.get("/v1/epochs/0")
    assert record["cost"] < record["individual_cost"]
    assert record["cost"] <= record["shared_cost"] <= record["individual_cost"]
    assert record["gap"] == 0
    assert record["solve_ms"] > 0


@pytest.mark.parametrize("optimizer", ["clash", "shared", "individual", "dppick"])
def test_the_optimizer_can_be_switched_at_run_time(shop: Service, optimizer: str) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    shop.call("PUT", "/v1/settings", 200, {"optimizer": optimizer, "parallelism": 3})
    shop.plan(0)
    record = shop.get("/v1/epochs/1")
    assert (record["optimizer"], record["parallelism"]) == (optimizer, 3)
    if optimizer == "dppick":
        assert record["method"] == "dppick"
        assert record["cost"] >= record["individual_cost"]
    elif optimizer != "clash":
        assert record["cost"] == record[f"{optimizer}_cost"]


def test_a_query_that_no_longer_means_anything_is_rejected_and_the_rest_planned(
    shop: Service,
) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    # Only another writer can do this: the API refuses to delete a stream in use.
    remove(shop.redis, shop.keys, "streams", "items")
    shop.plan(-1)
    record = shop.get("/v1/epochs/0")
    assert record["queries"] == ["pair"]
    assert list(record["rejected"]) == ["chain"]
    rejected = shop.get("/v1/queries/chain")
    assert rejected["status"] == "rejected"
    assert "items" in rejected["problem"]["message"]
    assert shop.get("/v1/queries/pair")["first_epoch"] == 0
    shop.plan(0)
    assert shop.get("/v1/epochs/1")["rejected"] == {}


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("not json", []),
        ('{"epoch": "x", "next_batch": 0}', []),
        ('{"epoch": 0, "next_batch": 4, "snapshot": "{\\"arrivals\\": 5}"}', [1]),
    ],
)
def test_what_the_loop_cannot_read_does_not_stop_it(
    shop: Service, text: str, published: list[int]
) -> None:
    shop.redis.rpush(shop.keys.boundaries, text)
    shop.answered()
    assert [e["epoch"] for e in shop.get("/v1/epochs")["items"]] == published
    shop.plan(4)
    assert shop.get("/v1/epochs")["items"][0]["epoch"] == 5
    assert shop.get("/readyz")["checks"]["epoch_loop"] == "ok"


def test_an_unreadable_record_does_not_hide_the_others(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    put(shop.redis, shop.keys, "queries", "odd", '{"id": "odd"}')
    put(shop.redis, shop.keys, "streams", "odd", "[]")
    assert [q["id"] for q in shop.get("/v1/queries")["items"]] == ["pair"]
    assert shop.get("/v1/queries/odd", 500)["code"] == "corrupt-record"
    assert shop.get("/v1/streams/odd", 500)["code"] == "corrupt-record"
    shop.plan(-1)
    assert shop.get("/v1/epochs/0")["queries"] == ["pair"]


def test_a_crash_between_publishing_and_the_cursor_is_made_good(settings: ServiceSettings) -> None:
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.plan(-1)
        before = service.redis.hget(service.keys.queries, "pair")
        published = service.redis.get(service.keys.ruleset(0))
    keys = Keys(settings.namespace)
    with serving(settings) as service:
        # As if the crash had been right after the publication.
        planned = json.loads(str(before))
        put(service.redis, keys, "queries", "pair", json.dumps({**planned, "first_epoch": None}))
        service.redis.set(keys.cursor, 0)
        service.answered()
        eventually(
            lambda: service.get("/v1/queries/pair")["first_epoch"] == 0, "the record is settled"
        )
        assert service.redis.get(keys.ruleset(0)) == published


def test_only_the_newest_epochs_are_kept(settings: ServiceSettings) -> None:
    kept = 100
    settings = settings.changed(kept_epochs=kept, mode=Mode.STEP)
    with serving(settings) as service:
        keys, redis = service.keys, service.redis
        # Every other epoch runs by the rules of the one before, and is measured nevertheless.
        ended = range(-1, 3 * kept, 2)
        for number in range(3 * kept):
            redis.set(keys.statistics(number), "{}")
        for epoch in ended:
            service.boundary(epoch)
        service.answered()
        numbers = range(ended[-1] + 2)
        published = [int(str(n)) for n in redis.zrange(keys.published, 0, -1)]
        assert published == [epoch + 1 for epoch in ended][-kept:]
        for key in (keys.ruleset, keys.epoch):
            assert [n for n in numbers if redis.exists(key(n))] == published
        measured = [n for n in numbers if redis.exists(keys.statistics(n))]
        assert measured == list(range(published[0], 3 * kept))
        # Only the last boundary that the runtime reported is kept.
        assert redis.llen(keys.boundaries) == 1
        service.get("/v1/epochs/0", 404)
        service.plan(published[-1])
        assert service.get("/v1/epochs")["items"][0]["epoch"] == published[-1] + 1


def test_epochs_are_kept_by_bytes_and_never_what_runs(settings: ServiceSettings) -> None:
    settings = settings.changed(kept_bytes=1 << 16, mode=Mode.STEP)
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.progress(Progress("running", committed=5, epoch=5, ruleset_epoch=5))
        for epoch in range(-1, 39):
            service.boundary(epoch)
        service.answered()
        keys, redis = service.keys, service.redis

        def published() -> list[int]:
            return [int(str(n)) for n in redis.zrange(keys.published, 0, -1)]

        assert published() == list(range(5, 40))
        service.progress(Progress("running", committed=39, epoch=39, ruleset_epoch=39))
        service.plan(39)
        assert published() == list(range(40 - LEAST_EPOCHS + 1, 41))
        sizes = redis.hgetall(f"{keys.namespace}:epochs:bytes")
        assert sorted(map(int, sizes)) == published()
        kept = (keys.ruleset(40), keys.epoch(40), f"{keys.namespace}:plans:40")
        assert int(sizes["40"]) == sum(len(str(redis.get(key))) for key in kept)
        assert len(list(redis.scan_iter(f"{keys.namespace}:plans:*"))) == len(sizes)


def test_statistics_count_where_epochs_are_kept_by_bytes(settings: ServiceSettings) -> None:
    settings = settings.changed(kept_bytes=1 << 21, mode=Mode.STEP)
    with serving(settings) as service:
        keys, redis = service.keys, service.redis
        for epoch in range(-1, 60):
            if epoch >= 0:
                redis.set(keys.statistics(epoch), "x" * (1 << 16))
            service.plan(epoch)
            service.progress(Progress("running", epoch, epoch=epoch + 1, ruleset_epoch=epoch + 1))
        published = [int(str(n)) for n in redis.zrange(keys.published, 0, -1)]
        measured = [n for n in range(61) if redis.exists(keys.statistics(n))]
        assert published[-1] == 60
        assert measured == published[:-1]
        kept = sum(int(str(redis.strlen(keys.statistics(n)))) for n in measured)
        assert settings.retention.kept_bytes * 3 / 4 < kept <= settings.retention.kept_bytes


def test_a_boundary_is_answered_once_by_two_services(settings: ServiceSettings) -> None:
    settings = replace(settings, mode=Mode.STEP)
    with serving(settings) as one, serving(settings) as two:
        for epoch in range(-1, 30):
            one.boundary(epoch, next_batch=epoch + 1)
        one.answered()
        two.answered()
        published = [int(str(n)) for n in one.redis.zrange(one.keys.published, 0, -1)]
        assert published == list(range(31))


def test_state_outlives_the_service(settings: ServiceSettings) -> None:
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        service.call("PUT", "/v1/settings", 200, {"optimizer": "shared"})
        service.plan(-1)
        queries, epoch = service.get("/v1/queries"), service.get("/v1/epochs/0")
    with serving(settings) as service:
        assert service.get("/v1/queries") == queries
        assert service.get("/v1/epochs/0") == epoch
        assert service.get("/v1/settings")["optimizer"] == "shared"
        service.plan(0)
        assert service.get("/v1/epochs/1")["optimizer"] == "shared"


def test_redis_going_away_and_coming_back(settings: ServiceSettings) -> None:
    redis = StoppableRedis()
    try:
        with serving(replace(settings, redis_url=redis.url)) as service:
            for stream in STREAMS:
                service.post("/v1/streams", stream)
            service.post("/v1/queries", {"id": "pair", "sql": PAIR})
            service.plan(-1)
            service.beat()
            redis.kill()
            eventually(lambda: service.http.get("/readyz").status_code == 503, "the loop notices")
            problem = service.get("/v1/queries", 503)
            assert problem["code"] == "registry-unavailable"
            assert service.get("/healthz") == {"status": "ok"}
            redis.start()
            eventually(lambda: service.http.get("/readyz").status_code == 200, "the loop recovers")
            assert [q["id"] for q in service.get("/v1/queries")["items"]] == ["pair"]
            service.plan(0)
            assert service.get("/v1/epochs/1")["queries"] == ["pair"]
    finally:
        redis.close()


def test_an_epoch_is_not_rewired_for_next_to_nothing(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.call("PUT", "/v1/settings", 200, {"switching": 1000})
    shop.plan(-1)
    first = shop.get("/v1/epochs/0")
    assert first["switching_cost"] == 0, "there was nothing to change"
    arrivals = {"orders": 10, "customers": 9000, "items": 300}
    distincts = {name: {"order_id": 3.0, "customer_id": 8.0} for name in arrivals}
    snapshot = Snapshot(0, 4, 4, arrivals=arrivals, distincts=distincts)
    assumed = {"add": [], "switching": 0}
    shop.plan(0, next_batch=4, snapshot=snapshot)
    second = shop.get("/v1/epochs/1")
    assert second["switching_cost"] == 0
    assert not second["diff"]["steps"]["added"]
    assert not second["diff"]["stores"]["built"]
    free = shop.post("/v1/plans:dry-run", assumed, 200)
    assert free["switching_cost"] == 0
    assert free["cost"] < second["cost"]
    charged = shop.post("/v1/plans:dry-run", {"switching": 1e-6, "copies": 3}, 200)
    assert charged["cost"] == pytest.approx(free["cost"])
    assert charged["switching_cost"] > 0
    assert (charged["switching"], charged["copies"], charged["memory"]) == (1e-6, 3, None)
    # The plan changes where the saving exceeds the charge.
    shop.call("PUT", "/v1/settings", 200, {"switching": 1e-6})
    shop.plan(1, next_batch=8, snapshot=snapshot)
    third = shop.get("/v1/epochs/2")
    assert third["cost"] == pytest.approx(free["cost"])
    assert third["switching_cost"] == pytest.approx(charged["switching_cost"])
    assert third["diff"]["steps"]["added"]
    listed = {e["epoch"]: e["switching_cost"] for e in shop.get("/v1/epochs")["items"]}
    assert listed == {0: 0, 1: 0, 2: third["switching_cost"]}


def test_no_more_intermediate_results_are_kept_than_may_be(shop: Service) -> None:
    """As a setting, and as an assumption of a dry run; with any optimiser."""
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    selective = {"orders.customer_id = customers.customer_id": 1e-4}
    assumed: dict[str, Any] = {
        "statistics": dict.fromkeys(("orders", "customers", "items"), 1000.0)
    }
    assumed |= {"selectivity": selective, "switching": 0.0}

    def kept(**given: object) -> int:
        answer = shop.post("/v1/plans:dry-run", {**assumed, **given}, 200)
        assert answer["intermediate_results"] == given.get("intermediate_results")
        most: int = answer["explain"]["totals"]["intermediate_results"]
        return most

    assert kept() == kept(intermediate_results=1) == 1
    assert kept(intermediate_results=0) == 0
    assert kept(intermediate_results=0, formulation="paper") == 0
    for optimizer in ("shared", "individual"):
        assert kept(optimizer=optimizer) == 1
        assert kept(optimizer=optimizer, intermediate_results=1) == 0
    shop.call("PATCH", "/v1/settings", 200, {"intermediate_results": 0})
    assert shop.post("/v1/plans:dry-run", assumed, 200)["intermediate_results"] == 0


def test_the_paper_formulation_is_asked_without_limits(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    shop.plan(-1)
    body = {"formulation": "paper", "copies": 1, "memory": 1e12, "switching": 0.5}
    answer = shop.post("/v1/plans:dry-run", body, 200)
    assert answer["rejected"] == {}
    assert (answer["copies"], answer["memory"], answer["switching"]) == (None, None, 0)
