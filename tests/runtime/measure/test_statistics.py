"""Compare statistics of whole batches, through driver and workers, with exact counting."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as redis_client

from anabranch_contract import codec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.measurements import LatestRows, Snapshot, StreamSample
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import RS, rules, stream
from tests.support.worlds.driven import KEYS, boundaries, driver

#: Event times in seconds, per batch; the lateness is 20 s, so -30 and 12 are late when they arrive.
TIMES: tuple[list[int | None], ...] = (
    [0, 10, 40, 5],
    [41, -30, None, 30, 38],
    [60, 12, 59],
    [61, 61],
)
LATENESS = 20_000_000
EVERY = 2


def rows(batch: int) -> pa.RecordBatch:
    """Return R's tuples of a batch: a recurring key, and the batch's event times."""
    times = [None if t is None else t * 1_000_000 for t in TIMES[batch]]
    return pa.record_batch(
        {
            "a": pa.array([i % 3 for i in range(len(times))], pa.int64()),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def job(batch: int, tasks: int, *, collect: bool = True) -> Job:
    """Return the tasks of a batch, which divide R's tuples among them."""
    moment = pa.array([batch * 1_000_000], pa.timestamp("us", tz="UTC"))
    one = pa.array([batch], pa.int64())
    other = Block("S", pa.record_batch({"a": one, "b": one, "ts": moment}))

    def run(context: BatchContext) -> list[TaskReport]:
        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        found, given = [], rows(batch)
        for task in range(tasks):
            part = given.slice(
                given.num_rows * task // tasks,
                given.num_rows * (task + 1) // tasks - given.num_rows * task // tasks,
            )
            blocks = [Block("R", part), *([other] if task == 0 else [])]
            found.append(
                run_task(
                    context,
                    known,
                    blocks,
                    task=task,
                    tasks=tasks,
                    exchange=lambda message: [message],
                    collect=collect,
                )
            )
        return found

    return run


@pytest.fixture(scope="module", params=[1, 3])
def reported(
    request: pytest.FixtureRequest, redis: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[Snapshot]]:
    """A stream's published sample, and the snapshots of two epochs."""
    connection = redis_client.Redis.from_url(redis)
    connection.flushall()
    fetch_ruleset.cache_clear()
    streams = (stream("R", "a", lateness=LATENESS), stream("S", "a", "b", lateness=None))
    for epoch in (0, 1):
        text = rulesets.dumps(rules(epoch, {"q": RS}, streams=streams))
        connection.set(KEYS.ruleset(epoch), text)
        connection.zadd(KEYS.published, {str(epoch): epoch})
    running = driver(redis, tmp_path_factory.mktemp("run"), every=EVERY)
    for batch in range(len(TIMES)):
        running.run(job(batch, request.param))
    snapshots = [b.snapshot for b in boundaries(redis)]
    sample = connection.hget(KEYS.samples, "R")
    assert isinstance(sample, bytes)
    latest = connection.hget(KEYS.latest, "R")
    assert isinstance(latest, bytes)
    assert LatestRows.loads(latest).size == sum(map(len, TIMES))
    return sample.decode(), [codec.loads(s, Snapshot) for s in snapshots if s is not None]


def counted(epoch: int) -> tuple[int, int, int, Counter[int]]:
    """The numbers of tuples, late and invalid ones of R in an epoch, and its delays by class."""
    newest: int | None = None
    tuples = late = invalid = 0
    delays: Counter[int] = Counter()
    for batch, times in enumerate(TIMES):
        known = [t * 1_000_000 for t in times if t is not None]
        if batch // EVERY == epoch:
            tuples += len(times)
            invalid += len(times) - len(known)
            if newest is not None:
                late += sum(t < newest - LATENESS for t in known)
            delays.update(0 if newest is None else max(newest - t, 0).bit_length() for t in known)
        newest = max(known if newest is None else [newest, *known])
    return tuples, late, invalid, delays


def test_streams_are_counted_per_epoch(reported: tuple[str, list[Snapshot]]) -> None:
    _, snapshots = reported
    assert [s.epoch for s in snapshots] == [0, 1]
    for epoch, snapshot in enumerate(snapshots):
        found = snapshot.measured["R"]
        tuples, late, invalid, delays = counted(epoch)
        assert (found.input, found.late, found.invalid) == (tuples, late, invalid)
        assert {c: n for c, n in enumerate(found.delays) if n} == dict(delays)
        assert found.seconds > 0
    # The first epoch from the least to the greatest event time, the second from that on.
    assert [s.measured["R"].event_seconds for s in snapshots] == [41.0, 20.0]
    assert snapshots[1].measured["R"].event_rate == 5 / 20


def test_keys_and_tuples_of_stores_are_exact_while_there_are_few(
    reported: tuple[str, list[Snapshot]],
) -> None:
    _, snapshots = reported
    (store,) = [s for name, s in snapshots[1].stores.items() if name.startswith("R")]
    stored = sum(len(t) for t in TIMES) - sum(sum(counted(e)[1:3]) for e in (0, 1))
    assert store.rows == stored
    assert store.keys == {"a": 3.0}
    assert store.bytes > 0
    assert snapshots[1].distincts["S"] == {"a": 4.0}


