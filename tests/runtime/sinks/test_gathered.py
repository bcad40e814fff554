"""Tests of gathered groups of results: whatever is killed, rolled back, repeated or refused, sinks
get each row once.

A model of the driver publishes random batches of several queries, commits them or dies, starts
again, one or two batches earlier at times, and dies at random steps of the file system and at the
fault points. Readers look after every step.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis as redis_client

from anabranch_contract.connectors.sinks import LONGEST_INTERVAL, SinkKind, SinkSpec
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.runs import query_of
from anabranch_runtime.errors import SinkError
from anabranch_runtime.faults import Point
from anabranch_runtime.inspection import merge
from anabranch_runtime.sinks import gathered as gathering
from anabranch_runtime.sinks import publisher as publishing
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.gathered import ALIGNED, SUFFIX, StagedRows, StagedWriter
from anabranch_runtime.sinks.outbox import Outbox
from anabranch_runtime.sinks.parquet import STAGING, ResultWriter
from anabranch_runtime.sinks.publisher import GATHERED, OUTBOX, Publisher
from tests.support.cases.states import RS, rules
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.deliveries import entries, sink
from tests.support.worlds.driven import KEYS, Killed, driver, expected, job, publish, results
from tests.support.worlds.random_cuts import RandomCuts

SECOND = 1_000_000
SCHEMA = pa.schema([("x", pa.int64())])
OWN = SinkSpec(commit_interval=SECOND)
OUTSIDE = replace(sink("notebook"), commit_interval=SECOND)
#: Gathered and other queries, with both kinds of sinks; two runs of one query share a sink.
SINKS = {
    "own": OWN,
    "plain": SinkSpec(),
    "out": OUTSIDE,
    "direct": sink("notebook"),
    "shared": OUTSIDE,
    "shared~2": sink("notebook"),
    "shared~3": OUTSIDE,
}
QUERY = rules(0, {"q": RS}).queries[0]


def spec(name: str, to: SinkSpec) -> QuerySpec:
    return replace(QUERY, id=name, sink=to)  # type: ignore[arg-type]


@dataclass
class Ordered:
    """A sink like a Redis Stream: it ignores numbers of deliveries before its last one, and accepts
    the rows of one number once. It may fail.
    """

    failing: bool = False
    rows: dict[str, dict[tuple[int, str], list[int]]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def write(self, delivery: Delivery) -> None:
        if self.failing:
            raise OSError("it takes nothing")
        query = query_of(delivery.query)
        rows = sorted(delivery.read()["x"].to_pylist())
        known = self.rows.setdefault(query, {})
        if delivery.batch < self.last.get(query, -1):
            assert set(rows) <= {row for some in known.values() for row in some}, "rows are lost"
            return
        self.last[query] = delivery.batch
        assert known.setdefault((delivery.batch, delivery.query), rows) == rows, "other rows"

    def of(self, query: str) -> list[int]:
        return [row for rows in self.rows.get(query_of(query), {}).values() for row in rows]


@dataclass
class Life:
    """One pipeline: its files, its sinks, and what a reader has seen."""

    folder: Path
    random: Random
    ordered: Ordered = field(default_factory=Ordered)
    next_batch: int = 0
    #: The newest state ever committed; it and the two before it are kept.
    newest: int = 0
    #: Batch -> query -> its rows.
    made: dict[int, dict[str, list[int]]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    publisher: Publisher = field(init=False)

    def __post_init__(self) -> None:
        self.results = self.folder / "results"
        self.results.mkdir(parents=True)
        self.start()

    def start(self) -> None:
        self.publisher = Publisher(self.results, {SinkKind.TABLE: self.ordered.write})
        self.publisher.begin(self.next_batch, "pipeline")

    def running(self, batch: int) -> list[str]:
        """Return the queries of a batch: runs of ``shared`` follow each other; ``own`` ends."""
        run = f"shared~{min(batch // 8 + 1, 3)}".removesuffix("~1")
        return ["own"] * (batch < 20) + ["plain", "out", "direct", run]

    def rows(self, batch: int) -> dict[str, list[int]]:
        """Return the rows of a batch, the same in every attempt."""
        if batch not in self.made:
            self.made[batch] = {
                query: [batch * 1000 + n for n in range(self.random.randrange(1, 5))]
                for query in self.running(batch)
                if self.random.random() < 0.7
            }
        return self.made[batch]

    def publish(self) -> None:
        batch, name = self.next_batch, f"{self.random.random()}"
        staged: list[tuple[str, int, Path]] = []
        for query, rows in self.rows(batch).items():
            shares: dict[int, list[int]] = {}
            for row in rows:
                shares.setdefault(self.random.randrange(3), []).append(row)
            for task, share in shares.items():
                staged.append((query, task, self.staged(name, query, task, share)))
        queries = [spec(query, SINKS[query]) for query in self.running(batch)]
        self.publisher.publish(batch, queries, staged)

    def staged(self, attempt: str, query: str, task: int, rows: list[int]) -> Path:
        is_gathered = SINKS[query].commit_interval
        kind, suffix = (StagedWriter, SUFFIX) if is_gathered else (ResultWriter, ".parquet")
        path = self.results / STAGING / attempt / f"{query}.{task}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = kind(path, SCHEMA, page=8 if self.random.random() < 0.3 else 1 << 20)
        for row in rows:
            writer.add(pa.record_batch({"x": [row]}, schema=SCHEMA))
        writer.close()
        return path

    def commit(self) -> None:
        self.next_batch += 1
        self.newest = max(self.newest, self.next_batch)
        queries = [spec(query, SINKS[query]) for query in self.running(self.next_batch - 1)]
        self.publisher.committed(self.next_batch, queries)

    def read(self, query: str) -> list[int]:
        """Return all rows that a reader of the query's sink finds."""
        if SINKS[query].kind is not SinkKind.PARQUET:
            return self.ordered.of(query)
        files = sorted((self.results / query).glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file)["x"].to_pylist()]

    def expected(self, query: str) -> list[int]:
        done = [rows for batch, rows in self.made.items() if batch < self.newest]
        return [r for rows in done for q in rows if query_of(q) == query_of(query) for r in rows[q]]

    def look(self) -> None:
        """Check invariants for a reader of all sinks."""
        for query in ("own", "out", "shared"):
            rows = Counter(self.read(query))
            assert max(rows.values(), default=1) == 1, f"{query}: rows come twice"
            before = {int(text.split()[1]) for text in self.seen if text.split()[0] == query}
            assert before <= rows.keys(), f"{query}: rows are gone"
            self.seen.update(f"{query} {row}" for row in rows)
            if query == "own":
                assert rows.keys() <= set(self.expected(query)), "rows before their commit"

    @property
    def oldest(self) -> int:
        """Return the oldest kept state."""
        return min(max(self.newest - 2, 0), self.next_batch)

    def restart(self, back: int) -> None:
        self.events[f"back by {back}"] += bool(self.next_batch)
        self.next_batch = max(self.next_batch - back, 0)
        self.start()
        self.look()

    def check(self) -> None:
        self.ordered.failing = False
        self.publisher.finish()
        self.look()
        for query in SINKS:
            assert sorted(self.read(query)) == sorted(self.expected(query)), query
        assert not self.publisher.parked()
        for folder in (OUTBOX, GATHERED):
            assert not [
                f for f in (self.results / folder).rglob("*") if f.suffix != ".json" and f.is_file()
            ]


