"""Tests of the state report that a driver publishes: stores, segments, readers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
import redis

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.state_report import EdgeReport, StateReport, StoreParts
from anabranch_runtime.driver.reporting import state_publisher as state_teller
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.measure import state_report as report
from anabranch_runtime.measure.state_report import state_report
from anabranch_runtime.state.manifest import State
from tests.support.cases.states import RS, base_store, segment
from tests.support.worlds.driven import KEYS, driver, job, publish


def told(url: str) -> StateReport | None:
    text = redis.Redis.from_url(url).get(KEYS.state)
    return None if text is None else StateReport.loads(text)


def test_every_state_is_told_of_when_there_is_time(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    assert told(url) is None
    for batch in range(3):
        one.run(job(batch))
        found = told(url)
        assert found == state_report(
            tmp_path / "state", one.state, one.durability.rulesets.get(RulesetId(0))
        )
        assert found is not None
        assert found.next_batch == batch + 1
        assert {s.mir: (s.rows, s.queries) for s in found.stores} == {
            "R": (batch + 1, ("q",)),
            "S": (batch + 1, ("q",)),
        }
        assert found.write_amplification == 1
        # Each store's share is its part of the files; each batch has one file.
        assert abs(found.disk_bytes - sum(s.disk_bytes for s in found.stores)) <= len(found.stores)
        assert {s.write_amplification for s in found.stores} == {1.0}
        for store in found.stores:
            (index,) = store.indexes
            assert (index.key, index.entries, index.filter_bytes) == ("a:bigint", batch + 1, 0)
            assert index.bytes == store.index_bytes
            assert store.life == index.life == one.state.measured.reads[store.store]["a:bigint"]
            assert store.life.probes == batch + 1
        # Headers, footers and padding make the difference.
        assert found.disk_bytes > found.bytes > 0


def parts(url: str) -> dict[str, StoreParts]:
    found = redis.Redis.from_url(url, decode_responses=True).hgetall(KEYS.state_parts)
    return {str(name): StoreParts.loads(text) for name, text in found.items()}


def test_each_stores_segments_and_readers_are_told_of(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    redis.Redis.from_url(url).hset(KEYS.state_parts, "of an earlier life", "{}")
    for batch in range(3):
        one.run(job(batch))
    found = parts(url)
    assert found.keys() == one.state.stores.keys()
    rules = one.durability.rulesets.get(RulesetId(0))
    for name, told_of in found.items():
        store = one.state.stores[name]
        assert (told_of.next_batch, told_of.omitted, told_of.edges_omitted) == (3, 0, 0)
        assert [(s.rows, s.bytes, s.level, s.batches) for s in told_of.segments] == [
            (1, s.bytes, 0, (b, b)) for b, s in enumerate(store.segments)
        ]
        assert [s.event_time for s in told_of.segments] == [(0, 0), (1, 1), (2, 2)]
        (rule,) = [r for r in rules.probe_rules if r.store == name]
        assert told_of.edges == (EdgeReport(rule.out, ("q",), fill=False),)
        assert StoreParts.loads(told_of.dumps()) == told_of
    one.state = replace(one.state, stores={})
    one.tick()
    assert parts(url) == {}


def test_segments_are_told_of_as_far_as_there_is_room(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One store's segments per report: the one that waited longest is next, until all are up to
    date.
    """
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    monkeypatch.setattr(state_teller, "ROOM", 1)
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    one.run(job(0))
    (first,) = parts(url)
    one.run(job(1))
    assert {name: p.next_batch for name, p in parts(url).items()} == {
        name: 1 if name == first else 2 for name in one.state.stores
    }
    one.tick()
    assert {p.next_batch for p in parts(url).values()} == {2}
    monkeypatch.setattr(one.reporting.stores, "root", None)
    one.tick()  # Nothing is left to tell: nothing is looked at.


def test_a_long_report_is_followed_by_a_long_pause(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "PACE", 1)
    monkeypatch.setattr(state_teller, "INTERVAL", 1.0)
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    one.run(job(0))
    one.run(job(1))
    started = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: started + 1000)
    one.reporting.stores.show(one.state, lambda: None)
    found = told(url)
    assert found is not None
    assert found.next_batch == 1
    size = len(redis.Redis.from_url(url).get(KEYS.state) or b"")
    assert size > 1000
    monkeypatch.setattr(time, "monotonic", lambda: started + 10 * size)
    one.reporting.stores.show(one.state, lambda: None)
    found = told(url)
    assert found is not None
    assert found.next_batch == 2


def test_a_store_of_very_many_segments_has_its_largest_told_of() -> None:
    small = [segment("R/1", (b, b)) for b in range(report.MOST_SEGMENTS)]
    large = [replace(segment("R/1", (b, b)), data=(64, 10**6, 0)) for b in (5000, 5001, 5002)]
    parts = [*small[:10], large[0], *small[10:], *large[1:]]
    store = base_store("R", [(0, 6000)], segments=parts)
    edges = {f"e{n:03}": EdgeReport(f"e{n:03}", ("q",) * 99, fill=False) for n in range(250)}
    readers = {"R/1": report.StoreReaders(edges)}
    found = report.store_parts("R/1", State(6001, stores={"R/1": store}), readers)
    assert (len(found.segments), found.omitted) == (report.MOST_SEGMENTS, 3)
    assert [s.batches[0] for s in found.segments if s.bytes == 10**6] == [5000, 5001, 5002]
    assert (len(found.edges), found.edges_omitted, found.edges[0].edge) == (200, 50, "e000")
    assert {len(e.queries) for e in found.edges} == {report.MOST_QUERIES}
    assert len(found.dumps()) < 200_000


def test_what_came_too_soon_is_told_of_later(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 3600.0)
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10, seconds=3600.0)
    one.run(job(0))
    one.run(job(1))
    one.tick()
    found = told(url)
    assert found is not None
    assert found.next_batch == 1
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    one.tick()
    found = told(url)
    assert found is not None
    assert found.next_batch == 2


def test_the_end_of_a_replay_is_told_of_at_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 3600.0)
    publish(url, 0)
    one = driver(url, tmp_path, every=10)
    one.reporting.total_batches = 2
    one.run(job(0))
    one.run(job(1))
    found = told(url)
    assert found is not None
    assert found.next_batch == 2


def test_stores_of_a_failed_query_are_gone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    publish(url, 0, {"q": RS, "bad": f"{RS} WHERE 10 / S.b > 1"})
    one = driver(url, tmp_path, every=10)
    one.run(job(0))
    assert one.state.queries["bad"].failure is not None
    found = told(url)
    assert found is not None
    assert sorted(s.store for s in found.stores) == sorted(one.state.stores)
    assert {q for s in found.stores for q in s.queries} == {"q"}


def test_a_ruleset_that_nobody_has_leaves_the_stores(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_teller, "INTERVAL", 0.0)
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10, seconds=3600.0)
    one.run(job(0))

    def lost(number: int) -> NoReturn:
        raise PipelineError("no-ruleset", f"ruleset {number} is nowhere")

    monkeypatch.setattr(one.durability.rulesets, "get", lost)
    one.state = replace(one.state)
    one.tick()
    found = told(url)
    assert found is not None
    assert {s.mir: (s.rows, s.queries) for s in found.stores} == {"R": (1, ()), "S": (1, ())}
