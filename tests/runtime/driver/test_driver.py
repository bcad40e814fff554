"""Tests of the driver's batch protocol, step by step: what it repeats, skips, refuses and cleans
up.

Batches run in this process (one task); only Spark is left out, and the planner's service is the
test itself.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis as redis_client

from anabranch_contract.protocol.progress import Boundary, Mode
from anabranch_runtime.control import Control
from anabranch_runtime.driver import driver as drivers
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.faults import Point
from anabranch_runtime.recovery import journal
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.task.context import BatchContext
from tests.support.cases.states import RS, ST
from tests.support.worlds.driven import (
    KEYS,
    Killed,
    boundaries,
    die,
    driver,
    expected,
    job,
    publish,
    results,
)
from tests.support.worlds.records import put


def test_the_batch_in_which_a_stream_began_stays_known(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    first = driver(url, tmp_path, every=10)
    for batch in range(2):
        first.run(job(batch))
    for one in (first, driver(url, tmp_path, every=10)):
        assert {name: s.began for name, s in one.state.streams.items() if s.input} == {
            "R": 0,
            "S": 0,
        }


def test_what_an_interrupted_batch_left_is_collected(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    one.run(job(0))
    kept = set((tmp_path / "state" / "segments").iterdir())
    with pytest.raises(Killed):
        one.run(die(after=job(1)))
    assert set((tmp_path / "state" / "segments").iterdir()) > kept
    (tmp_path / "state" / "segments" / "x.pack.partial").touch()

    again = driver(url, tmp_path)

    assert set((tmp_path / "state" / "segments").iterdir()) == kept
    assert list((tmp_path / "results" / ".staging").iterdir()) == []
    again.run(job(1))
    assert results(tmp_path) == expected(2)


def test_a_batch_killed_between_its_results_and_its_commit_replaces_them(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    one.run(job(0))
    with monkeypatch.context() as patch:

        def die_at_commit(*_: object) -> None:
            raise Killed

        patch.setattr(one.durability.manifests, "commit", die_at_commit)
        with pytest.raises(Killed):
            one.run(job(1))
    assert results(tmp_path) == expected(2)

    driver(url, tmp_path).run(job(1))

    assert results(tmp_path) == expected(2)


def test_results_that_are_not_durable_are_not_committed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    one.run(job(0))
    with monkeypatch.context() as patch:

        def full(_: Path) -> None:
            time.sleep(0.1)  # longer than the manifest's own sync
            raise OSError(28, "No space left on device")

        patch.setattr(drivers, "sync_filesystem", full)
        with pytest.raises(OSError, match="No space"):
            one.run(job(1))
    assert one.state.next_batch == 1
    assert not list((tmp_path / "state" / "manifest").glob("*.partial"))

    again = driver(url, tmp_path)

    assert again.state.next_batch == 1
    again.run(job(1))
    assert results(tmp_path) == expected(2)


def test_nothing_is_published_before_the_journal_has_the_batch(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    one.run(job(0))
    working, choices = threading.Event(), one.durability.choices
    write = durable(tmp_path / "state").write

    def late(*given: Any, **named: Any) -> None:
        if given[1] is journal.KIND:
            assert working.wait(10)  # the tasks run meanwhile
            time.sleep(0.1)
        write(*given, **named)

    def works(context: BatchContext) -> list[TaskReport]:
        assert not entry.exists()
        working.set()
        return job(1)(context)

    def publishes(point: Point) -> None:
        passed.append((point, entry.exists()))

    entry, passed = choices._path(1), list[tuple[Point, bool]]()
    storage = SimpleNamespace(write=late, discard=choices._durable.discard)
    monkeypatch.setattr(choices, "_durable", storage)
    monkeypatch.setattr(drivers, "reach", publishes)
    one.run(works)

    assert dict(passed)[Point.STAGED]
    assert results(tmp_path) == expected(2)


@pytest.mark.parametrize("fails", [False, True], ids=["killed", "disk"])
def test_a_batch_whose_journal_entry_was_lost_is_chosen_again(
    fails: bool, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    one.run(job(0))
    before = results(tmp_path)
    choices, written = one.durability.choices, one.durability.choices._durable

    def lost(*_: object) -> None:
        if fails:
            raise OSError(28, "No space left on device")
        raise Killed

    monkeypatch.setattr(choices, "_durable", SimpleNamespace(write=lost, discard=written.discard))
    with pytest.raises(OSError if fails else Killed):
        one.run(job(1))
    assert choices.get(1) is None
    assert results(tmp_path) == before

    again = driver(url, tmp_path)

    assert again.durability.choices.get(1) is None
    again.run(job(1))
    assert results(tmp_path) == expected(2)


def test_a_failed_attempt_is_made_again_and_leaves_nothing(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    attempts: list[str] = []

    def unlucky(context: BatchContext) -> list[TaskReport]:
        attempts.append(context.attempt)
        reports = job(0)(context)
        if len(attempts) == 1:
            raise OSError("a worker is gone")
        return reports

    one = driver(url, tmp_path)
    one.run(unlucky)

    assert len(set(attempts)) == 2
    assert results(tmp_path) == expected(1)
    named = {s.path for store in one.state.stores.values() for s in store.segments}
    assert {attempts[1] in name for name in named} == {True}


def test_a_batch_that_always_fails_is_not_skipped(url: str, tmp_path: Path) -> None:
    publish(url, 0)

    def broken(_: BatchContext) -> list[TaskReport]:
        raise OSError("no space left")

    one = driver(url, tmp_path)
    with pytest.raises(OSError, match="no space"):
        one.run(broken)
    assert one.state.next_batch == 0
    one.run(job(0))
    assert results(tmp_path) == expected(1)


# --- epochs ------------------------------------------------------------------------------------


def test_step_mode_waits_for_each_epochs_ruleset(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    one.run(job(0))
    one.run(job(1))
    with pytest.raises(PipelineError) as caught:
        one.run(job(2))
    assert caught.value.code == "no-ruleset"
    publish(url, 1)
    one.run(job(2))

    assert one.state.epoch_starts == ((0, 0), (1, 2))
    assert [(b.epoch, b.next_batch) for b in boundaries(url)] == [(-1, 0), (0, 2)]


def test_an_interrupted_batch_is_repeated_by_the_ruleset_chosen_for_it(
    url: str, tmp_path: Path
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE)
    one.run(job(0))
    one.run(job(1))
    seen: list[tuple[int, int]] = []
    with pytest.raises(Killed):
        one.run(die(after=job(2, seen)))
    publish(url, 1, {"q": RS, "p": RS})

    again = driver(url, tmp_path, Mode.LIVE, seconds=0.0)
    for _ in range(3):
        # Between batches the driver looks for new rulesets; this batch has begun already.
        again.tick()
    again.run(job(2, seen))

    assert seen == [(1, 0), (1, 0)]
    assert set(again.state.queries) == {"q"}
    assert results(tmp_path) == expected(3)
    again.tick()
    again.tick()
    assert again.state.ruleset.epoch == 1
    assert again.state.queries["p"].activated_batch == 3


def test_live_goes_on_with_the_newest_ruleset_there_is(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=1)
    seen: list[tuple[int, int]] = []
    for batch in range(3):
        one.run(job(batch, seen))
    publish(url, 2, {"q": RS, "p": ST})
    one.run(job(3, seen))

    assert seen == [(0, 0), (1, 0), (2, 0), (3, 2)]
    assert results(tmp_path) == expected(4)
    assert [b.epoch for b in boundaries(url)] == [-1, 0, 1, 2, 3]


def test_live_and_idle_a_registered_query_becomes_active(url: str, tmp_path: Path) -> None:
    publish(url, 0, {"q": ST})
    one = driver(url, tmp_path, Mode.LIVE, seconds=0.0)
    one.tick()
    assert (one.state.epoch, set(one.state.queries)) == (0, {"q"})
    put(redis_client.Redis.from_url(url), KEYS, "streams", "x", "anything")
    for _ in range(3):
        one.tick()
    assert [b.epoch for b in boundaries(url)][:3] == [-1, 0, 1]
    publish(url, 2, {"q": ST, "p": RS})
    one.tick()
    assert one.state.queries["p"].activated_batch == 0
    assert one.state.next_batch == 0
    assert driver(url, tmp_path, Mode.LIVE).state == one.state


def test_live_and_busy_a_change_ends_two_epochs_early(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches follow each other without pause, so there is no tick between them."""
    monkeypatch.setattr(drivers, "LOOK", 0.0)
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=100, seconds=60.0)

    def run(*batches: int) -> list[int]:
        for batch in batches:
            one.cycle = replace(one.cycle, since=one.cycle.since - 61.0)
            one.watch()
            one.run(job(batch))
        return [b.epoch for b in boundaries(url)]

    # Streams and queries registered before the start count as a change.
    assert run(0, 1, 2, 3) == [-1, 0, 1]
    put(redis_client.Redis.from_url(url), KEYS, "streams", "x", "anything")
    assert run(4, 5, 6) == [-1, 0, 1, 2, 3]
    assert one.state.epoch_starts == ((0, 0), (1, 1), (2, 2), (3, 5), (4, 6))
    assert results(tmp_path) == expected(7)


