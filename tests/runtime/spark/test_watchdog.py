"""Tests of the watchdog of hanging batches: those with progress are left alone, others are
cancelled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from anabranch_runtime.driver import pipeline
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.spark import watchdog as stuck
from anabranch_runtime.spark.watchdog import Watchdog


class Cancelled(Exception):
    """Replaces Spark's error of a cancelled job."""


class Clock:
    """Replaces the watchdog's clock: no pause of this process counts as one of a task."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def looked(
        self, watchdog: Watchdog, seconds: float, sign: Callable[[], None] = lambda: None
    ) -> int:
        """Let the watchdog look for a while, with a task that makes progress; return how often the
        job was cancelled.
        """
        cancelled: list[None] = []
        end = self.now + seconds
        while self.now < end:
            sign()
            watchdog.look(lambda: cancelled.append(None))
            self.now += 0.01
        return len(cancelled)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(stuck, "time", found)
    return found


def test_a_job_is_cancelled_once_that_gives_no_sign_for_long(clock: Clock) -> None:
    watchdog, given = Watchdog(0.5), itertools.count()
    seen = 0

    def sign() -> None:
        nonlocal seen
        seen = next(given)

    def job() -> None:
        assert clock.looked(watchdog, 1.2, sign) == 0
        assert clock.looked(watchdog, 1.2) == 1
        raise Cancelled

    with (
        pytest.raises(PipelineError, match="batch 7 was cancelled") as caught,
        watchdog.over(7, lambda: seen),
    ):
        job()
    assert caught.value.code == "batch-stuck"
    assert isinstance(caught.value.__cause__, Cancelled)
    # No batch runs: nothing is cancelled.
    assert clock.looked(watchdog, 0.7) == 0
    with pytest.raises(Cancelled), watchdog.over(8, lambda: seen):
        raise Cancelled


def test_a_job_that_cannot_be_cancelled_is_an_error(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "GRACE", 0.3)
    watchdog = Watchdog(0.1)
    with (
        watchdog.over(7, lambda: 0),
        pytest.raises(PipelineError) as caught,
    ):
        clock.looked(watchdog, 1.0)
    assert caught.value.code == "batch-stuck"


def test_a_session_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "SESSION", 0.05)
    with pytest.raises(PipelineError) as caught:
        pipeline._session(Future())
    assert caught.value.code == "spark-not-started"
    failed: Future[object] = Future()
    failed.set_exception(TimeoutError("of its own"))
    with pytest.raises(TimeoutError, match="of its own"):
        pipeline._session(failed)  # type: ignore[arg-type]


def test_a_job_is_cancelled_that_cannot_begin_as_executors_have_gone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "SHORT", 0.3)
    watchdog, given = Watchdog(60.0), 0

    def job() -> None:
        assert clock.looked(watchdog, 0.6) == 1
        raise Cancelled

    with pytest.raises(PipelineError) as caught, watchdog.over(7, lambda: given, lambda: True):
        job()
    assert caught.value.code == "too-few-slots"
    with watchdog.over(8, lambda: given, lambda: True):
        given += 1
        # Its tasks run: the slots are its own.
        assert clock.looked(watchdog, 0.6) == 0
    missing = True
    with watchdog.over(9, lambda: given, lambda: missing):
        assert clock.looked(watchdog, 0.2) == 0
        missing = False
        assert clock.looked(watchdog, 0.2) == 0
        missing = True
        assert clock.looked(watchdog, 0.2) == 0
