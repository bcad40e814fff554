"""Tests of a driver with a Kafka topic as sink, in random runs: kills at any step, batches repeated
after a rollback, zombies, stopped brokers. A reader of committed messages sees each result once.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from anabranch_contract.connectors.sinks import SinkKind, SinkSpec
from anabranch_runtime.driver import driver as drivers
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.faults import Point
from anabranch_runtime.sinks import publisher as publishing
from anabranch_runtime.sinks.kafka import writer
from anabranch_runtime.sinks.kafka.writer import KafkaWriter
from scripts.kafka import Broker
from tests.support.cases.states import RS
from tests.support.surroundings.deliveries import sink
from tests.support.surroundings.kafka import Topics, broker
from tests.support.surroundings.kafka_reader import Reader
from tests.support.worlds.driven import Killed, driver, expected, job, publish

#: Steps at which the driver is killed: of a batch, and of the sink.
STEPS = (Point.CHOSEN, Point.STAGED, Point.SENT, Point.PUBLISHED, Point.COMMITTED)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker that a test may kill."""
    yield from broker(tmp_path_factory.mktemp("broker"))


class Lives:
    """Successive lives of a driver. A killed one leaves its transaction open, as a
    process would.
    """

    def __init__(self, url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.home = url, home
        self.zombies: list[Any] = []
        self._made: list[Any] = []
        #: Number of batches that have been begun.
        self.begun = 0
        made, drop, write = self._made, KafkaWriter._drop, KafkaWriter.write

        class Lived(KafkaWriter):
            """Writer of one life, which the test may end."""

            #: Whether its process is alive, and blocked while it writes.
            alive: bool
            writing: threading.Lock

            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                made.append(self)
                self.alive, self.writing = True, threading.Lock()

            def write(self, *arguments: Any) -> None:
                with self.writing:
                    if not self.alive:
                        raise Killed
                    write(self, *arguments)

            def _drop(self, target: Any, cause: BaseException) -> None:
                if not isinstance(cause, Killed):
                    drop(self, target, cause)

        monkeypatch.setattr(publishing, "KafkaWriter", Lived)
        self.driver = self.start()

    def start(self) -> Driver:
        """End the present life, whose last transaction may continue for a moment; start
        the next.
        """
        for one in self._made:
            with one.writing:
                one.alive = False
        self.zombies += self._made
        self._made.clear()
        self.driver = driver(self.url, self.home, every=100)
        return self.driver

    def run(self) -> None:
        """Run the next batch."""
        batch = self.driver.state.next_batch
        self.begun = max(self.begun, batch + 1)
        self.driver.run(job(batch))

    def haunt(self) -> None:
        """Let zombies (former lives) try to end their transactions."""
        for zombie in self.zombies:
            for link in zombie._links.values():
                with pytest.raises(KafkaException):
                    link.producer.commit_transaction(10)
        self.zombies.clear()


def dying(monkeypatch: pytest.MonkeyPatch, lives: Lives, at: Point) -> None:
    def reach(point: Point) -> None:
        if point is at:
            for one in lives._made:
                for link in one._links.values():
                    link.producer.flush(10)
            raise Killed

    monkeypatch.setattr(drivers, "reach", reach)
    monkeypatch.setattr(writer, "reach", reach)


def roll_back(lives: Lives, manifests: int) -> None:
    """Damage the newest manifests, and restart: their batches are repeated."""
    for path in sorted((lives.home / "state" / "manifest").iterdir())[-manifests:]:
        path.write_bytes(b"{}")
    lives.start()


def values(reader: Reader) -> list[int]:
    return sorted(json.loads(m.value() or b"")["b"] for m in list(reader.messages))


def sees(reader: Reader, batches: int) -> None:
    deadline = time.monotonic() + 120
    while (found := values(reader)) != expected(batches):
        assert Counter(found) <= Counter(expected(batches))
        assert time.monotonic() < deadline
        time.sleep(0.02)


def play(
    lives: Lives,
    own: Broker,
    chance: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    batches: int,
    seen: Callable[[int], None],
) -> Counter[str]:
    """Do random steps until so many batches are committed; return counts of the kinds of steps."""
    done = Counter[str]()
    while lives.driver.state.next_batch < batches:
        step = chance.choice(
            ("go", "go", "go", "kill", "kill", "kill", "kill", "back", "back", "away")
        )
        done[step] += 1
        if step == "kill":
            at = chance.choice(STEPS)
            done[at] += 1
            with monkeypatch.context() as patch:
                dying(patch, lives, at)
                with suppress(Killed):  # with waiting results, SENT may not be reached
                    lives.run()
            lives.start()
        elif step == "back" and lives.begun > 4:
            roll_back(lives, chance.randrange(1, 3))
        elif step == "away":
            # A single broker may forget to end a transaction if it is killed at the transaction's
            # end.
            time.sleep(0.3)
            own.kill()
            for _ in range(chance.randrange(1, 4)):
                lives.run()
            if chance.random() < 0.5:
                lives.start()
            own.start()
        else:
            lives.run()
        if chance.random() < 0.3:
            deliver(lives)
            lives.haunt()
            seen(lives.driver.state.next_batch)
    deliver(lives)
    return done


def deliver(lives: Lives) -> None:
    """Run until the sink has all results, at least one batch, so that this life is the sink's last
    writer.
    """
    done = False
    while not done or lives.driver.state.next_batch < lives.begun:
        lives.run()
        done = True
    deadline = time.monotonic() + 60
    while lives.driver.publisher.undelivered("q"):
        lives.driver.publisher.retry(now=True)
        assert time.monotonic() < deadline, lives.driver.publisher.problems()
        time.sleep(0.05)


def spec(own: Broker, topic: str) -> SinkSpec:
    found = sink("kafka", brokers=own.address, topic=topic, key="b")
    assert found.kind is SinkKind.KAFKA
    return found


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))]
)
def test_a_reader_sees_each_result_once_whatever_happens(
    url: str, own: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(writer, "PAUSE", 0.2)
    monkeypatch.setattr(writer, "PATIENCE", 2.0)
    monkeypatch.setattr(writer, "COMMIT", 3.0)
    monkeypatch.setitem(writer._PRODUCING, "message.timeout.ms", 1500)
    topic = Topics(own.address).make(3)
    publish(url, 0, {"q": RS}, {"q": spec(own, topic)})
    lives = Lives(url, tmp_path, monkeypatch)
    with Reader(own.address, topic, 3) as reader:
        done = play(lives, own, random.Random(seed), monkeypatch, 24, lambda n: sees(reader, n))
        sees(reader, lives.driver.state.next_batch)
    assert {"kill", "back"} <= set(done), done
    batches = Counter(int(h["anabranch-batch"]) for h in reader.headers())
    assert all(h["anabranch-epoch"] == b"0" for h in reader.headers())
    # In batch b, S's row finds b + 1 rows of R, and R's row finds b earlier rows of S.
    assert batches == {b: 2 * b + 1 for b in range(lives.driver.state.next_batch)}
