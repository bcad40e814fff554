"""A day in points of a minute: from the runtime's counts to the REST API."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from anabranch_contract.protocol.progress import Progress, Telemetry
from anabranch_service.planning.recorder import Recorder
from anabranch_service.registry.publishing.history import KEPT, MOST, point
from anabranch_service.registry.publishing.lease import Lease
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings
from tests.support.worlds.service import Service

BEFORE = Progress(
    "running",
    run="r",
    streams={"orders": {"input": 100}},
    results={"q": 10},
    telemetry=Telemetry(batches=3, seconds=3.0),
)
AFTER = replace(
    BEFORE,
    streams={"orders": {"input": 700}, "new": {"input": 60}},
    results={"q": 10},
    telemetry=Telemetry(batches=7, seconds=4.0),
)


def test_rates_between_two_looks() -> None:
    found = point(BEFORE, AFTER, 1_800_000_000, 60.0)
    assert found is not None
    assert (found.rows, found.results) == ({"orders": 10.0, "new": 1.0}, {})
    assert found.batch_seconds == 0.25
    idle = point(AFTER, AFTER, 1, 60.0)
    assert idle is not None
    assert idle.batch_seconds is None
    assert point(BEFORE, replace(AFTER, run="another"), 1, 60.0) is None


def test_a_point_is_bounded() -> None:
    many = replace(AFTER, results={f"q{n:04d}": n for n in range(1, 5000)})
    found = point(BEFORE, many, 1, 60.0)
    assert found is not None
    assert len(found.results) == MOST
    assert "q4999" in found.results
    assert len(found.model_dump_json()) < 8000


def test_points_are_kept_for_a_day_and_asked_for(service: Service) -> None:
    assert service.get("/v1/history")["items"] == []
    made = point(BEFORE, AFTER, 1_800_000_000, 60.0)
    assert made is not None
    for minute in range(3):
        one = made.model_copy(update={"at": made.at + 60 * minute})
        service.redis.rpush(service.keys.history, one.model_dump_json())
    service.redis.rpush(service.keys.history, "{}")
    found = service.get("/v1/history?stream=orders")
    assert [item["rate"] for item in found["items"]] == [10.0] * 3
    assert found["items"][0]["at"] == "2027-01-15T08:00:00Z"
    assert found["seconds"] == 60
    assert [i["rate"] for i in service.get("/v1/history?query=q&last=2")["items"]] == [0.0]
    assert service.get("/v1/history?last=4")["items"][0]["rate"] == 11.0
    service.get(f"/v1/history?last={KEPT + 1}", 422)


@pytest.mark.parametrize(("seconds", "points"), [(5.0, 1), (0.0, 0)])
def test_who_leads_keeps_points_and_nobody_else(
    settings: ServiceSettings, seconds: float, points: int
) -> None:
    async def turns() -> list[str]:
        server = Redis.from_url(settings.redis_url, decode_responses=True)
        store = Store(server, settings.namespace)
        lease = Lease(server, store.keys, "here", 5.0)
        leading = asyncio.create_task(lease.run()) if seconds else None
        try:
            while leading is not None and lease.term is None:
                await asyncio.sleep(0.01)
            recorder = Recorder(store, lease)
            for now, progress in ((0.0, BEFORE), (60.0, AFTER)):
                await server.set(store.keys.runtime, progress.dumps())
                await recorder.turn(now)
            return [point.model_dump_json() for point in await store.history(10)]
        finally:
            if leading is not None:
                leading.cancel()
                await asyncio.wait({leading})
            await server.aclose()

    found = asyncio.run(turns())
    assert len(found) == points
    assert all('"orders":10.0' in text for text in found)
