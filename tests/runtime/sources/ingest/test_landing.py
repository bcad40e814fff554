"""Tests of rows landed by ingest queries and the feed over them: exact offsets, each row
read once.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import time
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.errors import SourceError, StateError
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.feeds import plan_feed
from anabranch_runtime.sources.ingest import landing
from anabranch_runtime.sources.ingest.appearances import appearances
from anabranch_runtime.sources.ingest.checkpoints import COMMIT, mend
from anabranch_runtime.sources.ingest.evaluate import Evaluation
from anabranch_runtime.sources.ingest.feed import LandedFeed, landed_feed
from anabranch_runtime.sources.ingest.spark_stream import reason, source_name
from anabranch_runtime.sources.loads import (
    LONGEST,
    LONGEST_FIRST,
    QUIET,
    QUIET_FIRST,
    Load,
    longest_pause,
)
from tests.support.surroundings.policy import OPEN

RECORD = StreamRecord(
    name="s",
    columns=(ColumnRecord(name="a", type="bigint"),),
    source=SourceRecord(format="rate"),
    registration="1",
)
COLUMNS = (("a", "bigint"),)
COLUMN = Column("", "a", parse_type("bigint"))
EVALUATION = Evaluation((COLUMN,), ("a",), (COLUMN,))


def home(state: Path) -> Path:
    return landing.home_of(state, source_name(RECORD))


def offsets(batch: int) -> str:
    return f'v2\n{{"batchWatermarkMs":0}}\n{source_name(RECORD)}:{{"logOffset":{batch}}}'


def land(
    state: Path, number: int, *files: range, seen: landing.Appearance | None = None
) -> landing.Landed:
    """Land a batch as an ingest query does; rows divisible by seven are invalid."""
    folder, written = landing.begin(home(state)), []
    for rows in files:
        arrived = [b"raw" if a % 7 == 0 else None for a in rows]
        invalid = [a is not None for a in arrived]
        arrays = [pa.array(rows, pa.int32()), pa.array(invalid), pa.array(arrived, pa.binary())]
        batch = pa.RecordBatch.from_arrays(arrays, names=["a", "invalid", "arrived"])
        cuts = [batch.slice(first, 5) for first in range(0, batch.num_rows, 5)]
        for found in landing.file_writer(str(folder), COLUMNS, EVALUATION, OPEN)(iter(cuts)):
            written += [tuple(row.values()) for row in found.to_pylist()]
    landed = landing.Landed(2 * number, offsets(2 * number), tuple(written), {}, seen)
    landing.finish(home(state), folder, number, landed)
    return landed


def read(feed: LandedFeed, start: Any, end: Any, parts: int = 3) -> tuple[list[int], int]:
    """Return column ``a`` of the rows between two offsets, and the number of invalid rows."""
    found: list[int] = []
    bad = 0
    for piece in feed.pieces(start, end, parts):
        for rows, invalid in read_piece(pickle.loads(pickle.dumps(piece))):
            found += rows.column("a").to_pylist()
            bad += 0 if invalid is None else invalid.num_rows
    return found, bad


@pytest.mark.parametrize("seed", range(5))
def test_any_batches_read_each_landed_row_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    total, number = 0, 0
    offset: Any = None
    marks: list[Any] = [None]
    for _ in range(30):
        if chance.random() < 0.5:
            sizes = [chance.randrange(1, 40) for _ in range(chance.randrange(1, 4))]
            ends = list(accumulate(sizes, initial=total))
            land(tmp_path, number, *map(range, ends, ends[1:]))
            total, number = ends[-1], number + 1
        # A new feed each time, as after a restart.
        feed = landed_feed(RECORD, str(tmp_path))
        waits = feed.waiting(offset).rows
        if waits:
            rows = chance.randrange(1, 60)
            later = feed.advance(json.loads(json.dumps(offset)), rows)
            assert feed.waiting(later).rows == max(waits - rows, 0)
            offset = later
            marks.append(offset)
    feed = landed_feed(RECORD, str(tmp_path))
    offset = feed.advance(offset, total + 1)
    marks.append(offset)
    found: list[int] = []
    bad = 0
    for start, end in pairwise(marks):
        values, invalid = read(feed, start, end, chance.randrange(1, 5))
        assert (values, invalid) == read(landed_feed(RECORD, str(tmp_path)), start, end, 1)
        found += values
        bad += invalid
    assert sorted(found) == [a for a in range(total) if a % 7]
    assert bad == len([a for a in range(total) if a % 7 == 0])


def test_what_was_consumed_is_forgotten_and_what_is_missing_is_noticed(tmp_path: Path) -> None:
    for number in range(4):
        land(tmp_path, number, range(10 * number, 10 * number + 10))
    feed = landed_feed(RECORD, str(tmp_path))
    assert feed.waiting([2, 4]).rows == 16
    landing.forget(home(tmp_path), 2)
    assert landing.numbers(home(tmp_path)) == [2, 3]
    landing.forget(home(tmp_path), 9)
    # The batch that says how far the source has been read is kept.
    assert landing.numbers(home(tmp_path)) == [3]
    with pytest.raises(SourceError, match="is not there"):
        landed_feed(RECORD, str(tmp_path)).pieces([2, 4], [4, 0], 1)
    (file,) = landing.folder_of(home(tmp_path), 3).glob("*.arrow")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SourceError, match="bytes instead of"):
        read(landed_feed(RECORD, str(tmp_path)), [3, 0], [4, 0])
    document = landing.folder_of(home(tmp_path), 3) / "batch.json"
    document.write_text(document.read_text().replace("10", "11"))
    with pytest.raises(SourceError, match="checksum"):
        landed_feed(RECORD, str(tmp_path)).waiting([3, 0])
    with pytest.raises(StateError, match="checksum"):
        landing.read_landed(home(tmp_path), 3)


def test_a_batch_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    folder = landing.begin(home(tmp_path))
    (folder / "x.arrow").write_bytes(b"half")
    assert landed_feed(RECORD, str(tmp_path)).waiting(None).rows == 0
    landing.clear_unfinished(home(tmp_path))
    assert not folder.exists()
    land(tmp_path, 0)
    assert landing.numbers(home(tmp_path)) == [0]


def test_a_checkpoint_that_has_lost_entries_is_made_to_agree(tmp_path: Path) -> None:
    last = land(tmp_path, 0, range(3))
    checkpoint = home(tmp_path) / "checkpoint"
    last = landing.Landed(6, offsets(6), last.files, {})

    def entries() -> dict[str, str]:
        found = (p for p in checkpoint.rglob("*") if p.is_file() and p.name != "metadata")
        return {str(p.relative_to(checkpoint)): p.read_text() for p in found}

    # No checkpoint; one from before a power loss; one with an unreadable later plan.
    mend(home(tmp_path), last, 0, 1)
    whole = {"offsets/5": offsets(6), "offsets/6": offsets(6), "commits/6": COMMIT}
    assert entries() == whole
    (checkpoint / "offsets" / "5").write_text(offsets(5))
    (checkpoint / "offsets" / "6").write_text("")
    mend(home(tmp_path), last, 0, 1)
    assert entries() == whole
    (checkpoint / "offsets" / "7").write_text(offsets(7))
    mend(home(tmp_path), last, 1, 1)
    assert "offsets/7" in entries()
    (checkpoint / "offsets" / "7").write_bytes(b"\xff")
    mend(home(tmp_path), last, 1, 1)
    assert entries() == whole
    with pytest.raises(SourceError, match="1 landed batches, and 2 have been read"):
        mend(home(tmp_path), last, 2, 1)
    logged = landing.Landed(6, offsets(6), last.files, {"checkpoint/sources/x/0": (3, 1)})
    with pytest.raises(SourceError, match="has changed, so it is no longer known"):
        mend(home(tmp_path), logged, 0, 1)


def test_what_spark_says_is_cut_to_what_matters() -> None:
    text = """An error occurred while calling o160.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file.
