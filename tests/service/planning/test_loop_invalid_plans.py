"""Test that a plan that does not answer its queries is not published, and the running rules are
kept.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from anabranch_contract.plans import ruleset as wire
from anabranch_contract.protocol.progress import Boundary
from anabranch_planner.cost.steps import PlanError
from anabranch_service.clock import utc_now
from anabranch_service.planning.epoch import PlannedEpoch
from anabranch_service.planning.loop import EpochLoop, plan_and_explain
from anabranch_service.planning.task import PlanTask
from anabranch_service.presenters.metrics import Metrics
from anabranch_service.registry.publishing.lease import Lease
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings, own_address
from tests.service.conftest import CHAIN, STREAMS
from tests.support.worlds.service import serving


def lossy(task: PlanTask) -> PlannedEpoch:
    """A plan in which the tuples of one relation start no probe, so that results would be lost."""
    planned = plan_and_explain(task)
    plan = replace(planned.plan, orders=planned.plan.orders[1:])
    return replace(planned, plan=plan)


async def turn(settings: ServiceSettings, epoch: int) -> None:
    """Answer the end of ``epoch`` with a lossy plan."""
    redis = Redis.from_url(settings.redis_url, decode_responses=True)
    store = Store(redis, settings.namespace)
    try:
        await store.redis.rpush(store.keys.boundaries, Boundary(epoch, 4).dumps())
        lease = Lease(redis, store.keys, own_address(settings), settings.lease_seconds)
        await lease.turn()
        await EpochLoop(store, lease, settings, Metrics(), utc_now, lossy).turn()
    finally:
        await redis.aclose()


def test_the_rules_of_the_last_epoch_go_on(settings: ServiceSettings) -> None:
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
        service.plan(-1)
    asyncio.run(turn(settings, 0))
    with serving(settings) as service:
        kept = service.get("/v1/epochs/1")
        assert "orders and queries do not match" in kept["fallback"]
        assert "the rules of epoch 0 go on" in kept["fallback"]
        before, after = (wire.from_json(service.get(f"/v1/epochs/{n}/ruleset")) for n in (0, 1))
        assert after == replace(before, epoch=1)
        service.plan(1)
        assert service.get("/v1/epochs/2")["fallback"] == ""


def test_without_an_earlier_epoch_nothing_is_published(settings: ServiceSettings) -> None:
    with serving(settings) as service:
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        service.post("/v1/queries", {"id": "chain", "sql": CHAIN})
    with pytest.raises(PlanError, match="orders and queries do not match"):
        asyncio.run(turn(settings, -1))
    with serving(settings) as service:
        service.answered()
        assert service.get("/v1/epochs/0")["fallback"] == ""
