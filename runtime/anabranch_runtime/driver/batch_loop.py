"""The thread that runs batches: plans the input of the next batch, and runs it if there is any."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.sources.batch_input import FEW
from anabranch_runtime.sources.key_bell import KeyBell

#: Least and greatest seconds between two attempts to plan a batch while no input waits. Each pause
#: is twice the one before; it ends when input arrives in the pipeline's Redis (``key_bell``).
PAUSES = 0.005, 0.04
#: Greatest pause after a batch, in seconds.
LONGEST = 0.25


@dataclass(slots=True)
class BatchPace:
    """Pauses after batches of few rows that took little longer than an empty batch.

    Fixed costs dominate small batches; after a pause the next batch has more rows.
    """

    #: Estimated seconds of an empty batch: the least of the recent batches.
    _fixed: float = float("inf")

    def pause(self, rows: int, seconds: float) -> float:
        """Return the seconds to wait after a batch of ``rows`` that took ``seconds``: three times
        the fixed cost (the time of an empty batch) if it was empty; 0 if it took at least twice the
        fixed cost, or had many rows."""
        if rows > FEW:
            return 0.0
        self._fixed = min(seconds, 1.01 * self._fixed)
        return min(max(3 * (2 * self._fixed - seconds), 0.0), LONGEST)


@dataclass(slots=True)
class BatchLoop:
    """Runs batches one after the other.

    Attributes:
        committed: called after every batch. ``prepare``: called before a batch is planned.
        error: the error that has ended the loop.
    """

    driver: Driver
    job: Job
    committed: Callable[[], None]
    prepare: Callable[[], None] = lambda: None
    error: BaseException | None = None
    #: Wakes the loop when a source in the pipeline's own Redis gets input.
    _bell: KeyBell | None = None
    _thread: threading.Thread | None = None
    #: Lock held while a batch is planned and run.
    _busy: threading.Lock = field(init=False, default_factory=threading.Lock)
    _leaving: threading.Event = field(init=False, default_factory=threading.Event)

    def start(self) -> None:
        """Start the thread that runs batches, and the bell that wakes it when input arrives in
        Redis."""
        sources = self.driver.progress.sources
        waking = (one.waking for one in sources.planned.values()) if sources is not None else ()
        self._bell = KeyBell(self.driver.control.url, frozenset().union(*waking))
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def between_batches(self) -> Iterator[bool]:
        """Keep the loop from starting a batch during the ``with`` block. Yields False if a batch is
        being planned or run already; then the block must not disturb that batch."""
        free = self._busy.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._busy.release()

    def leave(self, seconds: float) -> bool:
        """End the loop after the running batch; return whether it has ended within ``seconds``."""
        self._leaving.set()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        (least, greatest), pace, bell = PAUSES, BatchPace(), self._bell
        assert bell is not None
        pause = least
        try:
            while not self._leaving.is_set():
                began = time.perf_counter()
                rows = self._turn()
                if rows is not None:
                    pause = least
                    bell.disarm()
                    if self._may_pause:
                        self._leaving.wait(pace.pause(rows, time.perf_counter() - began))
                elif not bell.arm():
                    pause = least if bell.wait(pause) else min(2 * pause, greatest)
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            self.error = error
        finally:
            bell.close()

    @property
    def _may_pause(self) -> bool:
        """Whether a pause before the next batch may make it larger. It can't while a snapshot is
        read, or with recordings, whose batches have a fixed size."""
        sources, live = self.driver.progress.sources, self.driver.settings.mode is Mode.LIVE
        feeds = live and sources is not None and bool(sources.feeds)
        return feeds and not self.driver.progress.rate_limiter.input.reads_snapshot

    def _turn(self) -> int | None:
        """Deliver groups of results that are due, let epochs begin and end, and run the next batch.
        Return the batch's number of tuples; None if no input waits."""
        with self._busy:
            self.prepare()
            self.driver.publisher.retry()
            self.driver.look()
            offsets = self.driver.plan()
            if offsets is None:
                return None
            rows = self.driver.run(self.job, offsets)
            self.committed()
            return rows
