"""The runtime's heartbeat, written as long as its main loop makes progress.

A separate thread writes the heartbeat, so that long steps of the main loop do not interrupt it. But
the main loop has to extend the heartbeat's validity again and again (:meth:`Heart.well`). If the
main loop hangs, for instance in a call of a hanging JVM, the validity ends and the heartbeat
expires.
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
#: Maximum seconds of one turn of the main loop, after which the heartbeat would stop.
TURN = 5.0
#: Maximum seconds of steps whose length depends on the amount of data: reading the state and
#: starting Spark, opening sources, waiting for the end of a batch, ending the run.
LONG = 600.0


class Heart:
    """Writes the heartbeat; see the module docstring. A standby writes a key of its own."""

    def __init__(self, control: Control, *, standby: bool = False) -> None:
        self._control, self._standby = control, standby
        self._state = "starting"
        self._until = time.monotonic() + LONG
        self._over = threading.Event()

    def well(self, seconds: float = TURN) -> None:
        """Extend the heartbeat by ``seconds``, within which the main loop calls this again."""
        self._until = time.monotonic() + seconds

    def working(self) -> None:
        """Write in the heartbeat that the runtime has started and works."""
        self._state = "working"
        self.well()

    @contextlib.contextmanager
    def beating(self) -> Iterator[Heart]:
        """Write heartbeats during the ``with`` block; at its end, remove the heartbeat."""
        thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()
            with contextlib.suppress(RedisError):
                self._control.stop_beating(standby=self._standby)

    def _beat(self) -> None:
        while True:
            if time.monotonic() < self._until:
                # While the server is unreachable, heartbeats are left out.
                with contextlib.suppress(RedisError):
                    self._control.beat(self._state, standby=self._standby)
            if self._over.wait(EVERY):
                return
