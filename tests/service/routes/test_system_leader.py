"""Tests of ``/v1/leader``, and of requests to a service that is not the leader."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.surroundings.redis import StoppableRedis
from tests.support.worlds.service import Service, eventually, serving


def gauge(service: Service) -> float:
    lines = service.http.get("/metrics").text.splitlines()
    return float(next(x for x in lines if x.startswith("anabranch_leader ")).split()[1])


def is_unready(service: Service) -> bool:
    return service.http.get("/readyz").status_code == 503


def test_a_single_service_leads_at_once(service: Service) -> None:
    eventually(lambda: bool(service.get("/v1/leader")["leads"]), "it leads")
    found = service.get("/v1/leader")
    assert found["is_this"] is True
    assert found["token"] == 1
    assert found["address"].endswith(f"/{service.settings.host}:8080")
    assert found["since"].endswith("Z")
    assert found["lease_seconds"] == service.settings.lease_seconds
    assert gauge(service) == 1


def test_a_service_that_follows_answers_requests_and_then_leads(settings: ServiceSettings) -> None:
    with ExitStack() as first, ExitStack() as second:
        leader = first.enter_context(serving(replace(settings, port=1)))
        eventually(lambda: bool(leader.get("/v1/leader")["leads"]), "it leads")
        follower = second.enter_context(serving(replace(settings, port=2)))
        assert follower.get("/v1/leader")["is_this"] is False
        assert gauge(follower) == 0
        eventually(lambda: follower.http.get("/readyz").is_success, "the follower is ready")
        for stream in STREAMS:
            follower.post("/v1/streams", stream)
        follower.post("/v1/queries", {"id": "pair", "sql": PAIR})
        follower.plan(-1)
        assert leader.get("/v1/epochs/0")["queries"] == ["pair"]
        assert follower.get("/v1/queries/pair")["first_epoch"] == 0
        assert "anabranch_epochs_published_total 0.0" in follower.http.get("/metrics").text
        first.close()
        follower.plan(0)
        found = follower.get("/v1/leader")
        assert (found["is_this"], found["token"]) == (True, 2)
        assert gauge(follower) == 1


def test_after_redis_was_away_one_leads_and_the_sequence_goes_on(settings: ServiceSettings) -> None:
    server = StoppableRedis()
    settings = replace(settings, redis_url=server.url, lease_seconds=0.3)
    try:
        with (
            serving(replace(settings, port=1)) as first,
            serving(replace(settings, port=2)) as second,
        ):
            first.plan(-1)
            server.kill()
            for one in (first, second):
                eventually(partial(is_unready, one), "it says so")
            server.start()
            first.plan(0)
            second.plan(1)
            assert [e["epoch"] for e in second.get("/v1/epochs")["items"]] == [2, 1, 0]
            assert sum(s.get("/v1/leader")["is_this"] for s in (first, second)) == 1
    finally:
        server.close()
