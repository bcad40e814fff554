"""Tests of Kafka topics as sources, on a real broker: exact offsets, transactions,
losses reported.
"""

from __future__ import annotations

import json
import pickle
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anabranch_client.processes.children import free_port
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat, Envelope
from anabranch_runtime.errors import EntriesLost, SourceError
from anabranch_runtime.sinks.late import aside
from anabranch_runtime.sources.blocks import PIECE_BITS, read_piece, read_pieces
from anabranch_runtime.sources.feed import Piece, PieceError
from anabranch_runtime.sources.kafka import feed as feeds
from anabranch_runtime.sources.kafka import reading
from anabranch_runtime.sources.kafka.client import admin
from anabranch_runtime.sources.kafka.feed import KafkaFeed, kafka_feed
from anabranch_runtime.sources.loads import Load
from scripts.kafka import Broker
from tests.support.surroundings.kafka import Topics

pytestmark = pytest.mark.usefixtures("patient")

COLUMNS = {"a": "bigint", "b": "string"}
#: Keeps messages with old timestamps.
FOR_EVER = {"retention.ms": "-1"}


@pytest.fixture
def topics(kafka: Broker) -> Topics:
    return Topics(kafka.address)


@pytest.fixture
def feed(kafka: Broker) -> Any:
    def make(topics: str, columns: dict[str, str] | None = None, /, **options: Any) -> KafkaFeed:
        changes = options.pop("changes", None)
        options = {"brokers": kafka.address, "topics": topics, **options}
        record = StreamRecord(
            name="s",
            columns=tuple(ColumnRecord(name=c, type=t) for c, t in (columns or COLUMNS).items()),
            source=SourceRecord(format="kafka", options=options),
            changes=changes,
        )
        return kafka_feed(record, "test")

    return make


def values(numbers: Iterable[int]) -> Iterator[bytes]:
    return (json.dumps({"a": n, "b": f"b{n}"}).encode() for n in numbers)


def rows_of(feed: KafkaFeed, start: Any, end: Any, parts: int = 2) -> tuple[list[Any], list[Any]]:
    """Return the rows between two offsets, and the recorded invalid ones."""
    good, bad = list[Any](), list[Any]()
    for piece in feed.pieces(start, json.loads(json.dumps(end)), parts):
        if piece.gone is None:
            for rows, invalid in read_piece(pickle.loads(pickle.dumps(piece))):
                assert rows.schema.names == [c.name for c in feed.record.columns]
                good += rows.to_pylist()
                if invalid is not None:
                    bad += aside(invalid, "invalid", 0, None).to_pylist()
    return good, bad


def read(feed: KafkaFeed, start: Any, end: Any, parts: int = 2) -> list[int]:
    """Return column ``a`` of the rows between two offsets, which must all be valid."""
    good, bad = rows_of(feed, start, end, parts)
    assert not bad
    return [row["a"] for row in good]


def drain(feed: KafkaFeed, offset: Any, rows: int) -> tuple[Any, list[list[int]]]:
    """Read at most ``rows`` per batch until nothing waits; return the rows of each batch."""
    batches = []
    while feed.waiting(offset).rows:
        end = feed.advance(offset, rows)
        assert end != offset
        batches.append(read(feed, offset, end))
        offset = end
    return offset, batches


def test_every_message_is_read_once_whatever_the_size_of_batches(topics: Topics, feed: Any) -> None:
    name = topics.make(3)
    for partition in range(3):
        topics.push(name, values(range(partition * 1000, partition * 1000 + 700)), partition)
    for most in (70, 1000, 100_000):
        source = feed(name)
        offset, batches = drain(source, source.begin(), most)
        assert sorted(a for batch in batches for a in batch) == [
            *range(700), *range(1000, 1700), *range(2000, 2700)
        ]  # fmt: skip
        assert max(map(len, batches)) <= most
    topics.push(name, values([5000]), 1)
    assert drain(source, offset, 10)[1] == [[5000]]


def test_a_planned_range_reads_the_same_again_in_any_number_of_parts(
    topics: Topics, feed: Any
) -> None:
    name = topics.make()
    topics.push(name, values(range(30_000)))
    source = feed(name)
    start = source.begin()
    source.waiting(start)
    middle = source.advance(start, 5_000)
    end = source.advance(middle, 20_000)
    topics.push(name, values(range(30_000, 31_000)))
    for parts in (1, 2, 5):
        assert read(feed(name), middle, end, parts) == list(range(5_000, 25_000))