def test_a_ruleset_that_comes_after_its_epochs_first_batch_has_the_next(
    url: str, tmp_path: Path
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path, Mode.LIVE, every=10, seconds=60.0)

    def pass_by(seconds: float) -> None:
        one.cycle = replace(one.cycle, since=one.cycle.since - seconds)

    while one.cycle.epoch < 2:
        pass_by(61.0)
        one.tick()
    one.run(job(0))
    late = one.state.epoch
    assert one.state.ruleset.epoch == 0
    publish(url, late, {"q": RS, "p": RS})
    pass_by(61.0)

    # Long before the end of an epoch without changes.
    one.tick()
    one.tick()

    assert one.state.ruleset.epoch == late
    assert one.state.queries["p"].activated_batch == 1


def test_the_registry_has_changed_once_a_querys_time_is_up(url: str) -> None:
    control, seconds = Control(url, "test"), 0.3
    while True:
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        records = {"q": {"expires_at": end.isoformat()}, "for_ever": {"expires_at": None}}
        for name, record in records.items():
            put(redis_client.Redis.from_url(url), KEYS, "queries", name, json.dumps(record))
        before, again = control.registry_digest(), control.registry_digest()
        if datetime.now(UTC) < end:
            break
        # The machine is busy.
        seconds *= 2
    assert again == before
    time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()) + 0.01)
    after = control.registry_digest()
    assert after != before
    assert control.registry_digest() == after


