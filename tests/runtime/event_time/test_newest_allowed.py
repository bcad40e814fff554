"""Tests that rows with event times too far in the future are rejected and have no effect."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import redis as redis_client

from anabranch_contract import codec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.measurements import Snapshot, valid
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.driver.fold_reports import snapshot
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.event_time.newest_allowed import newest_allowed
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.state.manifest import StreamState
from anabranch_runtime.state.measures import Bounds
from anabranch_runtime.state.offsets import Offsets
from anabranch_runtime.task.arrivals import take_in
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.meters import Collector
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import RS, R, S, T, rules
from tests.support.worlds.driven import KEYS, Killed, die, driver

DAY = 86_400_000_000
NOW = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp() * 1e6)
FAR = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp() * 1e6)
BOUNDED = replace(R, ahead_of_clock=DAY, ahead_of_stream=30 * DAY, keep_late=True)


def block(*times: int | None) -> Block:
    ones = pa.array([1] * len(times), pa.int64())
    return Block(
        "R", pa.record_batch({"a": ones, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    )


def publish(url: str, **streams: object) -> None:
    known = rules(0, {"q": RS}, streams=(replace(BOUNDED, **streams), S, T))  # type: ignore[arg-type]
    connection = redis_client.Redis.from_url(url)
    connection.set(KEYS.ruleset(0), rulesets.dumps(known))
    connection.zadd(KEYS.published, {"0": 0})


def job(*times: int | None) -> Job:
    def run(context: BatchContext) -> list[TaskReport]:
        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        blocks = [block(*times)]
        return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]

    return run


def test_the_bound_follows_the_clock_and_the_stream() -> None:
    bare = Stream(StreamName("s"), (("ts", parse_type("timestamp")),), "ts", 0)
    spec = replace(bare, ahead_of_clock=10, ahead_of_stream=100)
    streams = {
        "new": StreamState(spec),
        "near": StreamState(spec, max_tau=500),
        "behind": StreamState(spec, max_tau=50),
        "idle": StreamState(spec, max_tau=50, floor=300),
        "free": StreamState(bare, max_tau=50),
        "old": StreamState(replace(bare, ahead_of_stream=7), max_tau=50),
    }
    live = newest_allowed(streams, 1000)
    assert live == {"new": 1010, "near": 600, "behind": 150, "idle": 400, "old": 57}
    assert newest_allowed(streams, None) == {"near": 600, "behind": 150, "idle": 400, "old": 57}
    assert newest_allowed(streams, 550)["near"] == 560


def test_what_is_ahead_is_set_aside_before_anybody_sees_it() -> None:
    layout = Layout(rules(0, {"q": RS}, streams=(BOUNDED, S, T)), {})
    collector = Collector(Bounds(newest={"R": 60}))
    blocks = [block(10, None, 101, 100), block(FAR, 101)]
    found = take_in(layout, 3, 0, {"R": 50}, blocks, collector, newest_allowed={"R": 100, "S": 1})
    meter = found.meters["R"]
    assert (meter.input, meter.ahead, meter.late, meter.invalid) == (6, 3, 1, 1)
    assert (meter.max_tau, meter.min_tau) == (100, 100)
    assert next(iter(found.tables.values())).column("#tau").to_pylist() == [100]
    assert collector.sampled()["R"].seen == 3
    kept = pa.Table.from_batches(found.aside["R"]).to_pylist()
    assert sorted(r["_reason"] for r in kept) == ["ahead"] * 3 + ["invalid", "late"]


def test_one_row_of_the_year_9999_makes_no_later_row_late(url: str, tmp_path: Path) -> None:
    """Without the bound the watermark would be in the year 9999."""
    publish(url)
    one = driver(url, tmp_path, every=10)
    one.run(job(NOW))
    one.run(job(NOW + DAY, FAR, NOW + 31 * DAY))
    one.run(job(NOW + 2 * DAY))
    found = one.state.streams["R"]
    assert (found.input, found.ahead, found.late) == (5, 2, 0)
    assert found.max_tau == NOW + 2 * DAY
    statistics = snapshot(one.state)
    assert statistics.streams["R"]["ahead"] == 2
    assert valid(statistics.streams["R"]) == 3
    assert statistics.spans["R"] == 2 * DAY
    assert statistics.measured["R"].ahead == 2
    assert sum(statistics.measured["R"].delays) == 3
    assert codec.loads(codec.dumps(statistics), Snapshot) == statistics


def test_the_clock_bounds_event_times_live_from_the_first_batch_on(
    url: str, tmp_path: Path
) -> None:
    publish(url)
    one = driver(url, tmp_path, Mode.LIVE, every=10)
    one.run(job(NOW + DAY, NOW + DAY + 1000, FAR), Offsets(NOW))
    assert (one.state.streams["R"].input, one.state.streams["R"].ahead) == (3, 2)


def test_a_repeated_batch_is_judged_by_the_clock_of_its_planning(url: str, tmp_path: Path) -> None:
    publish(url)
    times = (NOW - DAY, NOW + DAY, NOW + 2 * DAY)
    seen: list[dict[str, int]] = []

    def noted(context: BatchContext) -> list[TaskReport]:
        seen.append(context.times.newest_allowed)
        return job(*times)(context)

    one = driver(url, tmp_path, Mode.LIVE, every=10)
    with pytest.raises(Killed):
        one.run(die(noted), Offsets(NOW))
    # Long after the rejected row.
    again = driver(url, tmp_path, Mode.LIVE, every=10)
    again.run(noted, Offsets(NOW + 9 * DAY))
    assert seen == [{"R": NOW + DAY}] * 2
    assert again.state.streams["R"].ahead == 1
    (kept,) = (tmp_path / "results" / ".late" / "R").iterdir()
    assert pa.parquet.read_table(kept).column("_reason").to_pylist() == ["ahead"]


def test_a_jump_is_let_through_once_the_bound_is_taken_away(url: str, tmp_path: Path) -> None:
    """A stream that was silent for longer than its bound continues when its operator removes the
    bound.
    """
    publish(url)
    one = driver(url, tmp_path, Mode.STEP, every=2)
    later = NOW + int(timedelta(days=800).total_seconds() * 1e6)
    one.run(job(NOW))
    one.run(job(later))
    assert one.state.streams["R"].ahead == 1
    known = rules(1, {"q": RS}, streams=(replace(BOUNDED, ahead_of_stream=None), S, T))
    connection = redis_client.Redis.from_url(url)
    connection.set(KEYS.ruleset(1), rulesets.dumps(known))
    connection.zadd(KEYS.published, {"1": 1})
    one.run(job(later))
    assert (one.state.streams["R"].ahead, one.state.streams["R"].max_tau) == (1, later)
    # No stored row is lost: it is the same stream.
    assert one.state.streams["R"].input == 3


def test_rulesets_without_bounds_are_read() -> None:
    document = rulesets.to_json(rules(0, {"q": RS}, streams=(BOUNDED, S, T)))
    assert rulesets.from_json(document).streams[0].ahead_of_stream == 30 * DAY
    for spec in document["streams"]:
        del spec["ahead_of_clock"], spec["ahead_of_stream"]
    assert rulesets.from_json(document).streams[0].ahead_of_clock is None