def test_aborted_transactions_are_never_read_and_pending_ones_are_waited_for(
    topics: Topics, feed: Any
) -> None:
    name = topics.make()
    producer = topics.producer(**{"transactional.id": name})
    producer.init_transactions()
    wanted = list[int]()
    source = feed(name)
    offset = source.begin()
    for turn in range(12):
        producer.begin_transaction()
        numbers = range(turn * 10, turn * 10 + 10)
        for value in values(numbers):
            producer.produce(name, value, partition=0)
        producer.flush()
        # Messages of open transactions do not count as waiting. Each transaction has a marker
        # besides its ten.
        assert source.waiting(offset).rows <= 11 * turn - offset[f"{name}/0"][0]
        if turn % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            wanted += numbers
        if turn % 2:
            deadline = time.monotonic() + 60
            while source.waiting(offset).rows < 11 * (turn + 1) - offset[f"{name}/0"][0]:
                assert time.monotonic() < deadline
            offset, batches = drain(source, offset, 7)
            assert [a for batch in batches for a in batch] == wanted
            wanted = []
    offset, _ = drain(source, offset, 1000)
    assert source.has_reached(offset, source.load_end(offset, Load("s")))


def test_where_reading_starts(topics: Topics, feed: Any) -> None:
    name = topics.make(2, **FOR_EVER)
    topics.push(name, values(range(5)), 0, timestamp=1_000_000_000_000)
    topics.push(name, values(range(5, 9)), 0, timestamp=1_700_000_000_000)
    moment = datetime.fromtimestamp(1_500_000_000, UTC).isoformat()
    for start, numbers in (
        ("earliest", range(9)),
        ("latest", ()),
        (moment, range(5, 9)),
        (json.dumps({name: {"0": 7}}), range(7, 9)),
    ):
        source = feed(name, start=start)
        _, batches = drain(source, source.begin(), 100)
        assert [a for batch in batches for a in batch] == list(numbers)
    with pytest.raises(SourceError, match="partition"):
        feed(name, start=json.dumps({name: {"2": 7}})).begin()


def test_added_partitions_belong_to_the_next_load(topics: Topics, feed: Any) -> None:
    name = topics.make()
    topics.push(name, values(range(10)))
    source = feed(name)
    offset = source.begin()
    source.waiting(offset)
    end = source.load_end(offset, Load("s"))
    topics.grow(name, 3)
    topics.push(name, values(range(10, 20)), 2)
    time.sleep(1.1)
    assert source.waiting(offset).rows == 20
    first = source.advance(offset, 100, end)
    assert source.has_reached(first, end)
    assert read(source, offset, first) == list(range(10))
    _, batches = drain(source, first, 100)
    assert batches == [list(range(10, 20))]


def test_pieces_of_a_task_are_read_together(topics: Topics, feed: Any) -> None:
    names = [topics.make(3), topics.make(2), topics.make(1)]
    for name, partitions in zip(names, (3, 2, 1), strict=True):
        for partition in range(partitions):
            topics.push(
                name, values(range(partition * 10_000, partition * 10_000 + 6_000)), partition
            )
    parts = {"partition_column": "p", "offset_column": "o"}
    columns = {**COLUMNS, "p": "int", "o": "bigint"}
    for most, size in ((500, 1), (12_000, 6)):
        pieces, wanted = list[Piece](), 0
        for name in names:
            source = feed(name, columns, **parts)
            start = source.begin()
            source.waiting(start)
            end = source.advance(start, most)
            pieces += source.pieces(start, end, size)
            wanted += sum(end[p][0] - start[p][0] for p in end)
        pieces = [replace(piece, number=i) for i, piece in enumerate(pieces)]
        gone = names[2]
        if size > 1:
            topics.delete(gone)
            topics.make(1, gone)
            topics.push(gone, values(range(6_000)))
            wanted -= sum(p.rows for p in pieces if p.where["topic"] == gone)
        failed = list[tuple[Piece, str]]()
        note = partial(_note, failed)
        blocks = list(read_pieces(pieces, note))
        replaced = [p for p in pieces if size > 1 and p.where["topic"] == gone]
        assert failed == [(piece, "topic-replaced") for piece in replaced]
        found = dict[int, tuple[int, int]]()
        for block in blocks:
            places = zip(*(block.rows.column(c).to_pylist() for c in ("p", "o", "a")), strict=True)
            for i, (p, o, a) in enumerate(places):
                assert a == 10_000 * p + o
                found.setdefault(block.position + i, (p, o))
        if size == 1:
            assert len(blocks) == 3
            assert sum(block.rows.num_rows for block in blocks) == wanted == len(found)
            assert [p.where["alone"] for p in pieces] == [True] * 6
        # Positions increase with the offsets of a partition.
        ordered = defaultdict[tuple[int, int], list[int]](list)
        stream = {piece.number: i for i, n in enumerate(names) for piece in pieces
                  if piece.where["topic"] == n}  # fmt: skip
        for position in sorted(found):
            p, o = found[position]
            ordered[stream[(position >> PIECE_BITS) - 1], p].append(o)
        assert all(offsets == sorted(set(offsets)) for offsets in ordered.values())