def test_frequent_values_are_exact_while_there_are_few(
    reported: tuple[str, list[Snapshot]],
) -> None:
    _, snapshots = reported
    for epoch, snapshot in enumerate(snapshots):
        kept: list[int] = []
        for batch in range((epoch + 1) * EVERY):
            newest = max((t for ts in TIMES[:batch] for t in ts if t is not None), default=None)
            for time, value in zip(TIMES[batch], rows(batch).column("a").to_pylist(), strict=True):
                if time is not None and (newest is None or time >= newest - LATENESS // 1_000_000):
                    kept.append(value)
        found = snapshot.values["R"]["a"]
        shares = dict(zip(found.texts, found.stored, strict=True))
        counts = Counter(map(str, kept))
        assert shares == {v: pytest.approx(n / len(kept), abs=1e-6) for v, n in counts.items()}
        assert found.error == 0
        hashes = key_vector([pa.array([int(t) for t in found.texts])], ["bigint"]).hashes
        assert list(found.hashes) == hashes.tolist()
        other = snapshot.values["S"]["a"]
        assert sorted(other.texts) == [str(n) for n in range((epoch + 1) * EVERY)]
        assert max(other.arriving) > max(other.stored)


def test_nulls_of_each_attribute_of_a_key_are_counted(redis: str, tmp_path: Path) -> None:
    connection = redis_client.Redis.from_url(redis)
    connection.flushall()
    fetch_ruleset.cache_clear()
    columns = (("a", parse_type("string")), ("b", parse_type("double")))
    streams = tuple(Stream(StreamName(name), columns) for name in "RS")
    both = "SELECT R.a FROM R JOIN S ON R.a = S.a AND R.b = S.b"
    connection.set(KEYS.ruleset(0), rulesets.dumps(rules(0, {"q": both}, streams=streams)))
    connection.zadd(KEYS.published, {"0": 0})
    nan = float("nan")
    some: dict[str, list[Any]] = {
        "a": [None, "x", "NULL", "", None, "x"],
        "b": [nan, 1.0, None, nan, None, 2.0],
    }
    block = Block("R", pa.record_batch(some))

    def run(context: BatchContext) -> list[TaskReport]:
        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        report = run_task(
            context, known, [block], task=0, tasks=1, exchange=lambda message: [message]
        )
        return [report]

    running = driver(redis, tmp_path, every=EVERY)
    for _ in range(EVERY):
        running.run(run)
    (text,) = [b.snapshot for b in boundaries(redis) if b.snapshot is not None]
    snapshot = codec.loads(text, Snapshot)
    for name, values in some.items():
        found = snapshot.values["R"][name]
        shares = Counter(str(v).removesuffix(".0") for v in values if v is not None)
        assert dict(zip(found.texts, found.stored, strict=True)) == {
            value: pytest.approx(count / len(values), abs=1e-6) for value, count in shares.items()
        }
        assert (found.null_arriving, found.null_stored) == pytest.approx((1 / 3, 1 / 3), abs=1e-6)
    assert set(snapshot.values["R"]) == {"a", "b"}


def test_probes_hits_and_time_are_those_of_the_epoch(
    reported: tuple[str, list[Snapshot]],
) -> None:
    _, snapshots = reported
    for epoch, snapshot in enumerate(snapshots):
        tuples, late, invalid, _ = counted(epoch)
        into_s = snapshot.edges["R>S"]
        assert into_s.probes == tuples - late - invalid
        assert snapshot.edges["S>R"].probes == EVERY
        assert into_s.nanoseconds > 0


def test_a_sample_of_few_tuples_is_all_of_them(reported: tuple[str, list[Snapshot]]) -> None:
    text, _ = reported
    found = StreamSample.loads(text)
    assert found.seen == found.size == sum(len(t) for t in TIMES)
    everything = [v for batch in range(len(TIMES)) for v in rows(batch).column("a").to_pylist()]
    assert sorted(found.values("a")) == sorted(everything)  # type: ignore[type-var]
    assert found.columns["ts"][0] == "timestamp"


def test_without_collecting_nothing_else_changes(redis: str, tmp_path: Path) -> None:
    streams = (stream("R", "a", lateness=LATENESS), stream("S", "a", "b", lateness=None))
    text = rulesets.dumps(rules(0, {"q": RS}, streams=streams))
    connection = redis_client.Redis.from_url(redis)
    found = []
    for collect in (True, False):
        connection.flushall()
        fetch_ruleset.cache_clear()
        connection.set(KEYS.ruleset(0), text)
        connection.zadd(KEYS.published, {"0": 0})
        running = driver(redis, tmp_path / str(collect), every=100)
        for batch in range(2):
            running.run(job(batch, 1, collect=collect))
        state = running.state
        found.append((state.queries["q"].results, state.streams["R"].late, state.measured.arrivals))
        assert bool(state.measured.sketches) == bool(state.measured.values) == collect
    assert found[0] == found[1]
    assert found[0][0] > 0
