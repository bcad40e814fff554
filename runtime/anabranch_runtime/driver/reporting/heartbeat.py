"""The runtime's heartbeat: written for as long as its main loop is known to be well.

A thread of its own writes it, so that it does not depend on how long a step of the main loop takes.
But it vouches for the main loop, which extends its validity again and again (:meth:`Heart.well`). A
main loop that hangs, for instance in a call of a JVM that stands still, extends it no more, and the
heartbeat expires.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from redis.exceptions import RedisError

from anabranch_runtime.control import Control

#: Seconds between two heartbeats.
EVERY = 1.0
#: Seconds that a turn of the main loop may take.
TURN = 5.0
#: Seconds that steps may take that read or write any amount of data: reading the state and
#: starting Spark, opening sources, waiting for a batch to end, leaving.
LONG = 600.0


class Heart:
    """Writes the heartbeat; see the module."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._state = "starting"
        self._until = time.monotonic() + LONG
        self._over = threading.Event()

    def well(self, seconds: float = TURN) -> None:
        """Extend the heartbeat: the main loop is well, and reports again within ``seconds``."""
        self._until = time.monotonic() + seconds

    def working(self) -> None:
        """Report that the start is over."""
        self._state = "working"
        self.well()

    @contextlib.contextmanager
    def beating(self) -> Iterator[Heart]:
        """Beat during the block; at its end the heartbeat is removed."""
        thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()
            with contextlib.suppress(RedisError):
                self._control.stop_beating()

    def _beat(self) -> None:
        while True:
            if time.monotonic() < self._until:
                # A server that is away has no heartbeats.
                with contextlib.suppress(RedisError):
                    self._control.beat(self._state)
            if self._over.wait(EVERY):
                return
