"""Tests of the rate limiter: back-pressure communicated through Redis."""

from __future__ import annotations

import time

from anabranch_contract.protocol.intake import StreamIntake
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.control import Control
from anabranch_runtime.sources.ingest.spark_stream import source_name
from anabranch_runtime.sources.pacing.back_pressure import FIRST_ROWS
from anabranch_runtime.sources.pacing.rate_limiter import RateLimiter
from anabranch_runtime.sources.pacing.snapshot_pace import FIRST
from anabranch_runtime.sources.pacing.snapshot_pace import FIRST_ROWS as SNAPSHOT_ROWS

#: Target seconds; a batch takes a fraction of them, also on a busy machine.
TARGET = 30.0


def test_the_limit_is_published_kept_over_a_restart_and_taken_back(url: str) -> None:
    control = Control(url, "test")
    limiter = RateLimiter(control, TARGET)
    limiter.open()
    assert control.limit() == FIRST_ROWS
    # The driver's part was quick, but the batch was planned long before.
    streams = {"s": StreamIntake(500, 2.0)}
    limiter.input.streams, limiter.input.planned = streams, time.time() + 1e-3
    time.sleep(0.3)
    limiter.done(FIRST_ROWS, 0.05, 0.0)
    # Seconds from the arrival of the oldest row to now.
    ((stream, age),) = limiter.ages.items()
    assert stream == "s"
    assert 2.2 < age < 2.0 + TARGET
    slow = control.limit()
    assert slow is not None
    assert FIRST_ROWS < slow <= 2 * FIRST_ROWS
    # An old plan (of a batch repeated after a restart) says nothing about its time.
    again = RateLimiter(control, TARGET)
    again.open()
    assert again.limit == slow
    again.input.streams, again.input.planned = streams, time.time() - 3600
    again.done(slow, 0.5, 0.0)
    assert again.ages == {}
    assert again.limit is not None
    assert again.limit >= slow
    assert again.intake({"bad": "no such format"}) == {
        **streams,
        "bad": StreamIntake(error="no such format"),
    }
    off = RateLimiter(control, None)
    off.open()
    off.done(10**9, 100.0, 2.0)
    assert (off.limit, control.limit()) == (None, None)


def test_memory_alone_holds_batches_too(url: str) -> None:
    limiter = RateLimiter(Control(url, "test"), None, frugal=True)
    limiter.open()
    assert limiter.limit == FIRST_ROWS
    limiter.done(FIRST_ROWS, 100.0, 0.1)
    assert limiter.limit == 2 * FIRST_ROWS
    limiter.done(2 * FIRST_ROWS, 100.0, 3.0)
    assert limiter.limit == FIRST_ROWS


def test_the_pace_of_snapshots_follows_batches_with_a_target(url: str) -> None:
    limiter = RateLimiter(Control(url, "test"), TARGET)
    limiter.open()
    known = limiter.input
    assert known.pace == SNAPSHOT_ROWS

    def batch(rows: int, paced: int) -> None:
        known.planned, known.paced = time.time() + 1e-3, paced
        time.sleep(2e-3)
        limiter.done(rows, TARGET, 0.0)

    for _ in range(3):
        batch(50, 0)
    assert known.pace == SNAPSHOT_ROWS
    for _ in range(FIRST + 1):
        batch(SNAPSHOT_ROWS + 50, SNAPSHOT_ROWS)
    assert known.pace is not None
    assert known.pace > SNAPSHOT_ROWS
    pace = known.pace
    # An old plan says nothing about a batch's time.
    known.planned, known.paced = time.time() - 3600, pace
    limiter.done(pace, 0.0, 0.0)
    assert known.pace == pace
    for target in (None, TARGET):
        other = RateLimiter(Control(url, "test"), target, frugal=True)
        other.open()
        assert (other.input.pace is None) == (target is None)


def test_a_source_of_spark_keeps_its_name_as_long_as_it_is_the_same() -> None:
    def named(registration: str = "1", **source: object) -> str:
        document = {"name": "s", "columns": [], "source": {"format": "text", **source}}
        record = StreamRecord.model_validate({**document, "registration": registration})
        return source_name(record)

    options = {"a": "1", "b": "2"}
    assert named(options=options) == named(options=dict(reversed(options.items())))
    others = {named(options=options), named(path="/x"), named(path="/y"), named("2")}
    assert len(others | {named()}) == 5
    assert named().isidentifier()
