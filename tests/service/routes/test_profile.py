"""Tests of CPU profiles over REST: of a pipeline in this process, and without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_contract.protocol.profile import CpuGroup, CpuReport, CpuUse
from anabranch_contract.rest.profile import CpuProfile, ProfileOut
from anabranch_runtime.driver.reporting import cpu_reporter
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service
from tests.support.worlds.small_pipeline import run_batches, small_pipeline


def counters(service: Service) -> ProfileOut:
    return ProfileOut.read(service.get("/v1/profile"))


def test_service_and_redis_are_counted_before_a_runtime_reports(service: Service) -> None:
    earlier = counters(service)
    assert (earlier.run, earlier.at) == ("", None)
    later = counters(service)
    assert later.service == earlier.service
    assert {use.group for use in later.uses} == {CpuGroup.SERVICE, CpuGroup.REDIS}
    assert later.seconds_since(earlier) == 0.0
    assert all(use.seconds > 0 for use in later.uses if use.name != "planner")
    service.redis.set(service.keys.profile, "no report")
    assert counters(service).run == ""


def test_a_summary_has_one_use_per_kind_of_work(service: Service) -> None:
    service.redis.set(
        service.keys.profile,
        CpuReport(
            "r",
            0.0,
            (
                CpuUse(CpuGroup.PROBE, "orders>items", ("a", "b"), 2.0),
                CpuUse(CpuGroup.PROBE, "items>orders", ("a",), 3.0),
                CpuUse(CpuGroup.SINK, "a", ("a",), 0.5),
            ),
        ).dumps(),
    )
    found = ProfileOut.read(service.get("/v1/profile?detail=summary"))
    of = {use.group: use for use in found.uses}
    assert of[CpuGroup.PROBE] == CpuUse(CpuGroup.PROBE, "", (), 5.0)
    assert of[CpuGroup.SINK] == CpuUse(CpuGroup.SINK, "", (), 0.5)
    assert len(found.uses) == len(of) == len({use.group for use in counters(service).uses})


def test_a_period_of_a_pipeline(
    shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_reporter, "EVERY", 0.0)
    monkeypatch.setattr(cpu_reporter, "REST", 0.0)
    for name in ("pairs", "twins"):
        shop.post("/v1/queries", {"id": name, "sql": PAIR})
    pipeline = small_pipeline(shop, tmp_path, every=50)
    run_batches(pipeline, 2)
    earlier = counters(shop)
    run_batches(pipeline, 4)
    later = counters(shop)
    found = CpuProfile.between(earlier, later)
    assert (later.run, later.service) == (earlier.run, earlier.service)
    assert found.seconds == pytest.approx(later.seconds_since(earlier))
    assert sum(found.queries.values()) == pytest.approx(found.cpu)
    assert sum(found.groups.values()) == pytest.approx(found.cpu)
    assert found.queries["pairs"] > 0
    assert found.queries["twins"] > 0
    steps = [use for use in found.uses if use.group is CpuGroup.PROBE and use.name]
    assert steps
    assert all(use.queries == ("pairs", "twins") for use in steps)
