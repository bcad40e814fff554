"""Tests of Kafka topics as sinks: exactly once for readers of committed messages, on a
real broker.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point
from anabranch_runtime.sinks.kafka import progress, writer
from anabranch_runtime.sinks.kafka.writer import KafkaWriter
from anabranch_runtime.sources.kafka.client import LEADERLESS
from scripts.kafka import Broker
from tests.support.surroundings.deliveries import sink, staged
from tests.support.surroundings.kafka import Topics, broker
from tests.support.surroundings.kafka_reader import Reader


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for a busy broker, which creates its own topics at first."""
    wait_long(monkeypatch)


def wait_long(patch: pytest.MonkeyPatch) -> None:
    for module in (writer, progress):
        patch.setattr(module, "PATIENCE", 60.0)


@pytest.fixture(scope="module")
def topics(kafka: Broker) -> Topics:
    return Topics(kafka.address)


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.make(3)


@pytest.fixture
def namespace(topic: str) -> str:
    """Return the namespace of the test, with a separate progress topic."""
    return f"ns-{topic}"


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def lines(*values: int) -> Counter[bytes]:
    return Counter(b'{"x":%d}' % value for value in values)


def to(kafka: Broker, topic: str, **options: str) -> SinkSpec:
    return sink("kafka", brokers=kafka.address, topic=topic, **options)


Write = Callable[..., None]


@pytest.fixture
def write(kafka: Broker, topic: str, tmp_path: Path) -> Write:
    def found(
        by: KafkaWriter,
        batch: int,
        *values: int,
        query: str = "q",
        identity: str = "one",
        spec: SinkSpec | None = None,
    ) -> None:
        by.write(staged(tmp_path, query, spec or to(kafka, topic), batch, rows(*values)), identity)

    return found


def refused(write: Write, *arguments: Any, **others: Any) -> SinkError:
    with pytest.raises(SinkError) as caught:
        write(*arguments, **others)
    assert caught.value.remedy
    return caught.value