@contextmanager
def dying(step: int, look: Callable[[], None]) -> Iterator[None]:
    """Context in which the process is killed before the given step of the file system, or of a
    sink.
    """
    steps = iter(range(100_000))

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def before(*given: Any, **named: Any) -> Any:
            if next(steps) == step:
                raise Killed
            return function(*given, **named)

        return before

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (Path, "rename"),
            (Path, "unlink"),
            (Path, "mkdir"),
            (Path, "write_text"),
            (shutil, "rmtree"),
            (shutil, "copyfileobj"),
            (os, "truncate"),
            (os, "rmdir"),
        ):
            patch.setattr(owner, name, wrapped(getattr(owner, name)))
        patch.setattr(publishing, "sync_filesystem", wrapped(lambda _: None))
        yield
    look()


@contextmanager
def dying_at(point: Point) -> Iterator[None]:
    def reached(here: Point) -> None:
        if here is point:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "reach", reached)
        yield


def live(folder: Path, seed: int) -> Counter[str]:
    """Run a pipeline with random events; return counts of events."""
    random = Random(seed)
    life = Life(folder, random)
    while life.next_batch < 30:
        death = random.choice((None, None, "step", "point"))
        point = random.choice((Point.GROUPING, Point.GROUPED, Point.DELIVERED))
        around = (
            dying(random.randrange(60), lambda: None)
            if death == "step"
            else dying_at(point)
            if death == "point"
            else dying(-1, lambda: None)
        )
        life.ordered.failing = random.random() < 0.2
        try:
            with around:
                life.publish()
                if random.random() < 0.1:
                    raise Killed
                life.commit()
                life.look()
                life.publisher.retry(ahead=random.choice((0.0, 0.0, 10.0)))
                life.look()
        except Killed:
            life.events[f"died at {death or 'the commit'}"] += 1
            life.restart(min(random.choice((0, 0, 1, 2)), life.next_batch - life.oldest))
        life.events["groups"] += len(list(life.results.glob("own/*.parquet")))
    life.check()
    return life.events


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE", 0.0)


