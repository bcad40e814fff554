"""Tests of Redis Streams as sinks: exactly once through attempts that end anywhere, on a real
server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import redis
from redis.crc import key_slot

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks import redis_stream
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.redis_stream import append, position_key
from tests.support.surroundings import deliveries
from tests.support.surroundings.deliveries import sink, staged


@pytest.fixture
def connection(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as found:
        yield found


STREAM = sink("redis-stream", stream="out")


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def write(url: str, delivery: Delivery, identity: str = "one") -> None:
    append(delivery, url=url, namespace="test", identity=identity)


def entries(connection: redis.Redis, stream: str = "out") -> list[tuple[str, int]]:
    found = deliveries.entries(connection, stream)
    return [(ident, json.loads(fields[b"data"])["x"]) for ident, fields in found]


def test_a_batch_is_appended_in_an_order_that_no_task_decides(
    url: str, connection: redis.Redis, tmp_path: Path
) -> None:
    write(url, staged(tmp_path, "q", STREAM, 0, rows(3, 1), rows(2)))
    write(url, staged(tmp_path, "q", STREAM, 4, rows(5), rows(4)))
    assert entries(connection) == [("1-0", 1), ("1-1", 2), ("1-2", 3), ("5-0", 4), ("5-1", 5)]


def test_a_repeated_batch_appends_nothing(
    url: str, connection: redis.Redis, tmp_path: Path
) -> None:
    for _ in range(2):
        write(url, staged(tmp_path, "q", STREAM, 0, rows(1, 2)))
    write(url, staged(tmp_path, "q", STREAM, 1, rows(3)))
    write(url, staged(tmp_path, "q", STREAM, 0, rows(2), rows(1)))
    assert [x for _, x in entries(connection)] == [1, 2, 3]


class Killed(BaseException):
    """The simulated death of the process."""


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_a_batch_that_was_cut_short_is_continued_where_it_ended(
    calls: int,
    url: str,
    connection: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis_stream, "ENTRIES", 3)
    chunks = redis_stream._chunks

    def dying(found: Iterator[bytes]) -> Iterator[list[bytes]]:
        for number, chunk in enumerate(chunks(found)):
            if number == calls:
                raise Killed
            yield chunk

    values = list(range(10))
    delivery = staged(tmp_path, "q", STREAM, 6, rows(*values))
    with monkeypatch.context() as patch:
        patch.setattr(redis_stream, "_chunks", dying)
        with pytest.raises(Killed):
            write(url, delivery)
    seen = entries(connection)
    assert len(seen) == 3 * calls

    # The second attempt has the rows in other tasks, in another order.
    write(url, staged(tmp_path, "q", STREAM, 6, rows(*values[7:]), rows(*reversed(values[:7]))))
    assert entries(connection)[: len(seen)] == seen
    assert entries(connection) == [(f"7-{n}", n) for n in values]


def test_equal_results_are_as_many_as_they_are(
    url: str, connection: redis.Redis, tmp_path: Path
) -> None:
    write(url, staged(tmp_path, "q", STREAM, 0, rows(7, 7), rows(7)))
    assert entries(connection) == [("1-0", 7), ("1-1", 7), ("1-2", 7)]


def test_arrow_entries_hold_all_rows_and_types(
    url: str, connection: redis.Redis, tmp_path: Path
) -> None:
    to = sink("redis-stream", stream="out", payload="arrow", rows="4")
    numbers = pa.record_batch({"x": pa.array(range(10), pa.int16()), "s": [None] * 5 + ["a"] * 5})
    write(url, staged(tmp_path, "q", to, 0, numbers))
    found = [
        pa.ipc.open_stream(f[b"data"]).read_all() for _, f in deliveries.entries(connection, "out")
    ]
    assert [table.num_rows for table in found] == [4, 4, 2]
    read = pa.concat_tables(found)
    assert read.schema.field("x").type == pa.int16()
    assert sorted(read.column("x").to_pylist()) == list(range(10))
    assert read.column("s").null_count == 5


def test_old_entries_make_room(url: str, connection: redis.Redis, tmp_path: Path) -> None:
    to = sink("redis-stream", stream="out", maxlen="200")
    for batch in range(10):
        write(url, staged(tmp_path, "q", to, batch, rows(*range(100 * batch, 100 * batch + 100))))
    left = [x for _, x in entries(connection)]
    assert 200 <= len(left) < 400
    assert left == list(range(1000 - len(left), 1000))


def refused(url: str, delivery: Delivery, identity: str = "one") -> SinkError:
    with pytest.raises(SinkError) as caught:
        write(url, delivery, identity)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(("query", "identity"), [("p", "one"), ("q", "two")])
def test_a_stream_has_one_writer(
    query: str, identity: str, url: str, connection: redis.Redis, tmp_path: Path
) -> None:
    write(url, staged(tmp_path, "q", STREAM, 3, rows(1)))
    error = refused(url, staged(tmp_path, query, STREAM, 5, rows(2)), identity)
    assert "test/q/one" in error.message
    connection.delete(position_key("out"))
    write(url, staged(tmp_path, query, STREAM, 5, rows(2)), identity)
    assert [x for _, x in entries(connection)] == [1, 2]


def test_runs_of_one_query_share_a_stream(
    url: str, connection: redis.Redis, tmp_path: Path
) -> None:
    write(url, staged(tmp_path, "q", STREAM, 0, rows(1)))
    write(url, staged(tmp_path, "q~2", STREAM, 3, rows(2)))
    assert entries(connection) == [("1-0", 1), ("4-0", 2)]


def test_entries_of_others_are_noticed(url: str, connection: redis.Redis, tmp_path: Path) -> None:
    connection.xadd("out", {"by": "somebody"})
    assert refused(url, staged(tmp_path, "q", STREAM, 5, rows(2))).code == "foreign-stream"
    assert connection.xlen("out") == 1


@pytest.mark.parametrize(
    ("to", "stream"),
    [(sink("redis-stream"), "test:results:q"), (sink("redis-stream", stream="a{b}"), "a{b}")],
)
def test_the_position_lives_where_the_stream_does(
    to: SinkSpec, stream: str, url: str, connection: redis.Redis, tmp_path: Path
) -> None:
    write(url, staged(tmp_path, "q", to, 0, rows(1)))
    assert connection.xlen(stream) == 1
    assert key_slot(stream.encode()) == key_slot(position_key(stream).encode())
    assert connection.hgetall(position_key(stream)) == {
        b"owner": b"test/q/one",
        b"batch": b"0",
        b"next": b"1",
    }
