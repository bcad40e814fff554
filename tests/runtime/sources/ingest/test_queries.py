"""Tests of streams read by a Spark query: streams are added, removed and changed between runs;
others keep their position.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.control import Control
from anabranch_runtime.driver.pipeline import SparkPipeline
from anabranch_runtime.driver.reporting.source_health import SourceHealth
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.batch_input import BatchInput, Sources
from anabranch_runtime.sources.blocks import Block, read_pieces
from anabranch_runtime.sources.ingest import landing
from anabranch_runtime.sources.ingest.queries import Ingest, _Source
from anabranch_runtime.sources.ingest.spark_stream import source_name
from anabranch_runtime.sources.invalid import raw_text
from anabranch_runtime.sources.loads import QUIET_FIRST, longest_pause
from anabranch_runtime.sources.planned import InputControl, next_offsets
from anabranch_runtime.spark.session import spark_session
from anabranch_runtime.state.offsets import Offsets
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.redis import redis_url
from tests.support.surroundings.sources import understood

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    found = spark_session("local[2]")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_url() as address:
        yield address


class World:
    """A checkpoint, and what Spark queries over changing sets of streams have read."""

    def __init__(self, session: SparkSession, url: str, home: Path) -> None:
        self.session = session
        self.home = home
        self.server = redis.Redis.from_url(url)
        settings = DriverSettings(home / "state", home / "results", mode=Mode.LIVE, access=OPEN)
        (settings.state / "recordings").mkdir(parents=True)
        self.pipeline = SparkPipeline(settings, Control(url, "test"), "local[2]")
        ingest = Ingest(session, settings.state, local=True, access=OPEN)
        self.watch = SourceHealth(self.pipeline.control, ingest, InputControl())
        self.files = 0
        #: End of the read input; end of a batch that has begun.
        self.offsets: Offsets | None = None
        self.begun: Offsets | None = None

    def run(self, *records: StreamRecord, fail: bool = False) -> dict[str, list[int]]:
        """Read everything available; ``fail``: plan a batch, but do not commit it."""
        found: dict[str, list[int]] = {}
        for block in self.blocks(*records, fail=fail):
            found.setdefault(block.stream, []).extend(block.rows.column("a").to_pylist())
            if block.invalid:
                found.setdefault(f"{block.stream} invalid", []).append(block.invalid.num_rows)
        return {name: sorted(rows) for name, rows in found.items()}

    def blocks(self, *records: StreamRecord, fail: bool = False) -> list[Block]:
        """Return everything available, as blocks."""
        found: list[Block] = []
        self.watch.look(records)
        self.watch.ingest.forget_others()
        self.watch.ingest.drain()
        opened = self.pipeline._open(list(records), 2, self.watch.input)
        self.watch.left_out = opened.errors
        while True:
            upto = self.begun or next_offsets(opened.planned, self.offsets)
            if upto is None:
                return found
            self.begun = upto
            if fail:
                return found
            before, self.offsets, self.begun = self.offsets, upto, None
            for share in BatchInput(Sources(opened.planned, 2), {}, 0, before, upto).shares():
                found.extend(read_pieces(share))

    def file(self, folder: str, rows: range, kind: str = "parquet") -> None:
        """Write a file."""
        self.files += 1
        directory = self.home / folder
        directory.mkdir(exist_ok=True)
        partial = directory / f".{self.files}"
        if kind == "parquet":
            pq.write_table(pa.table({"a": list(rows)}), partial)
        else:
            partial.write_text("".join(json.dumps({"a": a}) + "\n" for a in rows))
        partial.rename(directory / f"{self.files}.{kind}")

    def push(self, name: str, rows: range) -> None:
        """Append entries."""
        for a in rows:
            self.server.xadd(Keys("test").stream(name), {"data": json.dumps({"a": a})})


def stream(name: str, format: str, path: Path | None = None, **options: Any) -> StreamRecord:
    return understood(
        StreamRecord(
            name=name,
            columns=(ColumnRecord(name="a", type="bigint"),),
            source=SourceRecord(format=format, path=path and str(path), options=options),
        )
    )


@pytest.fixture
def world(session: SparkSession, url: str, tmp_path: Path) -> Iterator[World]:
    found = World(session, url, tmp_path)
    found.server.flushall()
    yield found
    found.watch.ingest.close()


def test_streams_come_go_and_change_between_runs(world: World, tmp_path: Path) -> None:
    r = stream("r", "redis-stream")
    f = stream("f", "files", tmp_path / "f")
    p = stream("p", "parquet", tmp_path / "p")
    t = stream("t", "text", tmp_path / "t", payload="json")
    world.push("r", range(5))
    world.file("p", range(5))
    assert world.run(r, p) == {"r": list(range(5)), "p": list(range(5))}

    # Two more streams, one of each kind; the others continue.
    world.push("r", range(5, 7))
    world.file("p", range(5, 7))
    world.file("f", range(3))
    world.file("t", range(4), "json")
    (tmp_path / "t" / "bad.json").write_text("nothing\n[1]\n")
    read = world.run(r, p, f, t)
    assert sum(read.pop("t invalid")) == 2
    assert read == {"r": [5, 6], "p": [5, 6], "f": [0, 1, 2], "t": [0, 1, 2, 3]}

    # Two are removed, and return at their positions.
    world.push("r", range(7, 9))
    world.file("p", range(7, 9))
    world.file("f", range(3, 5))
    world.file("t", range(4, 6), "json")
    assert world.run(r, t) == {"r": [7, 8], "t": [4, 5]}
    read = world.run(r, p, f, t)
    assert read["f"] == [3, 4]
    assert set(read) == {"f", "p"}
    assert read["p"][-2:] == [7, 8]

    # A batch planned with all of them is repeated without one.
    world.push("r", range(9, 11))
    world.file("p", range(9, 11))
    world.file("f", range(5, 7))
    world.file("t", range(6, 8), "json")
    assert world.run(r, p, f, t, fail=True) == {}
    world.push("r", range(11, 12))
    read = world.run(r, t)
    assert read == {"r": [9, 10, 11], "t": [6, 7]}

    # Without any stream of our own sources, for several batches.
    for first in (8, 10, 12):
        world.file("t", range(first, first + 2), "json")
        assert world.run(t) == {"t": [first, first + 1]}
    world.push("r", range(12, 14))
    assert world.run(r, t) == {"r": [12, 13]}

    # Another definition with the same name is read from its beginning.
    (tmp_path / "f2").mkdir()
    world.file("f2", range(100, 103))
    world.file("p2", range(100, 103))
    changed = [stream("f", "files", tmp_path / "f2"), stream("p", "parquet", tmp_path / "p2")]
    assert world.run(r, t, *changed) == {"f": [100, 101, 102], "p": [100, 101, 102]}


def test_values_that_a_column_can_not_hold_are_a_row_each(world: World, tmp_path: Path) -> None:
    """Also for Spark's sources, whose casts would fail the batch in every attempt."""
    p = stream("p", "parquet", tmp_path / "p", schema="a string", **{"column.a": "a"})
    t = stream("t", "text", tmp_path / "t", payload="json")
    for folder in ("p", "t"):
        (tmp_path / folder).mkdir()
    pq.write_table(pa.table({"a": ["1", "x", None, "99999999999999999999"]}), tmp_path / "p" / "1")
    (tmp_path / "t" / "1").write_text('{"a": 1}\n{"a": "x"}\n{"a": 1.5}\n{"b": 1}\n')
    kept: dict[str, list[Any]] = {}
    found: dict[str, list[Any]] = {}
    for block in world.blocks(p, t):
        found.setdefault(block.stream, []).extend(block.rows.column("a").to_pylist())
        if block.invalid is not None:
            kept.setdefault(block.stream, []).extend(raw_text(block.invalid.column(-1)).to_pylist())
    assert found == {"p": [1, None], "t": [1, None]}
    assert kept == {
        "p": ['{"a":"x"}', '{"a":"99999999999999999999"}'],
        "t": ['{"a": "x"}', '{"a": 1.5}'],
    }