def _note(failed: list[tuple[Piece, str]], piece: Piece, why: PieceError) -> None:
    failed.append((piece, why.code))


def test_deleted_messages_stop_the_stream_or_are_counted(topics: Topics, feed: Any) -> None:
    name = topics.make()
    topics.push(name, values(range(100)))
    source = feed(name)
    offset = source.begin()
    source.waiting(offset)
    planned = source.advance(offset, 60)
    _delete(topics, name, 30)
    # Planned before, and read after the deletion.
    with pytest.raises(EntriesLost) as lost:
        read(source, offset, planned)
    assert lost.value.count == 30
    time.sleep(1.1)
    with pytest.raises(SourceError, match="30 offsets were deleted"):
        source.waiting(offset)
    skipping = feed(name, on_loss="skip")
    assert skipping.waiting(offset).rows == 70
    end = skipping.advance(offset, 10)
    pieces = skipping.pieces(offset, end, 1)
    found: list[int] = []
    blocks = read_piece(pieces[0])
    with pytest.raises(EntriesLost) as lost:
        found += (a for rows, _ in blocks for a in rows.column("a").to_pylist())
    assert (lost.value.count, found) == (30, list(range(30, 40)))
    # No message of the range remains.
    _delete(topics, name, 100)
    time.sleep(1.1)
    assert skipping.waiting(end).rows == 1
    last = skipping.advance(end, 10)
    with pytest.raises(EntriesLost) as lost:
        read(skipping, end, last)
    assert lost.value.count == 60
    assert skipping.waiting(last).rows == 0


def _delete(topics: Topics, name: str, before: int) -> None:
    from confluent_kafka import TopicPartition

    partition = TopicPartition(name, 0, before)
    topics.admin.delete_records([partition])[partition].result(60)


def test_a_topic_that_is_made_again_is_another_one(topics: Topics, feed: Any) -> None:
    name = topics.make()
    topics.push(name, values(range(20)))
    source = feed(name)
    offset = source.begin()
    source.waiting(offset)
    planned = source.advance(offset, 10)
    topics.delete(name)
    topics.make(1, name)
    topics.push(name, values(range(100, 150)))
    with pytest.raises(SourceError, match="created again"):
        read(source, offset, planned)
    time.sleep(1.1)
    with pytest.raises(SourceError, match="created again"):
        source.waiting(offset)
    skipping = feed(name, on_loss="skip")
    skipping.waiting(planned)
    end = skipping.advance(planned, 1000)
    pieces = skipping.pieces(planned, end, 1)
    assert [piece.gone is None for piece in pieces] == [False, True]
    assert read(skipping, planned, end) == list(range(100, 150))


