"""Tests of streams that read files or a table, then topics: each row once, whenever files and
messages arrive.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.protocol.intake import SnapshotProgress
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.feed import Feed
from anabranch_runtime.sources.feeds import make_feed, plan_feed
from anabranch_runtime.sources.loads import Load
from anabranch_runtime.task.weights import weights_of
from scripts.kafka import Broker
from tests.runtime.sources.lake.icebergs import Iceberg
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.kafka import Topics
from tests.support.surroundings.policy import OPEN

pytestmark = pytest.mark.usefixtures("patient")


class World:
    """A folder or table in ``home``, and a topic of two partitions."""

    def __init__(self, home: Path, broker: Broker) -> None:
        self.home, self.broker, self.topics = home, broker, Topics(broker.address)
        self.topic = self.topics.make(2, **{"retention.ms": "-1"})
        (home / "in").mkdir()

    def feed(
        self, format: str = "files", start: str = "earliest", changes: ChangeFormat | None = None
    ) -> Feed:
        """Return a new feed, as after a restart."""
        columns = [ColumnRecord(name="a", type="bigint"), ColumnRecord(name="p", type="string")]
        if changes is not None:
            columns.append(ColumnRecord(name="op", type="string"))
        options = {"brokers": self.broker.address, "topics": self.topic, "start": start}
        source = SourceRecord(
            format=format,
            path=str(self.home / "in") if format == "files" else None,
            options={} if format == "files" else {"table": "lake.db.t"},
            then=SourceRecord(format="kafka", options=options),
        )
        record = StreamRecord(name="s", columns=tuple(columns), changes=changes, source=source)
        return make_feed(record, "", Keys("test"), str(self.home / "state"), OPEN)

    def write(self, numbers: Iterable[int]) -> None:
        """Add a file with rows."""
        found = list(numbers)
        rows = pa.table({"a": pa.array(found, pa.int64()), "p": ["file"] * len(found)})
        place = self.home / "in" / f"{time.time_ns()}.parquet"
        pq.write_table(rows, place.with_suffix(".tmp"))
        place.with_suffix(".tmp").rename(place)

    def push(self, numbers: Iterable[int], partition: int = 0, **more: Any) -> None:
        """Send messages."""
        rows = ({"a": n, "p": "topic", **more} for n in numbers)
        self.topics.push(self.topic, [json.dumps(row).encode() for row in rows], partition)


@pytest.fixture
def world(tmp_path: Path, kafka: Broker) -> World:
    return World(tmp_path, kafka)


def begin(feed: Feed) -> Any:
    """Return the first offset, as soon as brokers have a leader for the new topic."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return feed.begin()
        except SourceError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def read(feed: Feed, start: Any, end: Any) -> list[tuple[int, str, int]]:
    """Return the rows between two offsets, with their weights."""
    found = list[tuple[int, str, int]]()
    for piece in feed.pieces(start, end, 2):
        assert piece.feed == feed.id
        assert feed.before(end, [piece]) != end
        for rows, invalid in read_piece(piece):
            assert not invalid
            form, values = feed.record.changes, rows.select(["a", "p"]).to_pydict()
            weights = [1] * rows.num_rows if form is None else weights_of(rows, form)[0].to_pylist()
            found += zip(values["a"], values["p"], weights, strict=True)
    return found


def drain(feed: Feed, offset: Any, patience: float = 3.0) -> tuple[Any, list[Any]]:
    """Read until nothing has waited for ``patience`` seconds, and in many looks."""
    found, last, looks = list[Any](), time.monotonic(), 0
    while time.monotonic() - last < patience or looks < 50:
        looks += 1
        if rows := feed.waiting(offset).rows:
            end = json.loads(json.dumps(feed.advance(offset, min(rows, 7))))
            found += read(feed, offset, end)
            offset, last, looks = end, time.monotonic(), 0
        time.sleep(0.02)
    return offset, found


