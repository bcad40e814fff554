"""Tests that watermarks advance by whole loads: a row's lateness depends only on earlier loads.

Cuts of batches and the order of files or keys have no effect.
"""

from __future__ import annotations

import json
import os
import random
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.blocks import read_pieces
from anabranch_runtime.sources.feeds import Feeds, plan_feed
from anabranch_runtime.sources.loads import Load, loads_of, with_loads
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import rules, stream
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.policy import OPEN

KEYS = Keys("test")
COLUMNS = (("n", "bigint"), ("ts", "timestamp"))
SECOND = 1_000_000
#: A row's number and its event time in microseconds.
Row = tuple[int, int]


class Killed(BaseException):
    """The simulated death of the process, which nothing may catch."""


class World:
    """A live pipeline over one stream ``R``, in this process: files, or two Redis Streams."""

    def __init__(self, url: str, home: Path, lateness: int, **options: str) -> None:
        self.url, self.home, self.options = url, home, options
        self.server = redis.Redis.from_url(url)
        self.is_redis = not options
        self.rows = 0
        (home / "R").mkdir(parents=True)
        document = rulesets.dumps(
            rules(0, {"r": "SELECT R.n FROM R"}, streams=(stream("R", "n", lateness=lateness),))
        )
        self.server.set(KEYS.ruleset(0), document)
        self.server.zadd(KEYS.published, {"0": 0})
        self.start()

    def start(self) -> None:
        """Start the runtime, or kill it and restart it."""
        state = self.home / "state"
        settings = DriverSettings(
            state,
            self.home / "results",
            epoch_seconds=3600.0,
            mode=Mode.LIVE,
            patience=5.0,
            target_latency=None,
        )
        state.mkdir(parents=True, exist_ok=True)
        self.driver = Driver(settings, Control(self.url, "test"))
        self.driver.announce()
        record = StreamRecord(
            name="R",
            columns=tuple(ColumnRecord(name=c, type=t) for c, t in COLUMNS),
            event_time="ts",
            source=SourceRecord(format="redis-stream", options={"keys": "k1,k2"})
            if self.is_redis
            else SourceRecord(format="files", path=str(self.home / "R"), options=self.options),
        )
        self.reader = Feeds([record], 2, self.url, "test", str(state), OPEN)
        feeds = frozenset(self.reader.feeds)
        self.driver.read(Sources({"feeds": self.reader}, 2, (record,), feeds))

    def turn(self, die: bool = False) -> bool:
        """Plan a batch and run it, or repeat the one that was begun; False if there is none."""
        offsets = self.driver.plan()
        if offsets is None:
            return False

        def job(context: BatchContext) -> list[TaskReport]:
            if die:
                raise Killed
            known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
            blocks = read_pieces(chain(*context.input.shares))
            return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]

        self.driver.run(job, offsets)
        return True

    def add(self, rows: list[Row], chance: random.Random) -> None:
        """Add rows, as some files or entries, in any order of event times."""
        chance.shuffle(rows)
        while rows:
            count = chance.randrange(1, len(rows) + 1)
            part, rows = rows[:count], rows[count:]
            if self.is_redis:
                for n, tau in part:
                    data = {"n": n, "ts": _text(tau)}
                    self.server.xadd(chance.choice(["k1", "k2"]), {"data": json.dumps(data)})
            else:
                self._file(part, chance)

    def _file(self, part: list[Row], chance: random.Random) -> None:
        name = f"{chance.random()}"
        path = self.home / "R" / f".{name}"
        numbers, times = [n for n, _ in part], [t for _, t in part]
        table = pa.table({"n": numbers, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
        if self.options["type"] == "parquet":
            pq.write_table(table, path, row_group_size=chance.randrange(1, 9))
        elif self.options["type"] == "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
                out.write_table(table, max_chunksize=5)
        else:
            lines = [json.dumps({"n": n, "ts": _text(t)}) for n, t in part]
            path.write_text("\n".join(lines) + "\n")
        os.utime(path, (chance.randrange(10**9), chance.randrange(10**9)))
        path.rename(path.with_name(name))

    @property
    def late(self) -> int:
        """Return the late rows."""
        return self.driver.state.streams["R"].late

    def found(self) -> list[int]:
        """Return the numbers of the rows that were not late."""
        paths = [str(p) for p in (self.home / "results" / "r").glob("*.parquet")]
        return sorted(n for (n,) in duckdb.read_parquet(paths).fetchall()) if paths else []


def _text(tau: int) -> str:
    return f"{1970 + tau // (365 * 86_400 * SECOND)}-01-01T00:00:{tau % (60 * SECOND) / 1e6:09.6f}Z"


@dataclass
class Expected:
    """Kept and late rows by the rule: a row is late below the greatest event time of earlier loads
    minus the lateness.
    """

    lateness: int
    greatest: int | None = None
    kept: list[int] = field(default_factory=list)
    late: int = 0

    def load(self, rows: list[Row]) -> None:
        """Add a load that is completely read."""
        mark = None if self.greatest is None else self.greatest - self.lateness
        timely = [n for n, tau in rows if mark is None or tau >= mark]
        self.kept += timely
        self.late += len(rows) - len(timely)
        times = [tau for _, tau in rows] + ([] if self.greatest is None else [self.greatest])
        self.greatest = max(times)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "json", "redis"])
