"""Records in Redis as a service or runtime of any release has written them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from anabranch_contract.protocol.keys import Keys

if TYPE_CHECKING:
    from redis import Redis


def put(redis: Redis, keys: Keys, kind: str, name: str, text: str) -> None:
    """Write a record of ``streams``, ``queries`` or ``activations`` to Redis, and its index."""
    journal = keys.activation_changes if kind == "activations" else keys.changes
    redis.hset(getattr(keys, kind), name, text)
    redis.xadd(journal, {kind: json.dumps([name])})


def remove(redis: Redis, keys: Keys, kind: str, name: str) -> None:
    """Remove such a record from Redis."""
    redis.hdel(getattr(keys, kind), name)
    redis.xadd(keys.changes, {kind: json.dumps([name])})
