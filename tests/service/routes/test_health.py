"""Tests of health over REST."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anabranch_contract.protocol.intake import (
    InputProgress,
    SourceState,
    StreamIntake,
    Unread,
    UnreadPiece,
)
from anabranch_contract.protocol.progress import VERSION, Heartbeat, Progress
from anabranch_service.context import Context
from anabranch_service.presenters.health import Component, HealthLog
from anabranch_service.routes import health
from anabranch_service.settings import ServiceSettings
from tests.support.worlds.service import Service, eventually, serving

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def states(service: Service) -> dict[str, Any]:
    found = service.get("/v1/health")["components"]
    return {f"{one['kind']} {one['name']}": one for one in found}


def test_a_new_pipeline_is_well(service: Service) -> None:
    found = states(service)
    assert {one["state"] for one in found.values()} == {"ok"}
    kinds = [one["kind"] for one in found.values()]
    assert kinds == ["service", "epoch loop", "redis", "plan", "runtime"]


def test_what_fails_comes_first_and_says_why(shop: Service) -> None:
    shop.source("orders", SourceState.FAILED, "no broker answers")
    shop.source("items", SourceState.READING)
    shop.progress(Progress("running", sinks={"pair": "the bucket is gone"}))
    found = states(shop)
    first = list(found.values())[:2]
    assert [one["state"] for one in first] == ["failed", "failed"]
    assert found["stream orders"]["message"] == "no broker answers"
    assert found["query pair"]["message"].endswith("the bucket is gone")
    assert found["stream items"]["state"] == "ok"
    assert found["stream customers"]["state"] == "warning"
    assert found["stream orders"]["since"] < found["service this service"]["since"]
    shop.redis.delete(shop.keys.heartbeat)
    assert states(shop)["runtime runtime"]["state"] == "failed"


def test_a_runtime_with_other_documents_is_no_partner(shop: Service) -> None:
    other = Heartbeat("run", 1, "host", version=VERSION + 1)
    shop.redis.set(shop.keys.heartbeat, other.dumps())
    found = states(shop)["runtime runtime"]
    assert found["state"] == "failed"
    assert f"of version {VERSION + 1}, the service those of version {VERSION}" in found["message"]
    assert "run one release" in found["message"]


def test_rejected_tuples_are_a_warning_until_they_are_accepted(shop: Service) -> None:
    for stream in ("orders", "items"):
        shop.source(stream, SourceState.READING)
    counts = {"input": 24_681, "late": 14_552, "invalid": 3, "ahead": 0}
    well = {"input": 10, "late": 0, "invalid": 0, "ahead": 0}
    shop.progress(Progress("running", streams={"orders": counts, "items": well}))
    found = states(shop)
    assert found["stream items"]["state"] == "ok"
    orders = found["stream orders"]
    assert orders["state"] == "warning"
    assert orders["message"] == "rejected 14,552 late and 3 invalid of 24,681 tuples"
    assert ".late/orders" in orders["remedy"]
    assert "--lateness" in orders["remedy"]
    assert "anabranch stream set orders --accept-rejects" in orders["remedy"]
    shop.call("PATCH", "/v1/streams/orders", 200, {"accepted_rejects": 14_555})
    assert states(shop)["stream orders"]["state"] == "ok"
    assert shop.get("/v1/streams/orders")["accepted_rejects"] == 14_555
    shop.progress(Progress("running", streams={"orders": {**counts, "invalid": 4}, "items": well}))
    assert states(shop)["stream orders"]["state"] == "warning"


def test_a_stream_of_which_something_was_not_read_is_yellow(shop: Service) -> None:
    for name in ("orders", "items"):
        shop.source(name, SourceState.READING)
    piece = UnreadPiece("/in/a", "rows", 0, None, None, None, "file-changed", "it changed", 7)
    shop.progress(
        Progress(
            "running",
            input=InputProgress({"orders": StreamIntake(unread=Unread().and_also([piece]))}),
        )
    )
    found = states(shop)
    assert (found["stream orders"]["state"], found["stream items"]["state"]) == ("warning", "ok")
    assert "/in/a: it changed" in found["stream orders"]["message"]
    assert "anabranch stream show orders" in found["stream orders"]["remedy"]


def test_a_component_is_as_it_is_since_it_was_first_seen_so() -> None:
    log, well = HealthLog(), Component("redis", "Redis")
    ill = replace(well, state="failed")
    for minute, one, since in ((0, well, 0), (1, well, 0), (2, ill, 2), (3, ill, 2), (4, well, 4)):
        (found,) = log.dated([one], NOON + timedelta(minutes=minute))
        assert found.since == NOON + timedelta(minutes=since)


def test_since_when_is_known_though_nobody_has_asked(
    settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LOOK_SECONDS", 0.01)
    look, looks = health.look, list[Component]()

    async def counted(context: Context) -> list[Component]:
        found = await look(context)
        looks.extend(found)
        return found

    monkeypatch.setattr(health, "look", counted)
    with serving(settings) as service:
        service.post("/v1/streams", {"name": "a", "columns": {"k": "bigint"}})
        eventually(lambda: any(one.state == "failed" for one in looks), "a look")
        asked = datetime.now(UTC)
        found = states(service)["runtime runtime"]
    assert found["state"] == "failed"
    assert datetime.fromisoformat(found["since"]) < asked
