"""Threads for what a request asks the planner to understand, and how long that may take.

Parsing holds up everything else in the event loop, so it runs in threads of its own. They are few:
what was given up after its time is over still runs to its end, and whoever comes next waits for a
thread no longer than for an answer. A thread can't be stopped, but the sizes that
``registry.sizes`` checks bound what it does, and what comes in steps looks at its :class:`Deadline`
between them.
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

#: Requests whose statements are read at one time.
_THREADS = 2


def go_on(deadline: Deadline) -> None:
    """Give up what takes too long, between two steps in a thread.

    Raises:
        Busy: ``registration-too-slow``.
    """
    if deadline.expired():
        raise _too_slow(deadline.seconds or 0.0)


def _too_slow(seconds: float) -> Busy:
    return Busy(
        "registration-too-slow",
        f"the request was not understood within {seconds:g} s, and nothing of it is kept",
        remedy="try again when the machine has less to do, or ask for less: fewer aliases, "
        "conditions or columns; --registration-seconds (ANABRANCH_REGISTRATION_SECONDS) allows "
        "more time",
    )


class Work:
    """Where statements are read."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="understanding")

    async def call(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """The result of ``function``, which touches nothing shared."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **named))

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[Deadline]:
        """A block that may take so long, and a deadline for what runs in threads.

        The block must change nothing: it may be given up wherever it waits.

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
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
