"""Tests that decisions on a held plan count though the leader is planning meanwhile, and that
refusals are remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from anabranch_service.clock import utc_now
from anabranch_service.registry.publishing.approvals import (
    REFUSED_KEPT,
    Approvals,
    HeldPlan,
    Refusals,
)
from anabranch_service.registry.publishing.lease import LeaderTerm
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.store import Store
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service


def plan(digest: str, basis: str = "b") -> HeldPlan:
    now = utc_now()
    return HeldPlan(
        digest=digest, basis=basis, since=now, proposed_at=now, epoch=3, waiting=("pair",)
    )


@asynccontextmanager
async def leading(shop: Service) -> AsyncIterator[tuple[Store, Publication]]:
    """Context with the store and the writes of the leading service."""
    async with Redis.from_url(shop.settings.redis_url, decode_responses=True) as redis:
        leader = await redis.hgetall(shop.keys.leader)
        store = Store(redis, shop.keys.namespace)
        yield store, Publication(store, LeaderTerm(str(leader["owner"]), int(leader["token"])))


@pytest.mark.parametrize("word", ["approve", "refuse"])
def test_what_is_said_while_the_leader_plans_stands(shop: Service, word: str) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    record = EpochRecord.model_validate_json(str(shop.redis.get(shop.keys.epoch(0))))
    text = str(shop.redis.get(shop.keys.ruleset(0)))

    async def run() -> Approvals:
        async with leading(shop) as (store, publication):
            await publication.hold(Approvals(), plan("first"), record, text)
            seen = await store.approvals()
            assert seen.waits
            assert await store.held_plan() == (record, text)
            assert not await store.approve(plan("another"))
            assert not await store.refuse(seen, plan("another"))
            # The leader has read the state, and is planning. Meanwhile a user decides.
            if word == "approve":
                assert await store.approve(plan("first"))
            else:
                assert await store.refuse(seen, plan("first"))
            await publication.hold(seen, plan("second"), record, text)
            return await store.approvals()

    found = asyncio.run(run())
    if word == "approve":
        assert found.is_approved
        assert found.reason("pair") is None
    else:
        assert found.held is None
        assert found.refuses("first", "b")
        assert not found.refuses("first", "another basis")
        assert found.reason("pair") == "its plan was refused"


def test_refusals_are_of_one_basis_and_bounded() -> None:
    known = None
    for number in range(REFUSED_KEPT + 2):
        known = Refusals.after(known, plan(str(number)))
    assert known is not None
    assert len(known.digests) == REFUSED_KEPT
    assert known.digests[-1] == str(REFUSED_KEPT + 1)
    assert Refusals.after(known, plan("x", basis="another")).digests == ("x",)
