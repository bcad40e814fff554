"""Tests of a day's record in points of a minute: from the runtime's counts to the REST API."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from redis.asyncio import Redis

from anabranch_contract.protocol.ages import bin_of, difference, percentile, summed
from anabranch_contract.protocol.intake import InputProgress, StreamIntake
from anabranch_contract.protocol.progress import Progress, Telemetry
from anabranch_service.planning.recorder import Recorder
from anabranch_service.registry.publishing.history import KEPT, MOST, HistoryPoint, point
from anabranch_service.registry.publishing.lease import Lease
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR
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


def test_ages_and_interruptions_between_two_looks() -> None:
    ages = {"orders": {"40": 3}, "old": {"8": 1}}
    before = replace(BEFORE, telemetry=replace(BEFORE.telemetry, ages=ages))
    grown = {"orders": {"40": 5, "60": 1}, "old": {"8": 1}, "new": {"20": 2}}
    failing = StreamIntake(error="no such folder")
    after = replace(
        AFTER,
        telemetry=replace(AFTER.telemetry, ages=grown),
        input=InputProgress(intake={"new": failing, "orders": StreamIntake()}),
        sinks={"q": "refused"},
    )
    found = point(before, after, 60, 60.0, working=False)
    assert found is not None
    assert found.ages == {"orders": {"40": 2, "60": 1}, "new": {"20": 2}}
    assert Progress.loads(after.dumps()) == after
    assert (found.working, found.unread, found.refused) == (False, ["new"], ["q"])
    assert found.interruption(["orders"], "q") == "no runtime works"
    works = found.model_copy(update={"working": True})
    assert works.interruption(["orders"], "q") == "the sink does not take results"
    assert works.interruption(["orders", "new"], "r") == "stream new can't be read"
    assert works.interruption(["orders"], "r") is None


def test_a_point_of_an_earlier_release_is_read() -> None:
    text = '{"at": 60, "batch_seconds": null, "rows": {}, "results": {"q": 1.0}}'
    found = HistoryPoint.model_validate_json(text)
    assert (found.working, found.ages, found.interruption((), "q")) == (True, {}, None)


def _record(shop: Service, hour: int, minute: int, **fields: Any) -> None:
    """Append the point of a minute of an hour (seconds since 1970)."""
    given = {"batch_seconds": 0.5, "rows": {}, "results": {}, **fields}
    found = HistoryPoint(at=hour + 60 * minute, **given)
    shop.redis.rpush(shop.keys.history, found.model_dump_json())


def test_the_course_of_a_query_tells_gaps_from_zeros(shop: Service) -> None:
    shop.post("/v1/queries", {"name": "a", "sql": PAIR}, 201)
    hour = (int(time.time()) // 3600 + 1) * 3600
    slow, quick = bin_of(4.0), bin_of(0.5)
    rates = {"results": {"a": 2.0}}
    _record(shop, hour, -200, **rates)  # before its registration
    _record(shop, hour, 1, **rates, ages={"orders": {quick: 50}, "other": {slow: 50}})
    _record(shop, hour, 2, results={}, ages={})
    # Minute 3 has no point.
    _record(shop, hour, 4, **rates, ages={"orders": {quick: 40, slow: 2}, "customers": {quick: 8}})
    _record(shop, hour, 5, batch_seconds=None, working=False)
    _record(shop, hour, 16, **rates, unread=["other"], refused=["b"])
    _record(shop, hour, 17, **rates, refused=["a"])
    one = shop.get("/v1/history?query=a")["items"]
    assert [item["rate"] for item in one] == [2.0, 0.0, 2.0, None, 2.0, 2.0]
    assert [item["freshness_p50"] for item in one] == [0.512, None, 0.512, None, None, None]
    assert one[2]["freshness_p99"] == 4.1
    assert [item["interruption"] for item in one] == [
        *[None] * 3, "no runtime works", None, "the sink does not take results",
    ]  # fmt: skip
    (first, second) = shop.get("/v1/history?query=a&minutes=15")["items"]
    assert (first["minutes"], first["interrupted_minutes"]) == (4, 1)
    assert first["rate"] == pytest.approx(4 / 3)
    assert (first["freshness_p50"], first["freshness_p99"]) == (0.512, 4.1)
    assert (second["minutes"], second["interrupted_minutes"]) == (2, 1)
    assert first["at"].endswith(":15:00Z")
    assert second["at"].endswith(":30:00Z")
    others = shop.get("/v1/history?stream=other")["items"]
    assert [item["interruption"] for item in others][-2:] == ["stream other can't be read", None]
    unknown = shop.get("/v1/history?query=none&last=6")["items"]
    assert {item["freshness_p99"] for item in unknown} == {None}
    shop.get("/v1/history?minutes=241", 422)


def test_percentiles_of_merged_ages_are_those_of_all_ages() -> None:
    """Compared with sorted ages: at least the age of that rank, and at most 19 % more."""
    rng = Random(5)
    for _ in range(200):
        ages = [rng.lognormvariate(0, 2) for _ in range(rng.randint(1, 60))]
        counts: list[dict[str, int]] = [{}, {}, {}]
        for age in ages:
            one = rng.choice(counts)
            one[bin_of(age)] = one.get(bin_of(age), 0) + 1
        for percent in (50, 99, 100):
            exact = sorted(ages)[math.ceil(len(ages) * percent / 100) - 1]
            found = percentile(summed(counts), percent)
            assert found is not None
            assert exact <= found * (1 + 1e-12)
            assert found <= max(exact, 0.001) * 2**0.25 * (1 + 1e-12)
        assert difference(counts[0], summed(counts)) == summed(counts[1:])


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
