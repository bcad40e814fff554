"""The right to run a pipeline: the locks of state directory and object store. A standby waits for
them.

A standby has everything ready that does not depend on the state: its imports, Spark's session, and
Python workers. The kernel releases the directory's lock when the process that holds it ends, so a
standby on the same machine takes over within :data:`LOOK` seconds. An object store's lease is free
once its holder has not renewed it for a while (``storage.lease``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import structlog
from redis.exceptions import RedisError

from anabranch_runtime.control import Control
from anabranch_runtime.driver.reporting.heartbeat import Heart
from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.durable import Durable
from anabranch_runtime.storage.pipeline_lock import exclusive

#: Seconds between a standby's attempts to get the directory's lock, and the store's lease.
LOOK, LOOK_AT_STORE = 0.02, 0.25
#: Seconds between two checks for a stop request, and of the workers.
CHECK = 0.5
#: Codes of errors of a lock held by another process -> seconds between a standby's attempts.
_HELD = {"state-in-use": LOOK, "store-in-use": LOOK_AT_STORE}

_LOG = structlog.get_logger("anabranch.runtime")


class Standby:
    """Waits, as a standby, for the end of the process that runs the pipeline."""

    def __init__(self, control: Control, warm: Callable[[], None]) -> None:
        """Prepare a standby; ``warm`` makes Spark and workers ready, and is called now and then."""
        self._control, self._warm = control, warm
        self._heart = Heart(control, standby=True)
        self._beating = contextlib.ExitStack()
        self._checked: float | None = None

    def wait(self, seconds: float) -> bool:
        """Wait ``seconds``, the first time until Spark is ready; return False at a stop request."""
        if self._checked is None:
            _LOG.info("standby waits for the end of another process")
            self._beating.enter_context(self._heart.beating())
        if self._checked is None or time.monotonic() - self._checked > CHECK:
            self._warm()
            self._heart.working()
            self._checked = time.monotonic()
            # If Redis is unreachable, the running process ends too, so the standby goes on waiting.
            with contextlib.suppress(RedisError):
                return not self._control.stop_requested()
        time.sleep(seconds)
        return True

    def close(self) -> None:
        """End the heartbeat of the waiting standby."""
        if self._checked is not None:
            _LOG.info("standby takes over")
        self._beating.close()


@contextlib.contextmanager
def turn(root: Path, storage: Durable, standby: Standby | None) -> Iterator[bool]:
    """Hold the locks of the pipeline in the ``with`` block; yields False if a stop is requested
    before ``standby`` has got them.

    Raises:
        StateError: ``state-in-use`` or ``store-in-use``, without a standby.
    """
    holds = (partial(exclusive, root), partial(storage.held, standby=standby is not None))
    with contextlib.ExitStack() as held:
        for hold in holds:
            while True:
                try:
                    held.enter_context(hold())
                    break
                except StateError as error:
                    if standby is None or error.code not in _HELD:
                        raise
                    if not standby.wait(_HELD[error.code]):
                        yield False
                        return
        if standby is not None:
            standby.close()
        yield True
