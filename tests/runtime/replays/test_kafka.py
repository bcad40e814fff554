"""Tests of a Kafka topic joined with files in random runs: kills, deleted messages, added
partitions, changed schemas.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import TopicPartition

from anabranch_contract.protocol.registered import SourceRecord
from scripts.kafka import Broker
from tests.runtime.sources.test_batch_input import run_at_random
from tests.support.oracles.protobuf import compiled, message_class
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.kafka import Topics
from tests.support.surroundings.registry import Registry, framed
from tests.support.worlds.fed import Fed


class KafkaFed(Fed):
    """The pipeline with a Kafka topic as ``S``; an entry is named by its partition and offset."""

    def __init__(
        self,
        url: str,
        home: Path,
        broker: Broker,
        chance: random.Random,
        payload: dict[str, str] | None = None,
    ) -> None:
        self.topics, self.chance = Topics(broker.address), chance
        self.partitions = 1
        self.topic = self.topics.make()
        self.ends = dict[int, int]()
        self.payload = payload or {}
        super().__init__(url, home)

    def source(self, name: str, options: dict[str, str]) -> SourceRecord:
        if name == "R":
            return super().source(name, options)
        address = self.topics.settings["bootstrap.servers"]
        given = {"brokers": address, "topics": self.topic, **self.payload, **options}
        return SourceRecord(format="kafka", options=given, rows_per_batch=60)

    @property
    def found(self) -> set[str]:
        """No file is damaged, so none is found."""
        return set()

    def push(self, keys: list[int]) -> None:
        """Send messages for ``S``, sometimes to an additional partition."""
        if self.partitions < 4 and self.chance.random() < 0.15:
            self.partitions += 1
            self.topics.grow(self.topic, self.partitions)
        for a, n in self.new_rows(keys):
            partition = self.chance.randrange(self.partitions)
            self.topics.push(self.topic, [self.message(a, n)], partition)
            offset = self.ends.get(partition, 0)
            self.ends[partition] = offset + 1
            self.entries[f"{partition}/{offset}"] = (a, n)

    def message(self, a: int, n: int) -> bytes:
        """Return the message of a row."""
        return json.dumps({"a": a, "n": n}).encode()

    def remove(self, entries: list[str]) -> None:
        """Delete these messages, and all before them in their partitions."""
        for entry in entries:
            partition, offset = map(int, entry.split("/"))
            at = TopicPartition(self.topic, partition, offset + 1)
            self.topics.admin.delete_records([at])[at].result(60)
            self.removed |= {f"{partition}/{number}" for number in range(offset + 1)}


@pytest.mark.parametrize("seed", mostly_slow(range(4)))
def test_whatever_happens_results_are_those_of_the_read_messages(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker, seed: int
) -> None:
    chance = random.Random(seed)
    run_at_random(KafkaFed(url, tmp_path / "fed", kafka, chance), monkeypatch, chance, 40)


class RegistryFed(KafkaFed):
    """The pipeline with messages that have one of several schemas in a registry, which sometimes
    does not answer.
    """

    form: str

    def __init__(self, url: str, home: Path, broker: Broker, chance: random.Random) -> None:
        self.registry, self.fields = Registry({}), dict[int, Any]()
        super().__init__(
            url, home, broker, chance, {"payload": self.form, "registry": self.registry.address}
        )

    def push(self, keys: list[int]) -> None:
        """Send messages; register more schemas, and change the registry's state."""
        if len(self.fields) < 6:
            number = len(self.fields) + 1
            self.fields[number] = self.schema(number)
        # Schemas that a process knows stay known.
        self.registry.login = self.chance.choice([None, None, "none has it"])
        super().push(keys)

    def message(self, a: int, n: int) -> bytes:
        """Return the message of a row, by one of the schemas."""
        number = self.chance.choice(sorted(self.fields))
        return framed(number, self.encoded(number, a, n))

    def schema(self, number: int) -> Any:
        """Register a new schema, and return it."""
        raise NotImplementedError

    def encoded(self, number: int, a: int, n: int) -> bytes:
        """Return a row in a schema's encoding."""
        raise NotImplementedError

    def read_anew(self) -> None:
        """Read the registered streams again; the registry answers from now on."""
        self.registry.login = None
        super().read_anew()


class AvroFed(RegistryFed):
    """The pipeline with Avro messages."""

    form = "avro"

    def schema(self, number: int) -> Any:
        """Return a record schema whose fields have random types and order."""
        kinds = ["int", "long", ["null", "int"], ["long", "null"]]
        fields: list[tuple[str, Any]] = [
            ("a", self.chance.choice(kinds)),
            ("n", self.chance.choice(kinds)),
        ]
        fields += [(f"x{number}", {"type": "array", "items": "string"})]
        self.chance.shuffle(fields)
        self.registry.add(number, _record(fields))
        return fields

    def encoded(self, number: int, a: int, n: int) -> bytes:
        """Return the row as an Avro record."""
        out, fields = io.BytesIO(), self.fields[number]
        row = {name: ["x"] * (n % 3) for name, _ in fields}
        schema = fastavro.parse_schema(_record(fields))
        fastavro.schemaless_writer(out, schema, {**row, "a": a, "n": n})
        return out.getvalue()


class ProtobufFed(RegistryFed):
    """The pipeline with Protobuf messages."""

    form = "protobuf"

    def schema(self, number: int) -> Any:
        """Return a file schema whose message is the first or second one, with random field numbers
        and types.
        """
        kinds = ["int32", "int64", "optional sint32", "fixed64", "google.protobuf.Int64Value"]
        a, n = self.chance.sample(range(1, 300), 2)
        other = "message Other {} " if number % 2 else ""
        text = (
            f'syntax = "proto3"; import "google/protobuf/wrappers.proto"; {other} message Row {{'
            f" {self.chance.choice(kinds)} a = {a}; {self.chance.choice(kinds)} n = {n};"
            f" repeated string x{number} = 400; }}"
        )
        self.registry.add_protobuf(number, text)
        return message_class(compiled(text), "Row")

    def encoded(self, number: int, a: int, n: int) -> bytes:
        """Return the row as a message, after the index of its type."""
        one = self.fields[number]()
        for name, value in (("a", a), ("n", n)):
            field = one.DESCRIPTOR.fields_by_name[name]
            wrapped = field.message_type is not None
            setattr(getattr(one, name) if wrapped else one, "value" if wrapped else name, value)
            if wrapped:
                getattr(one, name).SetInParent()
        getattr(one, f"x{number}").extend(["x"] * (n % 3))
        head = bytes([2, 2]) if number % 2 else b"\0"
        return head + bytes(one.SerializeToString())


def _record(fields: list[tuple[str, Any]]) -> Any:
    members = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "r", "fields": members}


@pytest.mark.parametrize("kind", mostly_slow([AvroFed, ProtobufFed]))
@pytest.mark.parametrize("seed", mostly_slow(range(3)))
def test_whatever_the_schemas_results_are_those_of_the_read_messages(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kafka: Broker,
    seed: int,
    kind: type[RegistryFed],
) -> None:
    chance = random.Random(1000 + seed)
    fed = kind(url, tmp_path / "fed", kafka, chance)
    run_at_random(fed, monkeypatch, chance, 40)
    fed.registry.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_times_results_are_those_of_the_read_messages(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: Broker, seed: int
) -> None:
    chance = random.Random(seed)
    run_at_random(KafkaFed(url, tmp_path / "fed", kafka, chance), monkeypatch, chance, 120)