def test_parts_of_messages_as_columns(topics: Topics, feed: Any) -> None:
    name = topics.make(2, **FOR_EVER)
    headers = [("trace", b"\x01"), ("trace", None)]
    topics.push(name, [b'{"a": 1}'], 1, key=b"17", headers=headers, timestamp=1_600_000_000_123)
    topics.push(name, [b'{"a": 2}', b'{"a": 3}'], 1, key=b"x")
    columns = {
        "at": "timestamp", "a": "bigint", "k": "int", "h": "array<struct<key:string,value:binary>>",
        "t": "string", "p": "int", "o": "bigint",
    }  # fmt: skip
    source = feed(
        name,
        columns,
        key_column="k",
        headers_column="h",
        timestamp_column="at",
        topic_column="t",
        partition_column="p",
        offset_column="o",
    )
    offset = source.begin()
    source.waiting(offset)
    good, bad = rows_of(source, offset, source.advance(offset, 10))
    at = datetime.fromtimestamp(1_600_000_000, UTC).replace(microsecond=123_000)
    h = [{"key": "trace", "value": b"\x01"}, {"key": "trace", "value": None}]
    assert good == [{"at": at, "a": 1, "k": 17, "h": h, "t": name, "p": 1, "o": 0}]
    # A key of the wrong type makes its message invalid.
    assert [json.loads(row["_raw"]) for row in bad] == [
        {"topic": name, "partition": 1, "offset": 1, "value": '{"a": 2}'},
        {"topic": name, "partition": 1, "offset": 2, "value": '{"a": 3}'},
    ]


def test_bad_messages_are_kept_with_their_places(topics: Topics, feed: Any) -> None:
    name = topics.make()
    texts: list[bytes | None] = list(values(range(1000)))
    bad = {
        3: b"no json",
        70: b'{"a": "text"}',
        71: b'{"a": 1}\n{"a": 2}',
        500: None,
        501: b"",
        700: b"\xff\xfe",
        998: b'{"a": 1} {"a": 2}',
    }
    for number, text in bad.items():
        texts[number] = text
    texts[999] = b'{\n  "a": 999,\n  "b": "b999"\n}'
    topics.push(name, texts)
    source = feed(name)
    offset = source.begin()
    source.waiting(offset)
    good, found = rows_of(source, offset, source.advance(offset, 2000))
    assert sorted(row["a"] for row in good) == [n for n in range(1000) if n not in bad]
    raw = [json.loads(row["_raw"]) for row in found]
    assert {row["offset"]: row["value"] for row in raw} == {
        n: None if text is None else "base64://4=" if n == 700 else text.decode()
        for n, text in bad.items()
    }
    assert {(row["topic"], row["partition"]) for row in raw} == {(name, 0)}


def test_tombstones_delete_and_envelopes_unwrap(topics: Topics, feed: Any) -> None:
    name = topics.make()
    topics.push(name, [b'{"n": 1}', None], key=b"7")
    keyed = ChangeFormat(operation=None, key=("k",), null_deletes=True)
    source = feed(name, {"k": "bigint", "n": "bigint"}, key_column="k", changes=keyed)
    offset = source.begin()
    source.waiting(offset)
    good, bad = rows_of(source, offset, source.advance(offset, 10))
    assert (good, bad) == ([{"k": 7, "n": 1}, {"k": 7, "n": None}], [])
    other = topics.make()
    lines = [
        b'{"op": "c", "after": {"n": 1}}',
        b'{"payload": {"op": "u", "before": {"n": 1}, "after": {"n": 2}}}',
        None,
        b'{"op": "u", "after": {"n": 3}}',
    ]
    topics.push(other, lines)
    form = ChangeFormat(envelope=Envelope.DEBEZIUM)
    columns = {"n": "bigint", "op": "string", "o": "bigint"}
    source = feed(other, columns, offset_column="o", changes=form)
    offset = source.begin()
    source.waiting(offset)
    good, bad = rows_of(source, offset, source.advance(offset, 10))
    assert good == [
        {"n": 1, "op": "c", "o": 0},
        {"n": 1, "op": "d", "o": 1},
        {"n": 2, "op": "c", "o": 1},
    ]
    assert json.loads(bad[0]["_raw"])["offset"] == 3


def test_large_messages(topics: Topics, feed: Any) -> None:
    name = topics.make()
    long = "x" * 10_000_000
    topics.push(name, values(range(10)))
    topics.push(name, [json.dumps({"a": 10, "b": long}).encode()])
    topics.push(name, values(range(11, 20)))
    source = feed(name)
    offset = source.begin()
    source.waiting(offset)
    good, bad = rows_of(source, offset, source.advance(offset, 100))
    assert [row["a"] for row in good] == list(range(20))
    assert good[10]["b"] == long
    assert not bad


