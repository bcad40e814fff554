"""Tests of deliveries to Kafka sent by a thread (courier): begun once, in order, each with its own
error.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from anabranch_runtime.errors import SinkUnderway
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.kafka.courier import Courier
from tests.support.surroundings.deliveries import sink

TOPIC = sink("kafka", brokers="host:9092", topic="t")


class Line:
    """A writer that blocks until released, and then fails if given an error."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.free, self.begun = threading.Event(), threading.Event()
        self.errors: list[BaseException] = []

    def write(self, delivery: Delivery) -> None:
        self.begun.set()
        assert self.free.wait(60)
        if self.errors:
            raise self.errors.pop()
        self.taken.append((delivery.query, delivery.batch))


def delivery(query: str, batch: int) -> Delivery:
    return Delivery(query, TOPIC, batch, (Path("nowhere"),))


def done(courier: Courier, one: Delivery) -> None:
    """Poll until a delivery is done."""
    while True:
        try:
            return courier(one)
        except SinkUnderway:
            time.sleep(0.001)


def test_a_delivery_is_begun_once_and_its_callers_go_on() -> None:
    line = Line()
    courier = Courier(line.write)
    for one in (delivery("q", 0), delivery("p", 7), delivery("q", 0), delivery("q", 1)):
        # The second delivery of a query is begun when the first is done.
        with pytest.raises(SinkUnderway) as caught:
            courier(one)
        assert caught.value.pause
    assert line.begun.wait(60)
    assert line.taken == []
    line.free.set()
    for one in (delivery("q", 0), delivery("q", 1), delivery("p", 7)):
        done(courier, one)
    assert line.taken == [("q", 0), ("p", 7), ("q", 1)]


def test_the_call_that_begins_a_delivery_never_ends_it() -> None:
    line = Line()
    line.free.set()
    courier = Courier(line.write)
    for batch in range(50):
        with pytest.raises(SinkUnderway):
            courier(delivery("q", batch))
        done(courier, delivery("q", batch))
    assert line.taken == [("q", batch) for batch in range(50)]


def test_an_error_is_raised_once_and_the_next_call_tries_again() -> None:
    line = Line()
    line.free.set()
    courier = Courier(line.write)
    line.errors = [KeyboardInterrupt("gone"), OSError("torn")]
    for error in (OSError, KeyboardInterrupt):
        with pytest.raises(error):
            done(courier, delivery("q", 0))
    done(courier, delivery("q", 0))
    assert line.taken == [("q", 0)]


def test_the_error_of_another_batch_is_not_raised() -> None:
    line = Line()
    line.free.set()
    courier = Courier(line.write)
    line.errors = [OSError("torn")]
    with pytest.raises(SinkUnderway):
        courier(delivery("q", 3))
    # The state was rolled back meanwhile.
    done(courier, delivery("q", 2))
    done(courier, delivery("q", 3))
    assert line.taken == [("q", 2), ("q", 3)]
