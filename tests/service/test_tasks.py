"""The end of background tasks."""

from __future__ import annotations

import asyncio

import pytest

from anabranch_service import tasks
from anabranch_service.tasks import cancel


async def _deaf(times: int) -> None:
    """Drop a number of cancellations, as a call that ends at the same time does."""
    while times >= 0:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            times -= 1
    raise asyncio.CancelledError


@pytest.mark.parametrize("dropped", [0, 1, 3])
def test_a_task_that_drops_cancellations_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch, dropped: int
) -> None:
    monkeypatch.setattr(tasks, "AGAIN_SECONDS", 0.01)

    async def run() -> list[asyncio.Task[None]]:
        found = [asyncio.create_task(_deaf(dropped)), asyncio.create_task(_deaf(0))]
        await asyncio.sleep(0)
        await cancel(set(found))
        return found

    assert [task.cancelled() for task in asyncio.run(run())] == [True, True]


def test_nothing_to_cancel() -> None:
    asyncio.run(cancel(set()))
