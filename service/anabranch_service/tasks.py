"""The end of background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Any

#: Seconds between two cancellations of a task that has not ended.
AGAIN_SECONDS = 1.0


async def cancel(tasks: AbstractSet[asyncio.Task[Any]]) -> None:
    """Cancel ``tasks`` until all have ended.

    One cancellation is not enough: up to Python 3.11 ``asyncio.wait_for``, which the Redis client
    uses for each command, drops a cancellation that comes as its operation ends.
    """
    going = set(tasks)
    while going:
        for task in going:
            task.cancel()
        _, going = await asyncio.wait(going, timeout=AGAIN_SECONDS)
