"""A reader of committed messages of a Kafka topic, which reads all the time, like an external
program.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from anabranch_runtime.sources.kafka.client import AWAY

#: Codes of transient errors, and of the end of a partition.
PASSING = AWAY | {KafkaError._PARTITION_EOF}


class Reader(threading.Thread):
    """Thread that reads a topic's committed messages from the beginning, across restarts of the
    broker.

    Attributes:
        messages: messages in the order of reading; within a partition, in the order of offsets.
    """

    def __init__(self, address: str, topic: str, partitions: int = 1, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.messages: list[Message] = []
        self._client = Consumer({
            "bootstrap.servers": address, "group.id": "outside", "log_level": 0,
            "isolation.level": "read_committed", "enable.auto.commit": False,
            "auto.offset.reset": "error", "reconnect.backoff.max.ms": 500,
            "fetch.wait.max.ms": 50, **settings,
        })  # fmt: skip
        self._client.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        self._end = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(30)

    def run(self) -> None:
        """Read until stopped."""
        while not self._end.is_set():
            for message in self._client.consume(10_000, 0.05):
                error = message.error()
                assert error is None or error.code() in PASSING, error
                if error is None:
                    self.messages.append(message)
        self._client.close()

    def values(self) -> Counter[bytes]:
        """Return the number of occurrences of each value."""
        return Counter(message.value() or b"" for message in list(self.messages))

    def sees(self, expected: Counter[bytes], patience: float = 120.0) -> None:
        """Wait until exactly the values ``expected`` have been read, each as often as expected."""
        deadline = time.monotonic() + patience
        while (found := self.values()) != expected and time.monotonic() < deadline:
            assert found <= expected, found - expected
            time.sleep(0.02)
        assert found == expected, expected - found

    def headers(self) -> list[dict[str, bytes]]:
        """Return the headers of each message."""
        found: list[Any] = [message.headers() for message in self.messages]
        return [dict(headers or ()) for headers in found]
