from __future__ import annotations

from anabranch_contract.protocol.progress import Heartbeat, Progress
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service


def test_health_and_readiness(service: Service) -> None:
    assert service.get("/healthz") == {"status": "ok"}
    assert service.get("/readyz") == {
        "status": "ready",
        "checks": {"epoch_loop": "ok", "redis": "ok", "runtime": "ok", "sources": "ok"},
    }


def test_readiness_misses_a_runtime_once_there_is_work_for_it(service: Service) -> None:
    def runtime() -> str:
        return str(service.get("/readyz", 503)["detail"])

    service.post("/v1/streams", {"name": "a", "columns": {"k": "bigint"}})
    assert runtime() == "runtime: it has not been started"
    service.beat("starting")
    assert runtime() == "runtime: it is starting"
    service.beat()
    service.progress(Progress("running", committed=3))
    assert service.get("/readyz")["checks"]["runtime"] == "ok"
    service.redis.delete(service.keys.heartbeat)
    assert runtime() == "runtime: no heartbeat for 10 s or more (it was running)"
    service.progress(Progress("failed", error="the disk is full"))
    assert runtime() == "runtime: it has failed: the disk is full"
    assert service.get("/healthz") == {"status": "ok"}


def test_a_runtime_that_is_not_heard_of_is_stale(shop: Service) -> None:
    shop.plan(-1)
    shop.progress(Progress("running", epoch=0, epoch_starts={"0": 0}))
    assert shop.get("/v1/epochs/current")["runtime"]["stale"] is False
    shop.redis.delete(shop.keys.heartbeat)
    current = shop.get("/v1/epochs/current")["runtime"]
    assert (current["state"], current["stale"]) == ("running", True)


def test_a_standby_is_named_once_it_is_ready(shop: Service) -> None:
    shop.plan(-1)
    shop.progress(Progress("running", epoch=0, epoch_starts={"0": 0}))

    def standby() -> object:
        return shop.get("/v1/epochs/current")["runtime"]["standby"]

    assert standby() is None
    shop.redis.set(shop.keys.standby, Heartbeat("next", 2, "other", "starting").dumps())
    assert standby() is None
    shop.redis.set(shop.keys.standby, Heartbeat("next", 2, "other").dumps())
    assert standby() == "other"


def test_metrics_tell_requests_by_route_and_the_newest_plan(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.get("/v1/queries/pair")
    shop.get("/v1/queries/nobody", 404)
    shop.plan(-1)
    response = shop.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = dict(
        line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#")
    )
    request = 'anabranch_http_requests_total{method="GET",route="/v1/queries/{name}",status="%d"}'
    assert (lines[request % 200], lines[request % 404]) == ("1.0", "1.0")
    assert lines["anabranch_epochs_published_total"] == "1.0"
    assert lines["anabranch_planned_queries"] == "1.0"
    cost = shop.get("/v1/epochs/0")["cost"]
    assert float(lines['anabranch_plan_cost{plan="chosen"}']) == cost


def test_settings_can_be_read_and_put(service: Service) -> None:
    before = service.get("/v1/settings")
    assert before == {
        "optimizer": "clash",
        "objective": "tuples",
        "parallelism": 2,
        "switching": 0.1,
        "memory": None,
        "copies": None,
        "intermediate_results": None,
        "solver": "branch",
        "backfill": "auto",
        "backfill_horizon": 1.0,
        "substreams": 4,
        "revision_gain": 0.1,
        "overload": "wait",
        "allocation": "fair",
        "latency_goal": 2.0,
        "capacity": None,
        "look_ahead": "never",
        "hot_keys": "auto",
        "approval": "automatic",
        "mode": "step",
        "epoch_batches": 10,
    }
    after = service.call("PUT", "/v1/settings", 200, {"optimizer": "shared", "parallelism": 8})
    assert after == before | {"optimizer": "shared", "parallelism": 8}
    assert service.get("/v1/settings") == after
    for body, field in (
        ({"optimizer": "magic"}, "optimizer"),
        ({"parallelism": 0}, "parallelism"),
        ({"switching": -0.1}, "switching"),
        ({"memory": -1}, "memory"),
        ({"copies": 0}, "copies"),
        ({"intermediate_results": -1}, "intermediate_results"),
        ({"intermediate_results": "none"}, "intermediate_results"),
        ({"solver": "gurobi"}, "solver"),
        ({"backfill": "sometimes"}, "backfill"),
        ({"backfill_horizon": -1}, "backfill_horizon"),
        ({"substreams": 0}, "substreams"),
        ({"substreams": 65}, "substreams"),
        ({"revision_gain": 1.5}, "revision_gain"),
        ({"overload": "drop"}, "overload"),
        ({"allocation": "random"}, "allocation"),
        ({"latency_goal": 0}, "latency_goal"),
        ({"look_ahead": "always"}, "look_ahead"),
        ({"hot_keys": "always"}, "hot_keys"),
        ({"capacity": 0}, "capacity"),
        ({"capacity": 1.2}, "capacity"),
        ({"mode": "live"}, "mode"),
    ):
        assert service.call("PUT", "/v1/settings", 422, body)["errors"][0]["field"] == field
    assert service.get("/v1/settings") == after


def test_null_lifts_a_limit_and_means_nothing_elsewhere(service: Service) -> None:
    before = service.get("/v1/settings")
    limits = {
        "memory": 1e9,
        "copies": 2,
        "intermediate_results": 3,
        "switching": 0.25,
        "solver": "highs",
        "backfill": "never",
        "backfill_horizon": 3.5,
        "substreams": 2,
        "revision_gain": 0.25,
        "overload": "ration",
        "allocation": "jaqpot",
        "latency_goal": 5.0,
        "capacity": 0.5,
        "look_ahead": "auto",
        "hot_keys": "never",
    }
    assert service.call("PUT", "/v1/settings", 200, limits) == before | limits
    lifted = dict.fromkeys(limits)
    after = service.call("PUT", "/v1/settings", 200, lifted)
    nothing = dict.fromkeys(
        ("memory", "copies", "intermediate_results", "revision_gain", "capacity")
    )
    assert after == before | limits | nothing


def test_the_dashboard_is_served_from_here_alone(service: Service) -> None:
    page = service.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for path in ("/dashboard/overview/page.js", "/dashboard/style.css"):
        assert path in page.text
        asset = service.http.get(path)
        assert asset.status_code == 200
        for text in (asset.text, page.text):
            assert "https://" not in text
