"""Threads, with time limits, for requests that parse statements, plan, or read sources.

Neither the event loop nor the planning of epochs may wait for such work, so it runs in a few
separate threads. A thread can't be interrupted: after a time-out its work continues, and later
requests wait for it. So work checks its :class:`Deadline` between steps, and ``registry.sizes``
limits each step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")

#: Numbers of threads for parsing statements, planning dry runs, and reading sources.
_READERS, _PLANNERS, _LOOKERS = 2, 2, 2
#: Time limit of reading a source, in seconds.
LOOK_SECONDS = 10.0


def go_on(deadline: Deadline) -> None:
    """Raise an error if the ``deadline`` of a request's planning has passed.

    Raises:
        Busy: ``registration-too-slow``.
    """
    if deadline.expired():
        raise _too_slow(deadline.seconds or 0.0)


def _too_slow(seconds: float) -> Busy:
    return Busy(
        "registration-too-slow",
        f"the request was not parsed and checked within {seconds:g} s; nothing is stored",
        remedy="try again when the machine is less busy, or use fewer aliases, conditions or "
        "columns; --registration-seconds (ANABRANCH_REGISTRATION_SECONDS) sets the time limit",
    )


class ThreadPools:
    """Three pools of threads, for functions that change no shared state."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="reading")
        self._planners = ThreadPoolExecutor(_PLANNERS, thread_name_prefix="dry-run")
        self._lookers = ThreadPoolExecutor(_LOOKERS, thread_name_prefix="source-test")

    async def read(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a function that parses statements, in a thread."""
        return await _call(self._readers, lambda: function(*args, **named))

    async def plan(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a function that plans, in a thread; the planner's own time limit bounds it."""
        return await _call(self._planners, lambda: function(*args, **named))

    async def look(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a function that reads a source, in a thread, for at most :data:`LOOK_SECONDS`.

        Raises:
            Busy: ``source-too-slow``.
        """
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await _call(self._lookers, lambda: function(*args, **named))
        except TimeoutError:
            raise Busy(
                "source-too-slow",
                f"the source was not read within {LOOK_SECONDS:g} s",
                field="source",
                remedy="check that its file system or server answers, and try again: other tests of"
                " sources may have used up the time",
            ) from None

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[Deadline]:
        """Context that cancels its block at the deadline; the block must not write to Redis.

        Raises:
            Busy: ``registration-too-slow``.
        """
        limit = asyncio.timeout(self.seconds)
        try:
            async with limit:
                yield Deadline(time.monotonic, seconds=self.seconds)
        except TimeoutError:
            if limit.expired():
                raise _too_slow(self.seconds) from None
            raise

    def close(self) -> None:
        """Shut the pools down: waiting work is cancelled, running work is not awaited."""
        for pool in (self._readers, self._planners, self._lookers):
            pool.shutdown(wait=False, cancel_futures=True)


async def _call(pool: ThreadPoolExecutor, function: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, function)
