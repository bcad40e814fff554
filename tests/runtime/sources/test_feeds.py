"""Tests of batches planned by the source of all feeds; ``test_batch_input`` tests reading them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.protocol.intake import SnapshotProgress
from anabranch_contract.queries.joins import Stream, StreamKind
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.sources.feed import Waiting
from anabranch_runtime.sources.files.feed import FileFeed
from anabranch_runtime.sources.loads import LOADS, loads_of
from anabranch_runtime.state.manifest import StreamState
from anabranch_runtime.state.offsets import OWED, Offsets
from tests.support.cases.states import rules
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.fed import STREAMS, Fed


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Fed]:
    fetch_ruleset.cache_clear()
    with redis_url() as url:
        found = Fed(url, tmp_path / "fed")
        yield found
        found.server.close()


def _plan(fed: Fed, start: dict[str, Any]) -> dict[str, Any]:
    return fed.reader.plan(start)


def test_a_batch_is_planned_for_what_is_owed_once(fed: Fed) -> None:
    start = _plan(fed, {})
    assert _plan(fed, start) == start
    fed.control.owed = 7
    end = _plan(fed, start)
    assert end == {**start, OWED: 7}
    # The same batch is not planned twice; the next one is.
    assert _plan(fed, end) == end
    fed.control.owed = 8
    assert _plan(fed, end) == {**start, OWED: 8}
    fed.control.owed = None
    assert _plan(fed, end) == end


def test_input_comes_first(fed: Fed) -> None:
    start = _plan(fed, {})
    fed.control.owed = 7
    fed.push([1, 2])
    end = _plan(fed, start)
    assert OWED not in end
    assert end != start


def test_a_stream_that_is_retained_is_not_read_before_an_epoch_stores_it(fed: Fed) -> None:
    fed.file("a.parquet", [1, 2])
    fed.push([1])
    fed.retain = {"R": None}
    fed.read_anew()
    start = _plan(fed, {})
    (feed,) = (i for i, f in fed.reader.feeds.items() if f.record.name == "R")
    assert feed not in start
    assert len(start.keys() - {LOADS}) == 1, "the other stream waits for nobody"

    def epoch_has(**properties: Any) -> None:
        spec = replace(STREAMS[0], **properties)
        streams = {"R": StreamState(spec), "S": StreamState(STREAMS[1])}
        fed.driver.progress.direct(replace(fed.driver.state, streams=streams))

    epoch_has()
    assert _plan(fed, start) == start, "the epoch has it, and stores nothing of it"
    epoch_has(retain=None, registration="earlier")
    assert _plan(fed, start) == start, "the epoch has an earlier stream of the name"
    epoch_has(retain=None)
    end = _plan(fed, start)
    assert end[feed] == [1, 0]
    epoch_has()
    fed.file("b.parquet", [3])
    assert _plan(fed, end)[feed] == end[feed], "a source that has begun waits as well"


@pytest.mark.parametrize("retain", [None, 0])
def test_a_widened_stream_is_not_read_with_its_narrower_types(fed: Fed, retain: int | None) -> None:
    fed.push([1])
    start = _plan(fed, {})
    fed.push([1])
    fed.retain = {"S": retain}
    fed.widened = {"S": (("a", "int"),)}
    fed.read_anew()
    narrow = replace(STREAMS[1], retain=retain)
    wide = replace(narrow, widened=(("a", parse_type("int")),))

    def epoch_has(*specs: Stream) -> None:
        streams = {str(spec.name): StreamState(spec) for spec in specs}
        fed.driver.progress.direct(replace(fed.driver.state, streams=streams))

    epoch_has(STREAMS[0], narrow)
    assert _plan(fed, start) == start
    epoch_has(STREAMS[0], wide)
    assert _plan(fed, start) != start
    # Input of a stream that no query reads is discarded, as if it had another type.
    epoch_has(STREAMS[0])
    assert (_plan(fed, start) == start) == (retain is None)


def test_a_stream_that_is_registered_again_is_read_again(fed: Fed) -> None:
    fed.file("a.parquet", [1, 2])
    fed.push([1])
    fed.drain()
    assert fed.driver.state.streams["R"].input == 2
    fed.registration = {"R": "again", "S": "again"}
    fed.read_anew()
    fed.drain()
    # The epoch has the former streams, not these rows' streams: they are counted.
    assert {n: s.input for n, s in fed.driver.state.streams.items()} == {"R": 4, "S": 2}
    assert len(fed.results("r")) == 2
    again = [replace(s, registration="again", retain=None) for s in STREAMS]
    before = fed.driver.state
    state = enter_epoch(before, rules(1, {}, streams=again), 1)
    assert {n: s.input for n, s in state.streams.items()} == {"R": 0, "S": 0}
    assert all(not s.segments for s in state.stores.values())
    assert any(s.segments for s in before.stores.values())


@pytest.fixture
def with_snapshot(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> Fed:
    """Make ``R`` read a snapshot of 500 rows."""
    found = FileFeed.waiting

    def waiting(self: FileFeed, offset: Any) -> Waiting:
        there = found(self, offset)
        return replace(there, snapshot=SnapshotProgress(there.rows, 0)) if there.rows else there

    monkeypatch.setattr(FileFeed, "waiting", waiting)
    monkeypatch.setattr("anabranch_runtime.sources.files.feed.LISTING", 0.0)
    fed.file("a.parquet", list(range(500)))
    fed.control.limit, fed.control.pace = 200, 10
    return fed


def test_a_table_that_streams_wait_for_has_no_pace(with_snapshot: Fed) -> None:
    with_snapshot.push([1, 2])
    with_snapshot.tables = {"R"}
    with_snapshot.read_anew()
    _plan(with_snapshot, {})
    assert with_snapshot.control.paced == 200


def test_a_snapshot_is_read_at_its_pace_beside_live_streams_only(
    with_snapshot: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = with_snapshot

    def paced(start: dict[str, Any]) -> tuple[dict[str, Any], int]:
        end = _plan(fed, start)
        return end, fed.control.paced

    at, rows = paced({})
    assert rows == 200, "no other stream has had rows"
    assert fed.control.reads_snapshot
    fed.push([1, 2])
    at, rows = paced(at)
    assert rows == 10
    at, rows = paced(at)
    assert rows == 10, "rows of the other stream may come at any time"
    monkeypatch.setattr("anabranch_runtime.sources.feeds.LIVE", 0.0)
    at, rows = paced(at)
    assert rows == 200
    fed.push([3])
    at, rows = paced(at)
    assert rows == 10
    fed.control.pace = None
    fed.push([4])
    at, rows = paced(at)
    assert rows == 199
    while fed.control.reads_snapshot:
        at, _ = paced(at)
    fed.push([5])
    assert paced(at)[1] == 0, "the snapshot has been read"


def test_tables_are_read_before_streams_the_first_time(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("loads.QUIET_FIRST", "files.feed.LISTING"):
        monkeypatch.setattr(f"anabranch_runtime.sources.{name}", 0.0)
    fed.file("a.parquet", list(range(150)))
    fed.push([1, 2])
    fed.retain, fed.tables = {"R": None}, {"R"}
    fed.read_anew()
    ids = {feed.record.name: i for i, feed in fed.reader.feeds.items()}
    first = _plan(fed, {})
    assert first.keys() <= {ids["S"]}, "the table waits for its epoch, and the stream for the table"
    assert _plan(fed, first) == first

    spec = replace(STREAMS[0], retain=None, kind=StreamKind.TABLE)
    streams = {"R": StreamState(spec), "S": StreamState(STREAMS[1])}
    fed.driver.progress.direct(replace(fed.driver.state, streams=streams))
    read, offset = [], first
    for _ in range(3):
        end = _plan(fed, offset)
        loading = loads_of(end)[ids["R"]].is_open
        read.append((end[ids["R"]], end.get(ids["S"]) == first.get(ids["S"]), loading))
        offset = end
    assert read == [([0, 60], True, True), ([0, 120], True, True), ([1, 0], True, False)]
    end = _plan(fed, offset)
    assert end[ids["S"]] != first.get(ids["S"])
    fed.read_anew()
    assert _plan(fed, offset) == end, "another process knows it"


def test_an_empty_table_holds_nobody_up(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch_runtime.sources.files.feed.LISTING", 0.0)
    fed.push([1])
    fed.retain, fed.tables = {"R": None}, {"R"}
    fed.read_anew()
    spec = replace(STREAMS[0], retain=None, kind=StreamKind.TABLE)
    streams = {"R": StreamState(spec), "S": StreamState(STREAMS[1])}
    fed.driver.progress.direct(replace(fed.driver.state, streams=streams))
    end = _plan(fed, {})
    assert [load.is_open for load in loads_of(end).values()] == [False]
    fed.file("a.parquet", [1])
    fed.push([2])
    after = _plan(fed, end)
    assert all(after[i] != end.get(i) for i in fed.reader.feeds), "neither waits any more"


def test_offsets_show_what_a_batch_was_planned_for() -> None:
    def at(planned: int, **feeds: int) -> Offsets:
        return Offsets(planned, {"feeds": feeds, "recorded": {"r": 5}})

    assert not at(2, a=1, **{OWED: 3}).reads_after(at(1, a=1))
    assert not at(2, a=1, **{OWED: 4}).reads_after(at(1, a=1, **{OWED: 3}))
    assert at(2, a=2, **{OWED: 3}).reads_after(at(1, a=1, **{OWED: 3}))
    assert at(1, a=1).reads_after(None)