def test_sinks_get_each_row_once_through_any_life(tmp_path: Path) -> None:
    events: Counter[str] = Counter()
    for seed in range(8):
        events += live(tmp_path / str(seed), seed)
    assert events["back by 2"] > 5
    assert events["died at step"] > 20
    assert events["died at point"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 50))
def test_sinks_get_each_row_once_through_many_lives(tmp_path: Path, first: int) -> None:
    for seed in range(1000 + first, 1050 + first):
        live(tmp_path / str(seed), seed)


# --- when groups are formed -----------------------------------------------------------------------


class Clock:
    """A clock that tests set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Steps:
    """A publisher of one query; each batch has one row."""

    def __init__(self, folder: Path, to: SinkSpec = OWN, next_batch: int = 0) -> None:
        self.folder, self.sink, self.next_batch = folder, to, next_batch
        self.ordered = Ordered()
        self.publisher = Publisher(folder / "results", {SinkKind.TABLE: self.ordered.write})
        self.publisher.begin(next_batch, "pipeline")

    def batch(self, query: str = "q", *, commit: bool = True) -> None:
        path = self.folder / "staging" / f"{self.next_batch}{SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = StagedWriter(path, SCHEMA, page=1 << 20)
        writer.add(pa.record_batch({"x": [self.next_batch]}, schema=SCHEMA))
        writer.close()
        specs = [spec(query, self.sink)]
        self.publisher.publish(self.next_batch, specs, [(query, 0, path)])
        if commit:
            self.next_batch += 1
            self.publisher.committed(self.next_batch, specs)

    def files(self, query: str = "q") -> dict[str, list[int]]:
        found = sorted((self.folder / "results" / query).glob("*.parquet"))
        return {f.name: pq.read_table(f)["x"].to_pylist() for f in found}


def test_a_group_is_formed_when_the_interval_of_its_first_batch_has_passed(
    tmp_path: Path, clock: Clock
) -> None:
    steps = Steps(tmp_path)
    for _ in range(3):
        steps.batch()
        clock.now += 0.25
        steps.publisher.retry()
    assert steps.files() == {}
    # Gathered results do not mean that a sink fails.
    assert (steps.publisher.parked(), steps.publisher.problems()) == ({}, {})
    clock.now += 0.25
    # No further batch runs.
    steps.publisher.retry()
    assert steps.files() == {"0000000002-00000.parquet": [0, 1, 2]}
    steps.batch()
    steps.publisher.retry(ahead=0.9)
    assert len(steps.files()) == 1
    # The next check would be too late.
    steps.publisher.retry(ahead=1.1)
    assert list(steps.files().values()) == [[0, 1, 2], [3]]


@pytest.mark.parametrize("limit", ["MOST_FILES", "MOST_BYTES"])
def test_a_group_is_formed_when_much_is_gathered(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    steps = Steps(tmp_path)
    steps.batch()
    ((_, rows),) = steps.publisher.undelivered("q")
    assert isinstance(rows, StagedRows)
    monkeypatch.setattr(gathering, limit, 2 * 64 + 3 * rows.length if "BYTES" in limit else 3)
    for _ in range(6):
        steps.batch()
        steps.publisher.retry()
    assert list(steps.files().values()) == [[0, 1, 2], [3, 4, 5]]


def test_a_group_is_formed_when_its_query_has_ended(tmp_path: Path, clock: Clock) -> None:
    steps = Steps(tmp_path)
    steps.batch("q")
    steps.batch("q~2")
    steps.publisher.retry()
    assert steps.files("q") == {"0000000000-00000.parquet": [0]}
    assert steps.files("q~2") == {}
    assert [f.name for f in (tmp_path / "results" / GATHERED).glob("*/*")] == ["q~2.log"]
    steps.publisher.committed(2, [])
    steps.publisher.retry()
    assert steps.files("q~2") == {"0000000001-00000.parquet": [1]}


def test_an_earlier_process_s_results_are_delivered_at_once(tmp_path: Path, clock: Clock) -> None:
    steps = Steps(tmp_path)
    steps.batch()
    steps.batch()
    steps.batch(commit=False)
    again = Steps(tmp_path, next_batch=2)
    again.publisher.retry()
    assert again.files() == {"0000000001-00000.parquet": [0, 1]}


@pytest.mark.parametrize("moment", ["before", "draft", "place"])
def test_a_process_that_has_lost_the_pipeline_forms_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Another process takes over while the first one is about to form a group."""
    old = Steps(tmp_path)
    for _ in range(3):
        old.batch()
    taken: list[Steps] = []

    def take_over() -> None:
        if not taken:
            taken.append(Steps(tmp_path, next_batch=3))
            taken[0].batch()
            taken[0].publisher.finish()

    if moment == "before":
        take_over()
    else:
        outbox = old.publisher._outbox
        usual = getattr(Outbox, moment)

        def later(own: Outbox, one: Delivery) -> Any:
            if own is outbox:
                take_over()
            return usual(own, one)

        monkeypatch.setattr(Outbox, moment, later)
    with suppress(OSError):
        old.publisher.retry(now=True)
    with pytest.raises(FileNotFoundError):
        old.batch()
    taken[0].batch()
    taken[0].publisher.finish()
    assert sorted(x for rows in taken[0].files().values() for x in rows) == [0, 1, 2, 3, 4]