def test_rows_on_which_an_expression_fails_are_a_row_each(world: World, tmp_path: Path) -> None:
    """Regression: such rows failed the batch, and stopped their stream forever."""
    division = "cast(10 / (cast(value as int) - 3) as bigint)"
    branch = "CASE WHEN data.a < 5 THEN data.a ELSE data.a + 9223372036854775807 END"
    given = {
        "t": stream("t", "text", tmp_path / "t", **{"column.a": division}),
        "p": stream("p", "text", tmp_path / "p", payload="json", **{"column.a": branch}),
        "j": stream("j", "json", tmp_path / "j", schema="v bigint, w string, b binary",
                    **{"column.a": "cast(w || cast(v as string) as bigint)"}),
        "n": stream("n", "parquet", tmp_path / "n", schema="value string", payload="json"),
        "x": stream("x", "text", tmp_path / "x", **{"column.a": "cast(value || 'x' as bigint)"}),
    }  # fmt: skip
    for folder in given:
        (tmp_path / folder).mkdir()
    (tmp_path / "t" / "1").write_text("4\n3\nx\n13\n3\n")
    (tmp_path / "p" / "1").write_text('{"a": 1}\n{"a":  5}\nnothing\n{"b": 1}\n')
    (tmp_path / "j" / "1").write_text(
        '{"v": 1, "w": "2"}\n{"v": 1, "w": "x", "b": "AAE="}\n{"v": 7}\n'
    )
    pq.write_table(pa.table({"value": ['{"a": 1}', None, "[]"]}), tmp_path / "n" / "1")
    (tmp_path / "x" / "1").write_text("".join(f"{i}\n" for i in range(2000)))
    kept: dict[str, list[Any]] = {}
    found: dict[str, list[Any]] = {}
    for _ in range(2):
        for block in world.blocks(*given.values()):
            name = block.stream
            found.setdefault(name, []).extend(block.rows.column("a").to_pylist())
            if block.invalid is not None:
                arrived = raw_text(block.invalid.column(-1)).to_pylist()
                kept.setdefault(name, []).extend(arrived)
        # The stream continues afterwards.
        (tmp_path / "t" / "2").write_text("8\n")
    # Two tasks read a batch, in any order.
    assert {name: sorted(rows, key=str) for name, rows in found.items()} == {
        "t": [1, 10, 2],
        "p": [1, None],
        "j": [21, None],
        "n": [1],
        "x": [],
    }
    assert {name: sorted(rows) for name, rows in kept.items()} == {
        "t": ['{"value": "3"}', '{"value": "3"}', '{"value": "x"}'],
        "p": ["nothing", '{"a":  5}'],
        "j": ['{"v": 1, "w": "x", "b": "AAE="}'],
        "n": ["", "[]"],
        "x": sorted(f'{{"value": "{i}"}}' for i in range(2000)),
    }


