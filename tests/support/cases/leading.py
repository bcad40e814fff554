"""Writes of a leading service, without the service's process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_service.registry.publishing.lease import Lease
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.store import Store

if TYPE_CHECKING:
    from redis.asyncio import Redis


async def leading(redis: Redis, namespace: str) -> Publication:
    """Return the publication of a service that has just become the leader in ``namespace``."""
    store = Store(redis, namespace)
    lease = Lease(redis, store.keys, "here", 5.0)
    await lease.turn()
    assert lease.term is not None
    return Publication(store, lease.term)