def test_no_group_has_a_batch_that_is_not_committed(tmp_path: Path, clock: Clock) -> None:
    steps = Steps(tmp_path)
    steps.batch()
    steps.batch(commit=False)
    steps.publisher.retry(now=True)
    assert steps.files() == {"0000000000-00000.parquet": [0]}
    # The same process repeats the batch.
    steps.batch()
    steps.publisher.finish()
    assert list(steps.files().values()) == [[0], [1]]


def test_a_group_is_written_row_group_by_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "PAGE", 16)
    steps = Steps(tmp_path)
    for _ in range(6):
        steps.batch()
    steps.publisher.finish()
    (file,) = (tmp_path / "results" / "q").iterdir()
    meta = pq.read_metadata(file)
    assert [meta.row_group(n).num_rows for n in range(meta.num_row_groups)] == [2, 2, 2]


def test_another_pipeline_s_groups_are_dropped(tmp_path: Path) -> None:
    steps = Steps(tmp_path, OUTSIDE)
    for _ in range(2):
        steps.batch()
    steps.publisher.finish()
    steps.ordered.failing = True
    steps.batch()
    steps.publisher.retry(now=True)
    # A new state, with the same results directory.
    again = Steps(tmp_path, OUTSIDE)
    again.publisher.begin(0, "another")
    for _ in range(2):
        again.batch()
    again.publisher.finish()
    assert again.ordered.of("q") == [0, 1]