def test_records_that_spark_can_not_read_are_a_row_each(world: World, tmp_path: Path) -> None:
    header = {"header": "true", "lineSep": "\n"}
    streams = {
        "c": stream("c", "csv", tmp_path / "c", lineSep="\n"),
        "h": stream("h", "csv", tmp_path / "h", schema="a bigint, b string", **header),
        "j": stream("j", "json", tmp_path / "j", allowComments="true"),
        "e": stream("e", "json", tmp_path / "e", schema="v bigint", **{"column.a": "v + 1"}),
    }
    texts = {
        "c": "1\nx\n2,3\n4\n",
        "h": "a,b\n1,x\none,y\n2\n3,z,z\n4,\n",
        "j": '{"a": 1}\n{"a": "x"}\n{"a": 2\n{"a": 4}\n',
        "e": '{"v": 0}\n{"v": "x"}\n[\n{"v": 3}\n',
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1").write_text(text)
    good: dict[str, list[int]] = {}
    bad: dict[str, list[str | None]] = {}
    for block in world.blocks(*streams.values()):
        good.setdefault(block.stream, []).extend(block.rows.column("a").to_pylist())
        if block.invalid is not None:
            raw = raw_text(block.invalid.column("#arrived")).to_pylist()
            bad.setdefault(block.stream, []).extend(raw)
    assert {name: sorted(rows) for name, rows in good.items()} == {n: [1, 4] for n in streams}
    assert {name: sorted(map(str, rows)) for name, rows in bad.items()} == {
        "c": ["2,3", "x"],
        "h": ["2", "3,z,z", "one,y"],
        "j": ['{"a": "x"}', '{"a": 2'],
        "e": ["[", '{"v": "x"}'],
    }
    # A header with other names is an error of its stream; values must not get into other columns.
    (tmp_path / "h" / "2").write_text("b,a\n5,6\n")
    world.watch.look(tuple(streams.values()))
    deadline = time.monotonic() + 60.0
    while world.watch.ingest.statuses()["h"].error is None and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(SourceError, match=r"(?i)header"):
        world.watch.ingest.check()


def test_pauses_between_files_are_their_own_when_landing_is_slow(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Landing takes far longer than the pauses between files, as on a starved machine."""
    record = stream("t", "text", tmp_path / "t", payload="json")
    home = landing.home_of(tmp_path / "state", source_name(record))
    write, note = _Source._write, landing.note_caught_up
    notes: list[tuple[int, float]] = []

    def write_slowly(self: _Source, *arguments: Any) -> None:
        time.sleep(1.2)
        write(self, *arguments)

    def note_too(home: Path, number: int, quiet: float) -> None:
        notes.append((number, quiet))
        note(home, number, quiet)

    monkeypatch.setattr(_Source, "_write", write_slowly)
    monkeypatch.setattr(landing, "note_caught_up", note_too)

    def await_landed(files: int) -> None:
        """Wait until all files have landed, and a second without more has been recorded."""
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline:
            there = [landing.read_landed(home, n) for n in landing.numbers(home)]
            landed = sum(one.rows for one in there if one is not None)
            if landed == files and (len(there), QUIET_FIRST) <= (notes or [(0, 0.0)])[-1]:
                return
            time.sleep(0.1)

    (tmp_path / "t").mkdir()
    world.watch.look((record,))
    for number in range(20):
        if number in (1, 19):
            await_landed(number)
        world.file("t", range(number, number + 1), "json")
        time.sleep(0.1)
    await_landed(20)
    times = sorted(file.stat().st_ctime for file in (tmp_path / "t").iterdir())
    found = [landing.read_landed(home, number) for number in landing.numbers(home)]
    landed = [one for one in found if one is not None]
    ends = [0, *accumulate(one.rows for one in landed)]
    assert ends[-1] == len(times)
    seen = [one.files_seen for one in landed if one.files_seen is not None]
    for one, (first, last) in zip(seen, pairwise(ends), strict=True):
        assert (one.first, one.newest) == pytest.approx((times[first], times[last - 1]))
        assert one.before == pytest.approx(times[first - 1] if first else 0.0)
        assert one.pause == pytest.approx(longest_pause(times[first:last]))
    assert len(landed) > 3
    for one in (seen[1], seen[-1]):
        assert one.first - one.before >= QUIET_FIRST
    # Each record is true: whatever had appeared by then had landed.
    for number, quiet in notes:
        newest = times[ends[number] - 1] if number else 0.0
        assert sum(at < newest + quiet for at in times) == ends[number]
    assert notes[-1][0] == len(landed)


def test_a_source_that_cannot_be_opened_leaves_the_others(world: World, tmp_path: Path) -> None:
    world.push("r", range(3))
    (tmp_path / "x").mkdir()
    bad = [
        stream("format", "no-such-format"),
        stream("path", "parquet", tmp_path / "missing"),
        *(
            StreamRecord(name=name, columns=r_columns(), source=source)
            for name, source in (
                ("option", SourceRecord(format="redis-stream", options={"payload": "xml"})),
                ("none", SourceRecord(format="recorded")),
            )
        ),
    ]
    assert world.run(stream("r", "redis-stream"), *bad) == {"r": [0, 1, 2]}
    errors = world.watch.unread()
    assert errors.keys() == {record.name for record in bad}
    for name in ("format", "path"):
        assert errors[name].startswith(f"streams.{name}.")
    assert "no-such-format" in errors["format"]
    with pytest.raises(SourceError, match="streams"):
        world.watch.ingest.check()


def r_columns() -> tuple[ColumnRecord, ...]:
    return (ColumnRecord(name="a", type="bigint"),)