@pytest.mark.parametrize("seed", mostly_slow(range(2)))
def test_random_files_messages_batches_and_restarts_give_each_row_once(
    world: World, seed: int
) -> None:
    chance, numbers = random.Random(seed), iter(range(10_000))

    def some(most: int) -> list[int]:
        return [next(numbers) for _ in range(chance.randrange(1, most))]

    past, messages, found = some(40), list[int](), list[Any]()
    world.write(past)
    world.push(some(10))
    feed = world.feed(start="latest")
    offset = json.loads(json.dumps(begin(feed)))
    planned = list[Any]()
    for _ in range(60):
        step = chance.random()
        if step < 0.1:
            feed = world.feed(start="latest")
        elif step < 0.3:
            more = some(10)
            world.push(more, chance.randrange(2))
            messages += more
        elif step < 0.35 and feed.waiting(offset).snapshot is None:
            # The files have ended: later ones are not read.
            world.write(some(5))
        elif rows := feed.waiting(offset).rows:
            end = feed.advance(offset, chance.randrange(1, rows + 1))
            end = json.loads(json.dumps(end))
            planned.append((offset, end, read(feed, offset, end)))
            offset = end
        time.sleep(0.05)
    offset, rest = drain(world.feed(start="latest"), offset)
    found = [row for _, _, rows in planned for row in rows] + rest
    expected = [(n, "file", 1) for n in past] + [(n, "topic", 1) for n in messages]
    assert sorted(found) == sorted(expected)
    places = [p for _, p, _ in found]
    assert places == sorted(places), "files come first"
    for start, end, rows in planned:
        assert read(world.feed(start="latest"), start, end) == rows


def test_messages_begin_at_the_stated_point(world: World) -> None:
    world.write(range(3))
    world.push(range(10))
    world.push(range(10, 15), 1)
    offsets = json.dumps({world.topic: {"0": 8, "1": 1}})
    feed = world.feed(start=offsets)
    _, found = drain(feed, begin(feed), 2)
    assert sorted(a for a, p, _ in found if p == "topic") == [8, 9, 11, 12, 13, 14]
    time.sleep(0.01)
    moment = datetime.now(UTC).isoformat()
    time.sleep(0.01)
    world.push(range(20, 22))
    feed = world.feed(start=moment)
    _, found = drain(feed, begin(feed), 2)
    assert sorted(a for a, _, _ in found) == [0, 1, 2, 20, 21]


def test_the_past_and_the_messages_of_its_time_are_one_load(world: World) -> None:
    world.write(range(30))
    world.push(range(5))
    feed, load = world.feed(), Load("s")
    offset = begin(feed)
    found = feed.waiting(offset)
    assert (found.rows, found.snapshot) == (30, SnapshotProgress(30, 0))
    offset, load = plan_feed(feed, offset, 10, load, time.time())
    assert feed.waiting(offset).snapshot == SnapshotProgress(30, 10)
    while load.is_open:
        offset, load = plan_feed(feed, offset, feed.waiting(offset).rows, load, time.time())
        time.sleep(0.05)
    assert len(read(feed, None, offset)) == 35
    assert load.number == 0
    world.push(range(5, 8))
    while not feed.waiting(offset).rows:
        time.sleep(0.05)
    offset, load = plan_feed(feed, offset, 9, load, time.time())
    assert (load.number, len(read(feed, None, offset))) == (1, 38)


def test_a_folder_without_files_is_an_error(world: World) -> None:
    feed = world.feed()
    offset = begin(feed)
    with pytest.raises(SourceError) as caught:
        feed.waiting(offset)
    assert caught.value.code == "no-files"
    world.write(range(2))
    _, found = drain(world.feed(), offset, 2)
    assert len(found) == 2


def test_the_snapshot_of_a_table_and_then_changes_amount_to_both(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Iceberg(world.home, monkeypatch)
    lake.add(0, 30)
    lake.delete_rows(3, 6)
    present = lake.present()
    changes = ChangeFormat(key=("a",))
    feed = world.feed("iceberg", "latest", changes)
    offset = begin(feed)
    assert feed.waiting(offset).rows == 30
    lake.add(30, 40)
    world.push(range(2), op="u")
    world.push(range(10, 13), op="d")
    _, found = drain(world.feed("iceberg", "latest", changes), offset, 2)
    rows = dict[int, Any]()
    for a, p, weight in found:
        rows.pop(a, None)
        if weight:
            rows[a] = p
    expected = {a: p for a, p in present if not 10 <= a < 13} | {0: "topic", 1: "topic"}
    assert Counter(rows) == Counter(expected)
    assert rows == expected