\tat org.apache.spark.sql.errors.X.y(X.scala:920)
Caused by: java.lang.RuntimeException: x.parquet is not a Parquet file
\tat org.apache.parquet.A.b(A.java:1)
\t... 45 more"""
    assert reason(ValueError(text)) == (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file."
        " (java.lang.RuntimeException: x.parquet is not a Parquet file)"
    )
    assert len(reason(ValueError("x" * 10_000))) == 500


def stands(feed: LandedFeed, offset: Any, load: Load, now: float) -> tuple[Any, Load]:
    """Return the offset and load planned for a feed without a limit."""
    return plan_feed(feed, offset, feed.waiting(offset).rows, load, now)


@pytest.mark.parametrize("format", ["kafka", "orc"])
def test_a_backlog_is_one_load_until_its_source_has_no_more(tmp_path: Path, format: str) -> None:
    record = RECORD.model_copy(update={"source": SourceRecord(format=format, path="/in")})

    def fresh() -> LandedFeed:
        """Return the feed as after a restart."""
        return replace(landed_feed(record, str(tmp_path)), home=home(tmp_path))

    now = time.time()
    land(tmp_path, 0, range(10))
    offset, load = stands(fresh(), None, Load("s"), now)
    assert (offset, load.is_open, load.is_first) == ([1, 0], True, True)
    land(tmp_path, 1, range(10, 20))
    land(tmp_path, 2, range(20, 30))
    landing.note_caught_up(home(tmp_path), 2, QUIET_FIRST)
    land(tmp_path, 3, range(30, 40))
    offset, load = stands(fresh(), offset, load, now)
    assert (offset, load.is_open, load.number) == ([2, 0], False, 0), "the third landed later"
    offset, load = stands(fresh(), offset, load, now)
    assert (offset, load.number) == ([4, 0], 1)
    assert load.is_open == (format == "orc"), "of files only what is quiet has ended"
    landing.note_caught_up(home(tmp_path), 4, QUIET)
    offset, load = stands(fresh(), offset, load, now)
    assert (offset, load.is_open, load.number) == ([4, 0], False, 1)
    assert stands(fresh(), offset, load, now) == (offset, load)


@pytest.mark.parametrize("seed", range(40))
def test_loads_follow_the_times_of_files_however_slow_reading_is(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    record = RECORD.model_copy(update={"source": SourceRecord(format="orc", path="/in")})
    feed = replace(landed_feed(record, str(tmp_path)), home=home(tmp_path))
    times = [time.time()]
    while len(times) < 25:
        times.append(times[-1] + chance.choice([0.01, 0.1, 0.2, 0.5, 0.9, 3.0]))
    now, landed, batches = times[0], 0, list[tuple[int, int]]()
    offset, load, number_of, began = None, Load("s"), dict[int, int](), dict[int, float]()
    while landed < len(times) or load.is_open or offset != [len(batches), 0]:
        # A starved reader may be suspended for any time before it lands, looks or plans.
        now += chance.choice([0.01, 0.3, 2.0])
        there = sum(t <= now for t in times)
        if landed < there and chance.random() < 0.7:
            after = chance.randrange(landed + 1, there + 1)
            before = times[landed - 1] if landed else 0.0
            pause = longest_pause(times[landed:after])
            seen = landing.Appearance(before, times[landed], times[after - 1], pause)
            land(tmp_path, len(batches), range(1), seen=seen)
            batches.append((landed, after))
            landed = after
        elif landed == there and now - times[landed - 1] >= QUIET:
            landing.note_caught_up(home(tmp_path), len(batches), now - times[landed - 1])
        if chance.random() < 0.7:
            start = (offset or (0, 0))[0]
            offset, load = stands(feed, offset, load, now)
            began[load.number] = load.began
            number_of |= dict.fromkeys(range(start, (offset or (0, 0))[0]), load.number)
    assert number_of.keys() == set(range(len(batches)))
    for batch, (first, _) in list(enumerate(batches))[1:]:
        number = number_of[batch - 1]
        assert number_of[batch] - number in (0, 1)
        quiet, longest = (QUIET, LONGEST) if number else (QUIET_FIRST, LONGEST_FIRST)
        if number_of[batch] > number:
            last = times[first - 1]
            assert times[first] - last >= quiet or last > began[number] + longest


def test_a_writer_that_slows_down_is_waited_for(tmp_path: Path) -> None:
    record = RECORD.model_copy(update={"source": SourceRecord(format="orc", path="/in")})
    feed = replace(landed_feed(record, str(tmp_path)), home=home(tmp_path))
    began = time.time()
    offset, load, before, now = None, Load("s"), 0.0, began
    for number, pause in enumerate([0.1, 0.9, 1.5, 3.0, 10.0, 0.2, 41.0]):
        now += pause
        land(tmp_path, number, range(1), seen=landing.Appearance(before, now, now, 0.0))
        before = now
        offset, load = stands(feed, offset, load, now)
        # A look finds no more files, half of the next pause later.
        landing.note_caught_up(home(tmp_path), number + 1, pause)
        offset, load = stands(feed, offset, load, now + pause)
        # The longest pause before the last was 10 s.
        assert (load.number, load.is_open) == ((0, True) if pause < 41.0 else (1, False))


def test_files_appear_when_the_directory_says_not_their_writer(tmp_path: Path) -> None:
    logs = tmp_path / "checkpoint" / "sources" / source_name(RECORD)
    logs.mkdir(parents=True)
    began = time.time()
    there = tmp_path / "a b.json"
    there.touch()
    os.utime(there, (5, 5))
    entries = [
        {"path": there.as_uri(), "timestamp": 5000, "batchId": 0},
        {"path": (tmp_path / "gone.json").as_uri(), "timestamp": 6000, "batchId": 1},
        {"path": "s3a://bucket/c.json", "timestamp": 7000, "batchId": 2},
    ]
    lines = [json.dumps(entry) for entry in entries]
    (logs / "0").write_text("v1\n" + lines[0])
    (logs / "1").write_text("v1\n" + lines[1])
    (logs / "2.compact").write_text("v1\n" + "\n".join(lines))
    first, *others = appearances(tmp_path, None, offsets(2))
    assert began - 1 < first <= time.time()
    assert others == [6.0, 7.0]
    assert appearances(tmp_path, offsets(1), offsets(2)) == [7.0]
    assert appearances(tmp_path, offsets(2), offsets(2)) == []
