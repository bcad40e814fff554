"""Rows landed by ingest queries and the feed over them: exact offsets, each row read once."""

from __future__ import annotations

import json
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
from anabranch_runtime.recovery.checkpoint import COMMIT
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.feeds import plan
from anabranch_runtime.sources.ingest import landing
from anabranch_runtime.sources.ingest.checkpoints import mend
from anabranch_runtime.sources.ingest.evaluate import Evaluation
from anabranch_runtime.sources.ingest.feed import LandedFeed, landed_feed
from anabranch_runtime.sources.ingest.spark_stream import reason, source_name
from anabranch_runtime.sources.loads import Load
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


def land(state: Path, number: int, *files: range) -> landing.Landed:
    """Land a batch as an ingest query does; a row is invalid if it is divisible by seven."""
    folder, written = landing.begin(home(state)), []
    for rows in files:
        arrived = [b"raw" if a % 7 == 0 else None for a in rows]
        invalid = [a is not None for a in arrived]
        arrays = [pa.array(rows, pa.int32()), pa.array(invalid), pa.array(arrived, pa.binary())]
        batch = pa.RecordBatch.from_arrays(arrays, names=["a", "invalid", "arrived"])
        cuts = [batch.slice(first, 5) for first in range(0, batch.num_rows, 5)]
        for found in landing.file_writer(str(folder), COLUMNS, EVALUATION, OPEN)(iter(cuts)):
            written += [tuple(row.values()) for row in found.to_pylist()]
    landed = landing.Landed(2 * number, offsets(2 * number), tuple(written), {})
    landing.finish(home(state), folder, number, landed)
    return landed


def read(feed: LandedFeed, start: Any, end: Any, parts: int = 3) -> tuple[list[int], int]:
    """Column ``a`` of what lies between two offsets, and how many rows are invalid."""
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
        # Another each time, as after a restart.
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
    # It says how far the source has been read.
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
    with pytest.raises(SourceError, match="is not what it was"):
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
    """The offset and load planned for a feed without a limit."""
    return plan(feed, offset, feed.waiting(offset).rows, load, now)


@pytest.mark.parametrize("format", ["kafka", "orc"])
def test_a_backlog_is_one_load_until_its_source_has_no_more(tmp_path: Path, format: str) -> None:
    record = RECORD.model_copy(update={"source": SourceRecord(format=format, path="/in")})

    def fresh() -> LandedFeed:
        """The feed as after a restart."""
        return replace(landed_feed(record, str(tmp_path)), home=home(tmp_path))

    now = time.time()
    land(tmp_path, 0, range(10))
    offset, load = stands(fresh(), None, Load("s"), now)
    assert (offset, load.is_open, load.is_first) == ([1, 0], True, True)
    land(tmp_path, 1, range(10, 20))
    land(tmp_path, 2, range(20, 30))
    landing.note_caught_up(home(tmp_path), 2)
    land(tmp_path, 3, range(30, 40))
    offset, load = stands(fresh(), offset, load, now)
    assert (offset, load.is_open, load.number) == ([2, 0], False, 0), "the third landed later"
    offset, load = stands(fresh(), offset, load, now)
    assert (offset, load.number) == ([4, 0], 1)
    assert load.is_open == (format == "orc"), "of files only what is quiet has ended"
    landing.note_caught_up(home(tmp_path), 4)
    offset, load = stands(fresh(), offset, load, now)
    assert (offset, load.is_open, load.number) == ([4, 0], False, 1)
    assert stands(fresh(), offset, load, now) == (offset, load)
