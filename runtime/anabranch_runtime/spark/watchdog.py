"""Watchdog for hanging batches: a batch whose tasks give no sign of life is cancelled and retried.

A task that dies fails its attempt at the batch. A task that hangs (a stopped worker, a read that
never returns) would block its batch for ever. So a task that makes progress sends the driver a sign
of life about once a second (``exchange.lines``). Without any sign for long, the driver cancels the
stage (:class:`Watchdog`). Spark then kills its workers, which fails the attempt. If cancelling has
no effect, the process has to end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from anabranch_runtime.errors import PipelineError

_LOG = structlog.get_logger("anabranch.runtime")

#: Seconds for which a job may lack slots before it is cancelled; an executor may reconnect.
SHORT = 10.0
#: Maximum seconds for cancelling a job. (Spark waits two seconds before it kills a worker.)
GRACE = 60.0


@dataclass(slots=True)
class Watchdog:
    """Watches a batch's Spark job: one thread runs it in :meth:`over`, another calls :meth:`look`.

    Attributes:
        limit: seconds without a sign of life of any task after which the job is cancelled.
    """

    limit: float
    _watched: _Watched | None = None
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    @contextmanager
    def over(
        self, batch: int, signs: Callable[[], object], short: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Watch the job that the ``with`` block runs for ``batch``. ``signs`` returns a value that
        changes with each sign of life; ``short``: whether task slots lack, until the first sign.

        Raises:
            PipelineError: ``batch-stuck``, ``too-few-slots``: the job failed because it was
                cancelled.
        """
        watched = _Watched(batch, signs, short, time.monotonic(), signs())
        with self._lock:
            self._watched = watched
        try:
            yield
        except Exception as error:
            if watched.cancelled is None:
                raise
            raise self._why(watched) from error
        finally:
            with self._lock:
                self._watched = None

    def look(self, cancel: Callable[[], None]) -> None:
        """Cancel the watched job by ``cancel`` if it hangs or has lacked slots for too long.

        Raises:
            PipelineError: ``batch-stuck``: cancelling has had no effect.
        """
        with self._lock:
            watched, now = self._watched, time.monotonic()
            if watched is None:
                return
            if watched.cancelled is not None:
                if now - watched.cancelled > GRACE:
                    raise self._why(watched)
                return
            seen = watched.signs()
            if seen != watched.seen:
                watched.seen, watched.since, watched.begun = seen, now, True
            if watched.begun or not watched.short():
                watched.enough = now
            watched.lacking = now - watched.enough > SHORT
            if now - watched.since <= self.limit and not watched.lacking:
                return
            watched.cancelled = now
            error = self._why(watched)
            _LOG.error("batch cancelled", batch=watched.batch, error=str(error))
            # While the lock is held, the ``with`` block can't end, so no later job is cancelled.
            cancel()

    def _why(self, watched: _Watched) -> PipelineError:
        if watched.lacking:
            return PipelineError(
                "too-few-slots",
                f"batch {watched.batch} was cancelled before it began: some of its executors have "
                "gone",
                remedy="nothing to do: the batch is retried on the remaining executors",
            )
        return PipelineError(
            "batch-stuck",
            f"batch {watched.batch} was cancelled: none of its tasks has made progress for"
            f" {self.limit:.0f} s",
            remedy="check what its workers waited for (a disk, a network); if they are that slow,"
            " raise --stuck-after",
        )


@dataclass(slots=True)
class _Watched:
    """A watched job and its last signs of life.

    Attributes:
        begun: whether a task has given a sign of life. ``enough``: last time with enough slots, at
            first the start of the job. ``lacking``: whether that was too long ago.
        cancelled: time at which the job was cancelled.
    """

    batch: int
    signs: Callable[[], object]
    short: Callable[[], bool]
    since: float
    seen: object
    begun: bool = False
    enough: float = field(init=False)
    lacking: bool = False
    cancelled: float | None = None

    def __post_init__(self) -> None:
        self.enough = self.since
