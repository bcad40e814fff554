"""Tests of Redis Streams as sources, on a real server: exact offsets, payloads, losses reported."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis

from anabranch_contract.errors import StreamError
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.errors import EntriesLost, SourceError
from anabranch_runtime.sources.blocks import read_piece, read_pieces
from anabranch_runtime.sources.feeds import Feeds
from anabranch_runtime.sources.redis_stream import RedisFeed, redis_feed
from tests.support.surroundings.arrow_ipc import ipc_stream
from tests.support.surroundings.policy import OPEN

COLUMNS = (("a", "bigint"), ("b", "string"), ("t", "timestamp"), ("d", "decimal(10,2)"))
KEY = Keys("test").stream("s")


@pytest.fixture
def server(url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(url)
    yield client
    client.close()


def stream(name: str, most: int | None, /, **options: str) -> StreamRecord:
    return StreamRecord(
        name=name,
        columns=tuple(ColumnRecord(name=c, type=t) for c, t in COLUMNS),
        source=SourceRecord(format="redis-stream", options=options, rows_per_batch=most),
    )


def feed(url: str, /, **options: str) -> RedisFeed:
    return redis_feed(stream("s", None, **options), url, KEY)


def document(number: int) -> str:
    return json.dumps(
        {"a": number, "b": f"b{number}", "t": "2024-05-01T00:00:00Z", "d": number / 4, "x": [1]}
    )


def push(server: redis.Redis, first: int, last: int, key: str = KEY) -> None:
    with server.pipeline(transaction=False) as pipe:
        for number in range(first, last):
            pipe.xadd(key, {"data": document(number)})
        pipe.execute()


def read(
    feed: RedisFeed, start: Any, end: Any, parts: int = 2, lost: list[int] | None = None
) -> list[int]:
    """Return column ``a`` of the rows between two offsets; none may be invalid, and missing ones
    are only allowed with ``lost``, which they are added to.
    """
    found: list[int] = []
    for piece in feed.pieces(start, end, parts):
        if piece.gone is not None:
            continue
        try:
            for rows, invalid in read_piece(pickle.loads(pickle.dumps(piece))):
                assert not invalid
                assert rows.schema.names == [c for c, _ in COLUMNS]
                found += rows.column("a").to_pylist()
        except EntriesLost as error:
            if lost is None:
                raise
            lost.append(error.count)
    return found


def drain(
    feed: RedisFeed, offset: Any, rows: int, lost: list[int] | None = None
) -> tuple[Any, list[list[int]]]:
    """Read at most ``rows`` per batch until nothing waits; return the rows of each batch."""
    batches = []
    while feed.waiting(offset).rows:
        end = feed.advance(offset, rows)
        batches.append(read(feed, offset, end, lost=lost))
        assert batches[-1], "no progress although something waits"
        offset = end
    return offset, batches


@pytest.mark.parametrize("rows", [1, 70, 5000])
def test_every_entry_is_read_once_in_order_whatever_the_size_of_batches(
    server: redis.Redis, url: str, rows: int
) -> None:
    count = 40 if rows == 1 else 3000
    push(server, 0, count)
    source = feed(url)
    offset, batches = drain(source, None, rows)
    assert [a for batch in batches for a in batch] == list(range(count))
    assert max(map(len, batches)) <= rows
    push(server, count, count + 5)
    _, batches = drain(source, offset, rows)
    assert [a for batch in batches for a in batch] == list(range(count, count + 5))


def test_a_planned_range_reads_the_same_again_whatever_has_come_since(
    server: redis.Redis, url: str
) -> None:
    push(server, 0, 2000)
    start = feed(url).advance(None, 100)
    end = feed(url).advance(start, 1500)
    first = read(feed(url), start, end)
    push(server, 2000, 2500)
    again = json.loads(json.dumps([start, end]))
    assert read(feed(url), again[0], again[1], 5) == first == list(range(100, 1600))


def test_several_keys_are_one_stream_and_drain_together(server: redis.Redis, url: str) -> None:
    for number in range(3):
        push(server, 1000 * number, 1000 * number + 100 * (number + 1), f"k{number}")
    source = feed(url, keys="k0,k1,k2,none")
    assert source.waiting(None).rows == 600
    end = source.advance(None, 60)
    assert sorted(read(source, None, end)) == [*range(10), *range(1000, 1020), *range(2000, 2030)]
    offset, batches = drain(source, end, 300)
    assert sum(map(len, batches)) == 540
    push(server, 5, 8, "none")
    assert [sorted(b) for b in drain(source, offset, 300)[1]] == [[5, 6, 7]]


def test_a_stream_may_start_with_what_comes(server: redis.Redis, url: str) -> None:
    push(server, 0, 50)
    source = feed(url, start="latest")
    offset = source.begin()
    assert source.waiting(offset).rows == 0
    push(server, 50, 60)
    assert drain(source, offset, 100)[1] == [list(range(50, 60))]
    assert read(source, None, offset) == []


def test_what_was_trimmed_before_the_first_look_is_no_loss(server: redis.Redis, url: str) -> None:
    push(server, 0, 100)
    server.xtrim(KEY, maxlen=30, approximate=False)
    source = feed(url)
    end = source.advance(None, 10)
    assert read(source, None, end) == list(range(70, 80))
    offset, batches = drain(source, end, 8)
    assert [a for b in batches for a in b] == list(range(80, 100))
    server.xtrim(KEY, maxlen=0, approximate=False)
    assert source.waiting(offset).rows == 0


def test_trimming_what_is_read_is_fine_and_trimming_what_is_not_is_an_error(
    server: redis.Redis, url: str
) -> None:
    push(server, 0, 100)
    source = feed(url)
    offset = source.advance(None, 60)
    server.xtrim(KEY, maxlen=40, approximate=False)
    assert read(source, offset, source.advance(offset, 100)) == list(range(60, 100))
    server.xtrim(KEY, maxlen=39, approximate=False)
    with pytest.raises(SourceError, match="1 entries were removed") as caught:
        source.waiting(offset)
    assert caught.value.code == "entries-lost"
    assert "on_loss" in caught.value.remedy
    with pytest.raises(SourceError):
        source.advance(offset, 10)


@pytest.mark.parametrize("when", ["planned", "cut"])
def test_a_planned_batch_that_was_trimmed_is_an_error(
    server: redis.Redis, url: str, when: str
) -> None:
    push(server, 0, 2000)
    end = feed(url).advance(None, 1500)
    if when == "planned":
        server.xtrim(KEY, maxlen=1999, approximate=False)
        (piece,) = feed(url).pieces(None, end, 2)
        with pytest.raises(SourceError, match="1 entries were removed"):
            list(read_piece(piece))
        return
    pieces = feed(url).pieces(None, end, 2)
    server.xtrim(KEY, maxlen=1999, approximate=False)
    with pytest.raises(SourceError, match="1 entries were removed"):
        list(read_piece(pieces[0]))
    assert sum(rows.num_rows for rows, _ in read_piece(pieces[1])) == pieces[1].rows


@pytest.mark.parametrize("payload", ["json", "fields"])
def test_an_entry_deleted_before_it_was_read_is_an_error(
    server: redis.Redis, url: str, payload: str
) -> None:
    for number in range(20):
        server.xadd(KEY, {"data": document(number)} if payload == "json" else {"a": number})
    source = feed(url, payload=payload)
    offset = source.advance(None, 5)
    ids: Any = [entry for entry, _ in server.xrange(KEY) or ()]
    server.xdel(KEY, ids[10])
    with pytest.raises(SourceError, match="1 entries were removed"):
        source.advance(offset, 100)
    server.xdel(KEY, ids[19])
    with pytest.raises(SourceError, match="2 entries were removed"):
        source.advance(offset, 100)


def test_a_loss_that_is_allowed_is_counted(server: redis.Redis, url: str) -> None:
    push(server, 0, 100)
    source = feed(url, on_loss="skip")
    offset = source.advance(None, 10)
    server.xtrim(KEY, maxlen=50, approximate=False)
    assert source.waiting(offset).rows == 50
    lost: list[int] = []
    offset, batches = drain(source, offset, 20, lost)
    assert [a for b in batches for a in b] == list(range(50, 100))
    assert lost == [40]
    server.delete(KEY)
    push(server, 7, 9)
    assert drain(source, offset, 20)[1] == [[7, 8]]


def test_a_stream_that_was_replaced_is_not_taken_for_the_old_one(
    server: redis.Redis, url: str
) -> None:
    push(server, 0, 10)
    source = feed(url)
    offset = source.advance(None, 100)
    server.delete(KEY)
    for _ in range(2):
        with pytest.raises(SourceError) as caught:
            source.waiting(offset)
        assert caught.value.code == "stream-replaced"
        push(server, 0, 5)


def test_fields_are_cast_as_columns_are_declared(server: redis.Redis, url: str) -> None:
    server.xadd(KEY, {"a": "7", "b": 'say "x"\n', "t": "2024-05-01 10:00:00", "d": "1.5", "z": 1})
    server.xadd(KEY, {"z": "nothing of ours"})
    server.xadd(KEY, {"a": "x"})
    source = feed(url, payload="fields")
    (piece,) = source.pieces(None, source.advance(None, 100), 2)
    found = list(read_piece(piece))
    rows = [row for batch, _ in found for row in batch.to_pylist()]
    assert [row["a"] for row in rows] == [7, None]
    assert rows[0]["b"] == 'say "x"\n'
    assert str(rows[0]["d"]) == "1.50"
    assert rows[0]["t"].isoformat() == "2024-05-01T10:00:00+00:00"
    assert sum(invalid.num_rows for _, invalid in found if invalid) == 1


def test_an_entry_may_hold_many_rows(server: redis.Redis, url: str) -> None:
    lines = "\n".join(document(n) for n in range(10))
    server.xadd(KEY, {"data": lines, "rows": 10})
    server.xadd(KEY, {"data": lines, "rows": 10})
    pretty = json.dumps(json.loads(document(5)), indent=2)
    server.xadd(KEY, {"data": pretty})
    source = feed(url)
    assert source.waiting(None).rows == 30
    _, batches = drain(source, None, 15)
    assert batches == [list(range(10)), [*range(10), 5]]


def arrow_rows(first: int, last: int) -> pa.RecordBatch:
    numbers = range(first, last)
    return pa.RecordBatch.from_pylist(
        [{"b": str(n), "a": n, "t": None, "d": None, "more": 1} for n in numbers],
        schema=pa.schema(
            [
                ("b", pa.string()),
                ("a", pa.int32()),
                ("t", pa.timestamp("ns")),
                ("d", pa.decimal128(5, 1)),
                ("more", pa.int8()),
            ]
        ),
    )


def test_arrow_entries_are_converted_and_counted_by_their_rows(
    server: redis.Redis, url: str
) -> None:
    for first in range(0, 1000, 100):
        rows = arrow_rows(first, first + 100)
        server.xadd(KEY, {"arrow": ipc_stream(rows), "rows": rows.num_rows})
    source = feed(url, payload="arrow")
    assert source.waiting(None).rows == 1000
    assert len(source.pieces(None, source.advance(None, 10_000), 4)) == 4
    _, batches = drain(source, None, 250)
    assert [a for b in batches for a in b] == list(range(1000))
    assert [len(b) for b in batches] == [200] * 5
    server.xadd(KEY, {"arrow": b"no stream"})
    server.xadd(KEY, {"other": b"field"})
    server.xadd(KEY, {"arrow": ipc_stream(pa.RecordBatch.from_pydict({"a": ["x", "y"]}))})
    end = source.advance(None, 10_000)
    found = [r for p in source.pieces(None, end, 1) for r in read_piece(p)]
    assert sum(rows.num_rows for rows, _ in found) == 1000
    assert sum(invalid.num_rows for _, invalid in found if invalid) == 4


def test_lines_that_are_no_tuples_are_counted_one_by_one(server: redis.Redis, url: str) -> None:
    bad = ["{", "[1]", '{"a": "x"}', '{"a": 1} {"a": 2}', '{"t": "yesterday"}', '{"a": 1.5}', "7"]
    for number in range(200):
        server.xadd(KEY, {"data": document(number)})
        if number % 30 == 0:
            server.xadd(KEY, {"data": bad[number // 30]})
    source = feed(url)
    end = source.advance(None, 10_000)
    found = [r for p in source.pieces(None, end, 1) for r in read_piece(p)]
    assert [a for rows, _ in found for a in rows.column("a").to_pylist()] == list(range(200))
    assert sum(invalid.num_rows for _, invalid in found if invalid) == len(bad)


def test_wrong_servers_and_keys_are_errors_with_a_remedy(
    server: redis.Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.set(KEY, "text")
    with pytest.raises(SourceError, match="WRONGTYPE") as caught:
        feed(url).waiting(None)
    assert caught.value.remedy
    monkeypatch.setenv("ANABRANCH_SOURCE_PASSWORD", "secret")
    with pytest.raises(SourceError) as caught:
        feed("redis://user:${ANABRANCH_SOURCE_PASSWORD}@127.0.0.1:1/0").waiting(None)
    assert caught.value.code == "no-server"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"payload": "xml"}, "payload"),
        ({"keys": " , "}, "keys"),
        ({"keys": "a,a"}, "keys"),
        ({"colour": "red"}, "colour"),
        ({"payload": "fields", "field": "x"}, "field"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, str], field: str) -> None:
    with pytest.raises(StreamError) as caught:
        feed("redis://127.0.0.1:1", **options)
    assert caught.value.field == f"source.options.{field}"
    assert caught.value.remedy


def test_the_pipeline_s_own_server_may_have_a_password(url: str) -> None:
    administrator = redis.Redis.from_url(url)
    administrator.acl_setuser(
        "reader", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all"]
    )
    push(administrator, 0, 3)
    found = feed(url.replace("redis://", "redis://reader:secret@"))
    assert found.waiting(None).rows == 3
    pieces = found.pieces(None, found.advance(None, 3), 1)
    assert [r for b in read_pieces(pieces) for r in b.rows.column("a").to_pylist()] == [0, 1, 2]
    administrator.close()


# --- several feeds in one source ---------------------------------------------------------------


def reader(url: str, records: list[StreamRecord], home: Path) -> Feeds:
    return Feeds(records, 2, url, "test", str(home), OPEN)


def batch(reader: Feeds, start: Any, end: Any) -> dict[str, list[int]]:
    """Return stream -> column ``a`` of the batch between two offsets."""
    found: dict[str, list[int]] = {}
    for feed_id, feed in reader.feeds.items():
        upto = end.get(feed_id)
        pieces = [] if upto is None else feed.pieces(start.get(feed_id), upto, 2)
        for block in read_pieces(pieces):
            found.setdefault(block.stream, []).extend(block.rows.column("a").to_pylist())
    return {name: sorted(rows) for name, rows in found.items()}


def test_feeds_share_the_limit_and_one_that_fails_does_not_stop_the_others(
    server: redis.Redis, url: str, tmp_path: Path
) -> None:
    push(server, 0, 300, "x")
    push(server, 0, 100, "y")
    server.set("z", "no stream")
    records = [stream(name, None, keys=name) for name in "xyz"]
    source = reader(url, records, tmp_path)
    source._input.limit = 100
    end = source.plan({})
    assert batch(source, {}, end) == {"x": list(range(75)), "y": list(range(25))}
    intake = source._input
    assert intake.streams["x"].waiting == 300
    assert "WRONGTYPE" in (intake.streams["z"].error or "")
    assert intake.planned > 0
    server.delete("z")
    source._input.limit = None
    source._errors.clear()
    push(server, 0, 3, "z")
    last = source.plan(end)
    assert batch(source, end, last)["z"] == [0, 1, 2]
    assert source.plan(last) == last
    source.plan(last)
    now = {name: (s.waiting, s.error) for name, s in intake.streams.items()}
    assert now == dict.fromkeys("xyz", (0, None))


def test_a_stream_keeps_its_place_while_others_come_and_go(
    server: redis.Redis, url: str, tmp_path: Path
) -> None:
    push(server, 0, 10, "x")
    push(server, 0, 10, "y")
    both = reader(url, [stream("x", 4, keys="x"), stream("y", 4, keys="y")], tmp_path)
    first = both.plan({})
    assert batch(both, {}, first) == {"x": [0, 1, 2, 3], "y": [0, 1, 2, 3]}
    one = reader(url, [stream("x", 4, keys="x")], tmp_path)
    # A batch planned before "y" was removed has none of its rows.
    assert batch(one, {}, first) == {"x": [0, 1, 2, 3]}
    second = one.plan(first)
    assert batch(one, first, second) == {"x": [4, 5, 6, 7]}
    third = both.plan(second)
    assert batch(both, second, third) == {"x": [8, 9], "y": [4, 5, 6, 7]}
    # With another definition it is another stream, and is read from its beginning.
    push(server, 100, 102, "y2")
    other = reader(url, [stream("x", 4, keys="x"), stream("y", 4, keys="y2")], tmp_path)
    assert batch(other, third, other.plan(third)) == {"y": [100, 101]}