@pytest.mark.parametrize("fails", [False, True])
def test_read_offsets_are_committed_to_the_group(
    fails: bool, topics: Topics, feed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a commit that failed, since no broker could be reached."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    name = topics.make(2)
    topics.push(name, values(range(30)), 1)
    source = feed(name)
    offset, _ = drain(source, source.begin(), 10)
    time.sleep(1.1)
    monkeypatch.setattr(feeds, "REQUEST", 5.0)
    client = admin(source.record.source.options)
    with monkeypatch.context() as patched:
        if fails:
            nowhere = AdminClient({"bootstrap.servers": f"127.0.0.1:{free_port()}"})
            patched.setattr(feeds, "admin", lambda _: nowhere)
            patched.setattr(feeds, "REQUEST", 0.5)
        source._commit(offset)
    asked = [ConsumerGroupTopicPartitions("test.s")]
    deadline = time.monotonic() + 60
    while True:
        found = topics.admin.list_consumer_group_offsets(asked)["test.s"].result(60)
        at = {p.partition: p.offset for p in found.topic_partitions if p.topic == name}
        if at == {0: 0, 1: 30}:
            break
        assert time.monotonic() < deadline, (at, source._committed[2])
        time.sleep(0.05)
        source.waiting(offset)
    assert not fails or admin(source.record.source.options) is not client


def test_how_long_messages_wait(topics: Topics, feed: Any) -> None:
    name = topics.make(2)
    topics.push(name, values(range(3)), 1, timestamp=int(time.time() * 1000) - 60_000)
    source = feed(name)
    offset = source.begin()
    deadline = time.monotonic() + 60
    while not 60 <= source.waiting(offset).seconds < 120:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    offset, _ = drain(source, offset, 10)
    assert source.waiting(offset).seconds == 0
    before = time.time()
    topics.push(name, values(range(3)))
    # Timestamps are whole milliseconds.
    assert source.waiting(offset).seconds <= time.time() - before + 0.002
    seen = time.time()
    time.sleep(0.5)
    least = time.time() - seen
    assert least <= source.waiting(offset).seconds <= time.time() - before + 0.002


def test_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: Any) -> None:
    from tests.support.surroundings.kafka import broker

    for running in broker(tmp_path, {"ann": "word"}):
        login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
        login |= {"sasl.username": "ann", "sasl.password": "word"}
        topics = Topics(running.address, **login)
        name = topics.make()
        topics.push(name, values(range(3)))
        options = {
            "brokers": running.address, "security": "sasl_plaintext", "mechanism": "PLAIN",
            "user": "ann", "password": "${ANABRANCH_SOURCE_KAFKA}",
        }  # fmt: skip
        monkeypatch.setenv("ANABRANCH_SOURCE_KAFKA", "wrong")
        with monkeypatch.context() as hasty:
            hasty.setattr(feeds, "LOOKING", 1.0)
            with pytest.raises(SourceError):
                feed(name, **options).begin()
        monkeypatch.setenv("ANABRANCH_SOURCE_KAFKA", "word")
        source = feed(name, **options)
        assert drain(source, source.begin(), 10)[1] == [[0, 1, 2]]


def test_a_broker_that_is_away(
    kafka: Broker, topics: Topics, feed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "LOOKING", 1.0)
    monkeypatch.setattr(feeds, "REQUEST", 20.0)
    name = topics.make()
    topics.push(name, values(range(10)))
    source = feed(name)
    offset = source.begin()
    source.waiting(offset)
    end = source.advance(offset, 10)
    kafka.kill()
    try:
        began = time.monotonic()
        with pytest.raises(SourceError, match="Kafka at"):
            source.waiting(offset)
        # Requests themselves may take longer.
        assert time.monotonic() - began < feeds.REQUEST
        with monkeypatch.context() as hasty:
            hasty.setattr(reading, "PATIENCE", 0.5)
            with pytest.raises(SourceError, match="Kafka at"):
                read(source, offset, end)
    finally:
        kafka.start()
    deadline = time.monotonic() + 60
    while True:
        try:
            assert source.waiting(offset).rows == 10
            break
        except SourceError:
            assert time.monotonic() < deadline
    assert read(source, offset, end) == list(range(10))
