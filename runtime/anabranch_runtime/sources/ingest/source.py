"""Base class of sources that are read by threads: rows land as files before batches read them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from anabranch_contract.errors import StructuredError
from anabranch_contract.protocol.intake import SourceState, SourceStatus
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.errors import PipelineError, SourceError
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.sources.ingest import landing

_LOG = structlog.get_logger("anabranch.runtime")

#: Maximum bytes and number of batches of one source that have landed and are unread.
MOST_BYTES, MOST_BATCHES = 256 << 20, 10_000
#: Seconds between two checks of a source's state.
LOOK = 0.1
#: Seconds between two attempts to read a failing source: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0


@dataclass(slots=True, eq=False)
class IngestSource:
    """A source, and the thread that reads it (again and again after failures) into landed batches.

    Attributes:
        reached: number of the landed batch that the pipeline reads next.
        floor: least number of a landed batch that a repeated batch may still read.
    """

    record: StreamRecord
    home: Path
    reached: int
    floor: int = 0
    status: SourceStatus = field(init=False)
    error: StructuredError | None = None
    _last: landing.Landed | None = None
    _next: int = 0
    #: Number of a landed batch that is still needed -> its bytes.
    _bytes: dict[int, int] = field(default_factory=dict)
    _forgotten: int = 0
    _failures: int = 0
    _leaving: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.status = self._status(SourceState.NOT_TRIED)
        name = f"ingest {self.record.name}"
        self._thread = threading.Thread(target=self._keep_up, name=name, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Request the thread that reads the source to end; return at once."""
        self._leaving.set()

    def join(self) -> None:
        """Wait until the thread that reads the source has ended."""
        self.leave()
        assert self._thread is not None
        self._thread.join()

    def drain(self) -> None:
        """Wait until all input that has arrived in the source has landed."""

    def retire(self) -> None:
        """Release the source's objects on its server, such as a slot: the stream is deleted."""

    def _read(self) -> None:
        """Read the source and land its rows, until the thread is to end.

        Raises:
            Exception: the source can't be read.
        """
        raise NotImplementedError

    def _judged(self, error: Exception) -> StructuredError | None:
        """Return the error to report for a failure to read the source; None ends the thread."""
        return self._source_error(str(error) or repr(error))

    def _status(self, state: SourceState, error: str | None = None) -> SourceStatus:
        return SourceStatus(self.record.registration, state, error, time.time())

    def _keep_up(self) -> None:
        while not self._leaving.is_set():
            try:
                self._read()
            except StructuredError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - whatever fails, it is this source
                judged = self._judged(error)
                if judged is None:
                    return
                self._failed(judged)
            pause = min(FIRST_PAUSE * 2 ** max(self._failures - 1, 0), LONGEST_PAUSE)
            self._leaving.wait(pause)

    def _failed(self, error: StructuredError) -> None:
        self._failures += 1
        self.error = error
        _LOG.error("source failed", stream=self.record.name, error=str(error), times=self._failures)
        if self.status.state is not SourceState.FAILED or self.status.error != str(error):
            self.status = self._status(SourceState.FAILED, str(error))

    def _source_error(self, why: str) -> SourceError:
        return SourceError(
            "source-failed",
            f"format {self.record.source.format!r}: {why}",
            field=f"streams.{self.record.name}.source",
            remedy="correct what the message names; the source is tried again by itself",
        )

    def _reads(self) -> None:
        """Record that the source can be read at present."""
        self._failures, self.error = 0, None
        self.status = self._status(SourceState.READING)

    def _list_landed(self) -> None:
        """List the landed batches on disk."""
        landing.clear_unfinished(self.home)
        there = landing.numbers(self.home)
        self._next = there[-1] + 1 if there else 0
        self._last = landing.read_landed(self.home, there[-1]) if there else None
        self._bytes = {
            n: found.bytes
            for n in there
            if n >= self.reached and (found := landing.read_landed(self.home, n)) is not None
        }

    def _is_full(self) -> bool:
        """Whether no more input may land, because too much has landed and is unread."""
        self._bytes = {n: size for n, size in self._bytes.items() if n >= self.reached}
        return sum(self._bytes.values()) > MOST_BYTES or len(self._bytes) > MOST_BATCHES

    def _hold(self) -> None:
        """Wait as long as too much landed input is unread.

        Raises:
            PipelineError: the thread is to end.
        """
        while not self._leaving.is_set():
            if not self._is_full():
                return
            time.sleep(LOOK)
        raise PipelineError("stopped", "asked to stop before the batch began")

    def _finish(self, folder: Path, landed: landing.Landed) -> None:
        """Make the batch in ``folder`` the next landed batch."""
        landing.finish(self.home, folder, self._next, landed)
        self._bytes[self._next] = landed.bytes
        self._last, self._next = landed, self._next + 1

    def _tidy(self) -> None:
        """Delete landed batches that no batch can read again."""
        if self.floor > self._forgotten:
            reach(Point.FORGETTING)
            landing.forget(self.home, self.floor)
            self._forgotten = self.floor