@pytest.mark.parametrize("seed", mostly_slow(range(6), 2))
def test_what_is_late_depends_on_loads_alone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    for name in ("loads.QUIET", "loads.QUIET_FIRST", "files.feed.LISTING"):
        monkeypatch.setattr(f"anabranch_runtime.sources.{name}", 0.0)
    chance = random.Random(f"{kind}{seed}")
    lateness = chance.choice([0, 5, 20, 100]) * SECOND
    world = World(url, tmp_path, lateness, **({} if kind == "redis" else {"type": kind}))
    expected, rows = Expected(lateness), 0
    for _ in range(chance.randrange(1, 5)):
        centre = chance.randrange(60)
        count = chance.randrange(1, 60)
        spread = [min(max(centre + chance.randrange(-15, 16), 0), 59) for _ in range(count)]
        load = [(rows + i, at * SECOND) for i, at in enumerate(spread)]
        rows += count
        world.add(list(load), chance)
        expected.load(load)
        while True:
            world.reader._input.limit = chance.choice([1, 3, 10, 1000])
            if chance.random() < 0.1:
                with suppress(Killed):
                    world.turn(die=True)
                world.start()
            elif chance.random() < 0.1:
                world.start()
            if not world.turn():
                break
    assert world.late == expected.late
    assert world.found() == sorted(expected.kept)
    assert world.driver.state.streams["R"].max_tau == expected.greatest


class Scripted:
    """A feed over numbered rows that appear at given times; a load ends after ``quiet`` seconds
    without rows.
    """

    def __init__(self, appeared: list[float], quiet: float) -> None:
        self.appeared, self.quiet, self.now = appeared, quiet, 0.0

    @property
    def _there(self) -> int:
        return sum(t <= self.now for t in self.appeared)

    def waiting(self, offset: int | None) -> int:
        return self._there - (offset or 0)

    def load_end(self, offset: int | None, load: Load) -> int | None:
        newest = max((t for t in self.appeared if t <= self.now), default=0.0)
        quiet = self.now - newest >= self.quiet or self.now - load.began >= 20 * self.quiet
        return self._there if quiet else None

    def has_reached(self, offset: int | None, end: int) -> bool:
        return (offset or 0) >= end

    def is_apart(self, offset: int | None, load: Load) -> bool:
        at = offset or 0
        return 0 < at < self._there and self.appeared[at] - self.appeared[at - 1] > self.quiet

    def advance(self, offset: int | None, rows: int, end: int | None = None) -> int:
        return min((offset or 0) + rows, self._there if end is None else end)


@pytest.mark.parametrize("seed", mostly_slow(range(200), 50))
def test_loads_end_where_nothing_came_for_a_while(seed: int) -> None:
    chance = random.Random(seed)
    gaps = [chance.choice([0.0, 0.05, 0.1, 0.2, 3.0]) for _ in range(chance.randrange(1, 60))]
    appeared, now = [], 1.0
    for gap in gaps:
        now += gap
        appeared.append(now)
    feed, offset, load = Scripted(appeared, 0.5), None, Load("s")
    number_of: dict[int, int] = {}
    for _ in range(10_000):
        feed.now += chance.choice([0.01, 0.1, 0.6])
        rows = min(feed.waiting(offset), chance.randrange(1, 9))
        before, was = offset or 0, load
        load = loads_of(json.loads(json.dumps(with_loads({}, {"f": load}))))["f"]
        offset, load = plan_feed(feed, offset, rows, load, feed.now)  # type: ignore[arg-type]
        assert load.number in (was.number, was.number + 1)
        for row in range(before, offset or 0):
            number_of[row] = load.number
        if offset == len(appeared) and not load.is_open:
            break
    assert offset == len(appeared)
    assert not load.is_open
    for row in range(1, len(appeared)):
        apart = number_of[row] - number_of[row - 1]
        assert apart in (0, 1)
        if appeared[row] - appeared[row - 1] <= 0.5 and appeared[row] - appeared[0] < 10:
            assert not apart, "rows that followed each other closely are of one load"
