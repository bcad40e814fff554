"""Environment variables of a pipeline's processes."""

from __future__ import annotations

import os

REDIS_URL_VARIABLE = "ANABRANCH_REDIS_URL"
OBJECT_STORE_VARIABLE = "ANABRANCH_OBJECT_STORE"
CACHE_DIRECTORY_VARIABLE = "ANABRANCH_CACHE_DIRECTORY"


def given_redis_url() -> str | None:
    """URL of the Redis server in the environment, if any."""
    return os.environ.get(REDIS_URL_VARIABLE) or None