class Killed(BaseException):
    """The simulated death of the process."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[KafkaWriter], None]:
    """Return a function that kills a writer when it has sent the next delivery's messages, before
    their commit.
    """

    def kill(one: KafkaWriter) -> None:
        def reach(point: Point) -> None:
            monkeypatch.setattr(writer, "reach", lambda _: None)
            next(iter(one._links.values())).producer.flush(10)
            raise Killed

        monkeypatch.setattr(writer, "reach", reach)
        drop = KafkaWriter._drop
        monkeypatch.setattr(
            KafkaWriter, "_drop", lambda it, *rest: None if it is one else drop(it, *rest)
        )

    return kill


def test_messages_name_query_batch_and_epoch(
    kafka: Broker, topic: str, namespace: str, tmp_path: Path
) -> None:
    one = KafkaWriter(namespace, "results")
    table = pa.record_batch({"k": ["a", "a", None], "n": [1, 2, 3]})
    delivery = staged(tmp_path, "q~2", to(kafka, topic, key="k"), 7, table)
    with Reader(kafka.address, topic, 3) as reader:
        one.write(replace(delivery, epoch=5), "one")
        reader.sees(Counter([b'{"k":"a","n":1}', b'{"k":"a","n":2}', b'{"k":null,"n":3}']))
        assert reader.headers() == 3 * [
            {"anabranch-query": b"q~2", "anabranch-batch": b"7", "anabranch-epoch": b"5"}
        ]
        keyed = [m for m in reader.messages if m.key() == b"a"]
        assert len(keyed) == 2
        # The partition that Java's producers choose.
        assert {m.partition() for m in keyed} == {1}


@pytest.mark.parametrize("payload", ["json", "debezium"])
def test_messages_without_headers_are_delivered_once_too(
    kafka: Broker, topic: str, namespace: str, write: Write, payload: str,
    dying: Callable[[KafkaWriter], None],
) -> None:  # fmt: skip
    spec = to(kafka, topic, headers="none", payload=payload)
    if payload == "json":
        expected = lines(1, 2, 2, 3, 4)
    else:
        envelope = b'{"before":null,"after":{"x":%d},"op":"c"}'
        expected = Counter(envelope % value for value in (1, 2, 2, 3, 4))
    one = KafkaWriter(namespace, "results")
    with Reader(kafka.address, topic, 3) as reader:
        write(one, 0, 1, 2, 2, spec=spec)
        write(one, 0, 2, 1, 2, spec=spec)
        dying(one)
        with pytest.raises(Killed):
            write(one, 1, 3, 4, spec=spec)
        again = KafkaWriter(namespace, "results")
        for batch, values in ((0, (1, 2, 2)), (1, (4, 3)), (1, (3, 4))):
            write(again, batch, *values, spec=spec)
        reader.sees(expected)
        assert reader.headers() == 5 * [{}]


def test_repeated_deliveries_add_nothing(
    kafka: Broker, topic: str, namespace: str, write: Write
) -> None:
    one = KafkaWriter(namespace, "results")
    with Reader(kafka.address, topic, 3) as reader:
        write(one, 0, 1, 2)
        write(one, 0, 2, 1)
        write(one, 4, 3, 3)
        # Rolled back by some batches, in the same process and in a new one.
        for again in (one, KafkaWriter(namespace, "results")):
            write(again, 0, 1, 2)
            write(again, 4, 3, 3)
        write(again, 5, 4)
        # Other runs, queries and pipelines have separate numbers.
        write(again, 2, 5, query="q~2")
        write(again, 0, 6, query="p")
        write(again, 0, 7, identity="two")
        reader.sees(lines(1, 2, 3, 3, 4, 5, 6, 7))


def test_two_pipelines_with_one_connection_do_not_fence_each_other(
    kafka: Broker, topic: str, namespace: str, write: Write
) -> None:
    one, two = KafkaWriter(namespace, "results"), KafkaWriter(namespace, "results")
    with Reader(kafka.address, topic, 3) as reader:
        for batch in range(4):
            write(one, batch, batch)
            write(two, batch, 10 + batch, identity="two")
        tables = KafkaWriter(namespace, "tables")
        write(tables, 0, 20, query="v")
        write(one, 4, 4)
        reader.sees(lines(0, 1, 2, 3, 4, 10, 11, 12, 13, 20))


def test_a_killed_process_leaves_nothing_and_can_not_go_on(
    kafka: Broker, topic: str, namespace: str, write: Write, dying: Callable[[KafkaWriter], None]
) -> None:
    one = KafkaWriter(namespace, "results")
    with Reader(kafka.address, topic, 3) as reader:
        write(one, 0, 1)
        dying(one)
        with pytest.raises(Killed):
            write(one, 1, 2, 3)
        again = KafkaWriter(namespace, "results")
        write(again, 1, 3, 2)
        # The zombie's transaction has ended, whatever it tries, and it can't begin another.
        for link in one._links.values():
            with pytest.raises(KafkaException):
                link.producer.commit_transaction(10)
        one._links.clear()
        errors = [refused(write, one, 2, 9) for _ in range(2)]
        assert [error.code for error in errors] == ["fenced-off"] * 2
        assert "batch 1 of 'q' is another one's" in errors[0].message
        # Its attempt has fenced the other one off, which finds its own records and continues.
        assert refused(write, again, 2, 4).code == "fenced-off"
        write(again, 2, 4)
        assert refused(write, one, 3, 9).code == "fenced-off"
        write(again, 3, 5)
        reader.sees(lines(1, 2, 3, 4, 5))


def test_a_producer_that_was_fenced_off_by_accident_comes_back(
    kafka: Broker, topic: str, namespace: str, write: Write
) -> None:
    one, late = KafkaWriter(namespace, "results"), KafkaWriter(namespace, "results")
    with Reader(kafka.address, topic, 3) as reader:
        write(one, 0, 1)
        # A delayed attempt of the same process to connect: it writes nothing.
        write(late, 0, 1)
        assert refused(write, one, 1, 2).code == "fenced-off"
        write(one, 1, 2)
        write(one, 2, 3, query="p")
        # Of two running processes, one stops for good.
        errors = [refused(write, late, 1, 9) for _ in range(3)]
        assert "another one's" in errors[1].message
        assert errors[2].message == errors[1].message
        assert refused(write, one, 3, 4).code == "fenced-off"
        write(one, 3, 4)
        reader.sees(lines(1, 2, 3, 4))


def test_an_open_transaction_of_others_is_waited_for(
    topics: Topics,
    kafka: Broker,
    topic: str,
    namespace: str,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = KafkaWriter(namespace, "results")
    write(one, 0, 1)
    other = topics.producer(**{"transactional.id": f"other-{topic}"})
    other.init_transactions(10)
    other.begin_transaction()
    other.produce(writer.default_progress(namespace), b'{"batch":9}', b"other", partition=0)
    other.flush(10)
    # Later records can't be read, and this one must not be missed.
    write(one, 1, 2)
    again = KafkaWriter(namespace, "results")
    with monkeypatch.context() as hasty:
        # Brokers have the same number of seconds for their responses.
        hasty.setattr(progress, "PATIENCE", 2.0)
        assert refused(write, again, 1, 2).code == "progress-undecided"
    other.abort_transaction(10)
    with Reader(kafka.address, topic, 3) as reader:
        write(again, 1, 2)
        write(again, 2, 3)
        reader.sees(lines(1, 2, 3))


def test_topics_have_to_be_there_and_fit(
    topics: Topics, kafka: Broker, topic: str, namespace: str, write: Write
) -> None:
    one = KafkaWriter(namespace, "results")
    assert refused(write, one, 0, 1, spec=to(kafka, "nowhere")).code == "no-topic"
    deleting = topics.make(1)
    spec = to(kafka, topic, progress_topic=deleting)
    assert refused(write, one, 0, 1, spec=spec).code == "progress-deleted"
    small = topics.make(1, **{"max.message.bytes": "400"})
    # The error is the broker's, not a timeout.
    error = refused(write, one, 0, *range(10**15, 10**15 + 100), spec=to(kafka, small))
    assert "size" in error.message
    with Reader(kafka.address, small) as reader:
        write(one, 1, 5, spec=to(kafka, small))
        reader.sees(lines(5))
    # The progress topic was created with the required settings.
    write(one, 2, 5)
    resource = ConfigResource(ResourceType.TOPIC, writer.default_progress(namespace))
    found = topics.admin.describe_configs([resource])[resource].result(60)
    assert found["cleanup.policy"].value == "compact"


def test_a_leader_that_moves_is_awaited(
    kafka: Broker, topic: str, namespace: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, moving = AdminClient.list_offsets, list(LEADERLESS)

    def found(self: AdminClient, *arguments: Any, **others: Any) -> dict[Any, Future[Any]]:
        given: dict[Any, Future[Any]] = answers(self, *arguments, **others)
        if not moving:
            return given
        refusal = Future[Any]()
        refusal.set_exception(KafkaException(KafkaError(moving.pop())))
        return dict.fromkeys(given, refusal)

    monkeypatch.setattr(AdminClient, "list_offsets", found)
    with Reader(kafka.address, topic, 3) as reader:
        write(KafkaWriter(namespace, "results"), 0, 1)
        reader.sees(lines(1))
    assert not moving


def test_brokers_that_are_away_are_asked_again_later(
    namespace: str, topic: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "COMMIT", 3.0)
    monkeypatch.setitem(writer._PRODUCING, "message.timeout.ms", 1000)
    for own in broker(tmp_path / "broker"):
        Topics(own.address).make(3, topic)
        spec = to(own, topic)
        one = KafkaWriter(namespace, "results")
        with Reader(own.address, topic, 3) as reader:
            write(one, 0, 1, spec=spec)
            # A single broker that was killed before has no transaction to end when it restarts.
            reader.sees(lines(1))
            settings = {"bootstrap.servers": own.address}
            progress.read_progress(settings, writer.default_progress(namespace), "")
            own.kill()
            error = refused(write, one, 1, 2, spec=spec)
            assert error.code == "no-server", error
            # With many queries, only one waits.
            with monkeypatch.context() as patch:
                patch.setattr(writer, "Producer", None)
                for query in range(20):
                    again = refused(write, one, 1, 2, spec=spec, query=f"q{query}")
                    assert again is error
            own.start()
            deadline = time.monotonic() + 60
            while True:
                try:
                    write(one, 1, 2, spec=spec)
                    break
                except SinkError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
            write(one, 2, 3, spec=spec)
            reader.sees(lines(1, 2, 3))


@pytest.mark.slow
def test_secrets_log_in(namespace: str, topic: str, write: Write, tmp_path: Path) -> None:
    for own in broker(tmp_path / "broker", {"admin": "pw1", "me": "pw2"}):
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        admin = {"sasl.username": "admin", "sasl.password": "pw1"}
        Topics(own.address, **login, **admin).make(1, topic)
        one = KafkaWriter(namespace, "results")
        options = {"security": "sasl_plaintext", "mechanism": "PLAIN", "user": "me"}
        write(one, 0, 1, spec=to(own, topic, **options, password="pw2"))
        write(one, 1, 1, spec=to(own, topic, **options, password="pw2"))
        wrong = refused(
            write, KafkaWriter(namespace, "tables"), 2, 1,
            spec=to(own, topic, **options, password="pw3"),
        )  # fmt: skip
        assert "pw3" not in str(wrong)


# --- kills at any moment --------------------------------------------------------------------------


def deliver(folder: str, address: str, topic: str, namespace: str, batches: int) -> None:
    """Deliver all batches from the first on, as after a rollback of the whole state."""
    wait_long(pytest.MonkeyPatch())
    one = KafkaWriter(namespace, "results")
    spec = sink("kafka", brokers=address, topic=topic)
    for batch in range(batches):
        values = list(range(batch * 1000, batch * 1000 + 1000))
        # Rows have another order in every attempt.
        random.shuffle(values)
        one.write(staged(Path(folder), "q", spec, batch, rows(*values)), "one")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_processes_killed_at_any_moment_write_each_row_once(
    kafka: Broker, topic: str, namespace: str, tmp_path: Path, seed: int
) -> None:
    chance, spawn = random.Random(seed), multiprocessing.get_context("spawn")
    batches, kills = 40, 0
    arguments = (str(tmp_path), kafka.address, topic, namespace, batches)
    expected = lines(*range(batches * 1000))
    with Reader(kafka.address, topic, 3) as reader:
        while True:
            before = len(reader.messages)
            process = spawn.Process(target=deliver, args=arguments)
            process.start()
            # A transaction of the killed broker may last a minute.
            deadline = time.monotonic() + 120
            while process.is_alive() and len(reader.messages) == before:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            process.join(chance.random() / 20)
            if process.is_alive() and kills < 4:
                process.kill()
                kills += 1
                process.join()
                assert process.exitcode == -signal.SIGKILL
                continue
            process.join(300)
            assert process.exitcode == 0
            break
        reader.sees(expected)
    assert kills >= 3
    batch = Counter(h["anabranch-batch"] for h in reader.headers())
    assert batch == {str(n).encode(): 1000 for n in range(batches)}
    assert all(json.loads(m.value() or b"")["x"] is not None for m in reader.messages)
