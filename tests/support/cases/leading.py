"""A service that leads, without its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_service.registry.publishing.lease import Lease
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.store import Store

if TYPE_CHECKING:
    from redis.asyncio import Redis


async def leading(redis: Redis, namespace: str) -> Publication:
    """The writes of a service that has come to lead in ``namespace``."""
    store = Store(redis, namespace)
    lease = Lease(redis, store.keys, "here", 5.0)
    await lease.turn()
    assert lease.term is not None
    return Publication(store, lease.term)
