"""Tests of batches' reports over REST."""

from __future__ import annotations

from tests.service.pages.test_batches import batch, keep
from tests.support.worlds.service import Service


def test_phases_add_up_to_the_time_of_a_batch(service: Service) -> None:
    assert service.get("/v1/batches") == {"items": []}
    keep(service, batch(3))
    (one,) = service.get("/v1/batches")["items"]
    assert sum(phase["milliseconds"] for phase in one["phases"]) == one["milliseconds"]
    report = batch(3)
    assert one["milliseconds"] == report.begin + report.job + report.commit
    assert [phase["name"] for phase in one["phases"]] == [
        *("begin", "read", "store", "wait", "probe", "spark", "commit")
    ]
    assert one["skew"] == 1.25


def test_the_newest_come_last_and_unreadable_ones_are_left_out(service: Service) -> None:
    keep(service, *map(batch, range(5)))
    service.redis.rpush(service.keys.batches, "not a report")
    found = service.get("/v1/batches?last=3")["items"]
    assert [one["batch"] for one in found] == [3, 4]
