"""Cancellation of background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Any


async def cancel(tasks: AbstractSet[asyncio.Task[Any]]) -> None:
    """Cancel ``tasks`` and wait until all have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