def test_the_registry_has_changed_once_a_plan_is_approved(url: str) -> None:
    control = Control(url, "test")
    before = control.registry_digest()
    redis_client.Redis.from_url(url).hset(KEYS.approval, "held", "a plan that nobody has seen")
    assert control.registry_digest() == before
    redis_client.Redis.from_url(url).hset(KEYS.approval, "approved", "its digest")
    assert control.registry_digest() != before


def test_changes_that_are_part_of_a_plan_require_no_other(url: str) -> None:
    control, server = Control(url, "test"), redis_client.Redis.from_url(url)
    put(server, KEYS, "queries", "q", "{}")
    before = control.registry_digest()
    server.xadd(KEYS.changes, {"queries": json.dumps(["q"]), "planned": "1"})
    assert control.registry_digest() == before
    # A change that a user makes meanwhile does end the epoch, wherever it is listed.
    put(server, KEYS, "queries", "r", "{}")
    server.xadd(KEYS.changes, {"queries": json.dumps(["q"]), "planned": "1"})
    after = control.registry_digest()
    assert after != before
    assert control.registry_digest() == after


# --- Redis and the state out of step -----------------------------------------------------------


def test_a_boundary_that_never_reached_redis_is_reported_after_a_restart(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    one.run(job(0))

    def die_at_boundary(_: Boundary) -> None:
        raise Killed

    monkeypatch.setattr(one.control, "report_boundary", die_at_boundary)
    with pytest.raises(Killed):
        one.run(job(1))
    assert [b.epoch for b in boundaries(url)] == [-1]

    again = driver(url, tmp_path)

    assert [(b.epoch, b.next_batch) for b in boundaries(url)] == [(-1, 0), (0, 2)]
    assert boundaries(url)[-1].snapshot is not None
    publish(url, 1)
    again.run(job(2))
    assert results(tmp_path) == expected(3)


def test_a_reported_boundary_is_not_reported_twice(url: str, tmp_path: Path) -> None:
    publish(url, 0)
    one = driver(url, tmp_path)
    one.run(job(0))
    one.run(job(1))
    for _ in range(3):
        driver(url, tmp_path)
    assert [b.epoch for b in boundaries(url)] == [-1, 0]


def test_a_heartbeat_that_never_reached_redis_is_written_after_a_restart(
    url: str, tmp_path: Path
) -> None:
    publish(url, 0)
    driver(url, tmp_path).run(job(0))
    redis_client.Redis.from_url(url).delete(KEYS.runtime, KEYS.activations)

    driver(url, tmp_path)

    connection = redis_client.Redis.from_url(url)
    progress = json.loads(connection.get(KEYS.runtime) or "")
    assert progress["committed"] == 1
    assert progress["results"] == {"q": 1}
    assert connection.hexists(KEYS.activations, "q")


def test_a_replay_ends_with_an_empty_file_for_a_query_without_results(
    url: str, tmp_path: Path
) -> None:
    publish(url, 0, {"q": RS, "none": ST})
    one = driver(url, tmp_path)
    one.run(job(0))
    one.finish()
    assert [p.name for p in (tmp_path / "results" / "none").iterdir()] == ["empty.parquet"]
    assert results(tmp_path) == expected(1)
