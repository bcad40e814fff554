"""A Kafka topic joined with files in random runs: kills, deleted messages, partitions that come."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from anabranch_contract.protocol.registered import SourceRecord
from scripts.kafka import Broker
from tests.runtime.sources.test_batch_input import run_at_random
from tests.support.surroundings.kafka import Topics
from tests.support.worlds.fed import Fed


class KafkaFed(Fed):
    """The pipeline with a topic as ``S``; an entry is named by its partition and offset."""

    def __init__(self, url: str, home: Path, broker: Broker, chance: random.Random) -> None:
        self.topics, self.chance = Topics(broker.address), chance
        self.partitions = 1
        self.topic = self.topics.make()
        self.ends = dict[int, int]()
        super().__init__(url, home)

    def source(self, name: str, options: dict[str, str]) -> SourceRecord:
        if name == "R":
            return super().source(name, options)
        address = self.topics.settings["bootstrap.servers"]
        given = {"brokers": address, "topics": self.topic, **options}
        return SourceRecord(format="kafka", options=given, rows_per_batch=60)

    @property
    def found(self) -> set[str]:
        """Nothing: no file is damaged."""
        return set()

    def push(self, keys: list[int]) -> None:
        """Messages for ``S``, now and then in one more partition."""
        if self.partitions < 4 and self.chance.random() < 0.15:
            self.partitions += 1
            self.topics.grow(self.topic, self.partitions)
        for a, n in self.new_rows(keys):
            partition = self.chance.randrange(self.partitions)
            self.topics.push(self.topic, [json.dumps({"a": a, "n": n}).encode()], partition)
            offset = self.ends.get(partition, 0)
            self.ends[partition] = offset + 1
            self.entries[f"{partition}/{offset}"] = (a, n)

    def remove(self, entries: list[str]) -> None:
        """Delete these messages, and all before them in their partitions."""
        for entry in entries:
            partition, offset = map(int, entry.split("/"))
            at = TopicPartition(self.topic, partition, offset + 1)
            self.topics.admin.delete_records([at])[at].result(30)
            self.removed |= {f"{partition}/{number}" for number in range(offset + 1)}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_results_are_those_of_the_read_messages(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker, seed: int
) -> None:
    chance = random.Random(seed)
    run_at_random(KafkaFed(url, tmp_path / "fed", kafka, chance), monkeypatch, chance, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_times_results_are_those_of_the_read_messages(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker, seed: int
) -> None:
    chance = random.Random(seed)
    run_at_random(KafkaFed(url, tmp_path / "fed", kafka, chance), monkeypatch, chance, 120)