def test_a_failing_sink_gets_group_after_group(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MOST_WAITING", 2)
    steps = Steps(tmp_path, OUTSIDE)
    steps.ordered.failing = True
    for _ in range(2):
        for _ in range(5):
            steps.batch()
        clock.now += 1.0
        steps.publisher.retry()
    assert steps.publisher.parked() == {"q": 10}
    assert steps.publisher.problems()["q"].startswith("10 batches wait: OSError")
    with pytest.raises(SinkError, match="2 deliveries of results wait"):
        steps.batch()
    steps.ordered.failing = False
    again = Steps(tmp_path, OUTSIDE, 10)
    again.publisher.retry()
    rows = again.ordered.rows["q"]
    assert rows == {(4, "q"): [0, 1, 2, 3, 4], (9, "q"): [5, 6, 7, 8, 9]}


def test_a_damaged_file_holds_up_its_query_only(tmp_path: Path, clock: Clock) -> None:
    steps = Steps(tmp_path)
    steps.batch()
    (file,) = (tmp_path / "results" / GATHERED).glob("*/q.log")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"ARROW1", b"sparrow"[:6]))
    steps.batch("p")
    steps.publisher.retry(now=True)
    assert (steps.files("q"), list(steps.files("p").values())) == ({}, [[1]])
    assert "Arrow" in steps.publisher.problems()["q"]
    with pytest.raises(SinkError):
        steps.publisher.finish()
    file.write_bytes(whole)
    steps.publisher.finish()
    assert list(steps.files("q").values()) == [[0]]
    assert steps.publisher.problems() == {}


@pytest.mark.parametrize("left", [0, ALIGNED + 5, ALIGNED + 90])
def test_a_log_that_a_power_failure_left_unwritten_is_dropped(tmp_path: Path, left: int) -> None:
    steps = Steps(tmp_path)
    steps.batch(commit=False)
    (file,) = (tmp_path / "results" / GATHERED).glob("*/q.log")
    whole = file.read_bytes()
    file.write_bytes(whole[:left].ljust(len(whole), b"\0"))
    again = Steps(tmp_path)
    assert not list((tmp_path / "results" / GATHERED).glob("*/q.log"))
    again.batch()
    again.publisher.finish()
    assert list(again.files().values()) == [[0]]


def test_no_run_overtakes_a_group_that_can_not_be_formed(tmp_path: Path, clock: Clock) -> None:
    steps = Steps(tmp_path, OUTSIDE)
    steps.batch()
    (file,) = (tmp_path / "results" / GATHERED).glob("*/q.log")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"ARROW1", b"sparrow"[:6]))
    steps.batch("q~2")
    steps.publisher.retry(now=True)
    assert steps.ordered.of("q") == []
    file.write_bytes(whole)
    steps.publisher.finish()
    assert list(steps.ordered.rows["q"]) == [(0, "q"), (1, "q~2")]


def test_result_files_do_not_wait_for_an_earlier_run_s_sink(tmp_path: Path, clock: Clock) -> None:
    steps = Steps(tmp_path, OUTSIDE)
    steps.ordered.failing = True
    steps.batch("q")
    steps.sink = OWN
    steps.batch("q~2")
    clock.now += 1.0
    steps.publisher.retry()
    assert steps.files("q~2") == {"0000000001-00000.parquet": [1]}
    assert list(steps.publisher.problems()) == ["q"]


# --- the whole protocol, with the real driver -----------------------------------------------------

HOUR = SinkSpec(commit_interval=LONGEST_INTERVAL)


