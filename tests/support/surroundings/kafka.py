"""A real Kafka broker for tests, and producers of messages."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from scripts.kafka import Broker, NoKafka, running

#: Variable with which tests fail, instead of being skipped, if there is no broker.
REQUIRED = "ANABRANCH_REQUIRE_KAFKA"
#: Maximum seconds for the creation of a topic, while other tests run on the same few cores.
_PATIENCE = 60.0
_NUMBERS = count()


def broker(
    home: Path, login: Mapping[str, str] | None = None, certificate: Path | None = None
) -> Iterator[Broker]:
    """Run a broker for a fixture; skip its tests if no broker can be run."""
    try:
        with running(home, login=login, certificate=certificate) as found:
            yield found
    except NoKafka as cause:
        if os.environ.get(REQUIRED):
            raise
        pytest.skip(f"no Kafka: {cause}")


class Topics:
    """The topics of one test, with unique names."""

    def __init__(self, address: str, **settings: str) -> None:
        self.settings: dict[str, Any] = {"bootstrap.servers": address, "log_level": 0, **settings}
        self.admin = AdminClient(self.settings)
        self._producer: Producer | None = None

    def make(self, partitions: int = 1, name: str = "", /, **config: str) -> str:
        """Create a topic and return its name."""
        name = name or f"t{os.getpid()}-{next(_NUMBERS)}"
        made = self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])
        made[name].result(_PATIENCE)
        self._wait(name, partitions)
        return name

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, up to the number ``partitions``."""
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(_PATIENCE)
        self._wait(name, partitions)
        # A producer learns of new partitions late, so a new one is made.
        self._producer = None

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until it does not exist any more."""
        self.admin.delete_topics([name])[name].result(_PATIENCE)
        while name in self.admin.list_topics(timeout=10).topics:
            time.sleep(0.02)

    def _wait(self, name: str, partitions: int) -> None:
        """Wait until all partitions are known, and the leading broker serves them, which it does a
        little later than it lists them.
        """
        specs = {TopicPartition(name, p): OffsetSpec.latest() for p in range(partitions)}
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                found = self.admin.list_topics(timeout=10).topics.get(name)
                if found is not None and len(found.partitions) == partitions:
                    for answer in self.admin.list_offsets(specs).values():
                        answer.result(_PATIENCE)
                    return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            assert time.monotonic() < deadline, f"{name} has no {partitions} partitions"
            time.sleep(0.02)

    def producer(self, **settings: Any) -> Producer:
        """Return a new producer that neither loses nor doubles messages."""
        return Producer({
            **self.settings, "enable.idempotence": True, "linger.ms": 2,
            "message.max.bytes": 20_000_000, "message.timeout.ms": 60_000, **settings,
        })  # fmt: skip

    def push(
        self, name: str, values: Iterable[bytes | None], partition: int = 0, **more: Any
    ) -> None:
        """Send messages to a partition, and wait until they are stored."""
        self._producer = self._producer or self.producer()
        failed = list[Any]()

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            self._producer.produce(name, value, partition=partition, on_delivery=delivered, **more)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        assert not failed