@pytest.mark.parametrize("back", [0, 1, 2])
@pytest.mark.parametrize("point", [Point.GROUPING, Point.GROUPED, Point.DELIVERED, None])
def test_a_driver_that_dies_with_a_group_loses_and_doubles_nothing(
    url: str, tmp_path: Path, point: Point | None, back: int
) -> None:
    publish(url, 0, {"q": RS, "p": RS}, {"p": HOUR, "q": HOUR})
    one = driver(url, tmp_path, every=100)
    for batch in range(5):
        one.run(job(batch))
        assert results(tmp_path) == ([] if batch < 2 else expected(2))
        if batch == 1:
            one.publisher.retry(now=True)
    if point is not None:
        with dying_at(point), pytest.raises(Killed):
            one.publisher.retry(now=True)
    merge(tmp_path / "state", tmp_path / "results")
    for path in sorted((tmp_path / "state" / "manifest").iterdir())[::-1][:back]:
        path.unlink()
    again = driver(url, tmp_path, every=100)
    assert again.state.next_batch == 5 - back
    for batch in range(5 - back, 8):
        again.run(job(batch))
        again.tick()
    again.finish()
    for query in ("p", "q"):
        assert results(tmp_path, query) == expected(8)
        assert len(list((tmp_path / "results" / query).iterdir())) <= 4


def lived(log: RandomCuts, seed: int) -> None:
    """Run a pipeline of random batches and groups that is killed and rolled back."""
    log.random = random = Random(seed)
    publish(log.url, 0, sinks={"q": HOUR})
    one, newest = log.start(), 0
    while True:
        done = False
        where = random.choice(("group", "commit", "none", "none"))
        point = random.choice((Point.GROUPING, Point.GROUPED, Point.DELIVERED))
        try:
            with dying_at(point) if where == "group" else nullcontext():
                offsets = one.state.offsets
                if where == "commit" and (offsets is None or offsets.feeds["at"] < log.total):
                    log.interrupt(one)
                    raise Killed
                done = not log.step(one)
                one.publisher.retry(now=random.random() < 0.4)
        except Killed:
            newest = max(newest, one.state.next_batch)
            if newest > 2 and random.random() < 0.7:
                # Three states are kept.
                back = one.state.next_batch - (newest - 2)
                for _ in range(min(random.choice((1, 2)), back)):
                    max((log.folder / "state" / "manifest").iterdir()).unlink()
            one = log.start()
            continue
        newest = max(newest, one.state.next_batch)
        rows = Counter(results(log.folder))
        assert not rows - Counter(expected(log.total))
        if done:
            break
    one.publisher.finish()
    assert results(log.folder) == expected(log.total)


@pytest.mark.parametrize("seed", mostly_slow(range(60), 4))
def test_random_batches_groups_deaths_and_roll_backs_are_exact(
    url: str, tmp_path: Path, seed: int
) -> None:
    lived(RandomCuts(url, tmp_path), seed)


def test_live_tails_show_gathered_rows_at_once_and_in_their_order(url: str, tmp_path: Path) -> None:
    publish(url, 0, sinks={"q": HOUR})
    one = driver(url, tmp_path, every=100)
    for batch in range(4):
        one.run(job(batch))
        if batch == 1:
            one.publisher.retry(now=True)
    connection = redis_client.Redis.from_url(url)
    connection.zadd(KEYS.listeners, {"q": time.time() + 100})
    # A reader from the start: two batches in a file, two in the log; then one more.
    one.tick()
    one.run(job(4))
    shown = [
        (int(ident.split("-")[1]) + number, json.loads(line)["b"])
        for ident, fields in entries(connection, KEYS.tail("q"))
        for number, line in enumerate(fields.get(b"rows", b"").split(b"\n"))
        if line
    ]
    assert [ordinal for ordinal, _ in shown] == list(range(25))
    for batches in range(1, 6):
        assert sorted(b for _, b in shown[: batches**2]) == expected(batches)
    assert results(tmp_path) == expected(2)
