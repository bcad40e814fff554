"""Tests of file directories as sources: each file once, exact offsets, losses reported."""

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
import pyarrow.parquet as pq
import pytest

from anabranch_contract.errors import StreamError
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.files.feed import FileFeed, file_feed
from anabranch_runtime.sources.files.log import FoundFile
from anabranch_runtime.sources.loads import Load
from tests.support.surroundings.policy import OPEN

COLUMNS = (("a", "bigint"), ("b", "string"), ("t", "timestamp"))


def feed(home: Path, **options: str) -> FileFeed:
    """Return a new feed over ``home/in``, as after a restart."""
    (home / "in").mkdir(exist_ok=True)
    record = StreamRecord(
        name="s",
        columns=tuple(ColumnRecord(name=c, type=t) for c, t in COLUMNS),
        source=SourceRecord(format="files", path=str(home / "in"), options=options),
    )
    return file_feed(record, str(home / "state"), OPEN)


def write(home: Path, name: str, first: int, last: int, kind: str = "parquet") -> None:
    """Write a file of rows ``first`` to ``last``, in small row groups or batches."""
    (home / "in").mkdir(exist_ok=True)
    partial, numbers = home / "in" / f".{name}", list(range(first, last))
    if kind == "json":
        lines = [json.dumps({"a": n, "b": "x" * (n % 40), "t": "2024-05-01"}) for n in numbers]
        partial.write_text("\n".join(lines) + "\n" * (first % 2))
    else:
        rows = pa.table({"b": list(map(str, numbers)), "t": [None] * len(numbers), "a": numbers})
        if kind == "arrow":
            with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as out:
                out.write_table(rows, max_chunksize=7)
        else:
            pq.write_table(rows, partial, row_group_size=11)
    partial.rename(home / "in" / name)


def read(feed: FileFeed, start: Any, end: Any, parts: int = 3) -> list[int]:
    """Return column ``a`` of the rows between two offsets."""
    found: list[int] = []
    for piece in feed.pieces(start, end, parts):
        if piece.gone is not None:
            continue
        for rows, invalid in read_piece(pickle.loads(pickle.dumps(piece))):
            assert not invalid
            found += rows.column("a").to_pylist()
    return found


def drain(feed: FileFeed, offset: Any, rows: int) -> tuple[Any, list[list[int]]]:
    """Read at most ``rows`` per batch until nothing waits; return the rows of each batch."""
    batches = []
    while feed.waiting(offset).rows:
        end = feed.advance(offset, rows)
        assert end != offset
        batches.append(read(feed, offset, end))
        offset = end
    return offset, batches


def flat(batches: list[list[int]]) -> list[int]:
    return [a for batch in batches for a in batch]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "json"])
@pytest.mark.parametrize("rows", [1, 13, 100, 10_000])
def test_every_row_is_read_once_whatever_the_size_of_batches(
    tmp_path: Path, kind: str, rows: int
) -> None:
    bounds = [0, 5, 60, 61, 120]
    for number, (first, last) in enumerate(pairwise(bounds)):
        write(tmp_path, f"{number}", first, last, kind)
        os.utime(tmp_path / "in" / f"{number}", ns=(0, 10**9 * number))
    offset, batches = drain(feed(tmp_path, type=kind), None, rows)
    assert flat(batches) == list(range(120))
    if kind != "json":
        assert max(map(len, batches)) <= rows
    # After a restart, with a file older than the files already read.
    write(tmp_path, "late", 120, 125, kind)
    os.utime(tmp_path / "in" / "late", ns=(0, 0))
    assert flat(drain(feed(tmp_path, type=kind), offset, rows)[1]) == list(range(120, 125))


@pytest.mark.parametrize("order", ["modified", "name"])
def test_files_that_are_found_together_are_read_in_a_stated_order(
    tmp_path: Path, order: str
) -> None:
    for number, name in enumerate(["c", "a", "b"]):
        write(tmp_path, name, number, number + 1)
        os.utime(tmp_path / "in" / name, ns=(0, 10**9 * number))
    found = flat(drain(feed(tmp_path, order=order), None, 10)[1])
    assert found == ([0, 1, 2] if order == "modified" else [1, 2, 0])


def test_any_two_offsets_give_what_lies_between_them_again_and_again(tmp_path: Path) -> None:
    chance = random.Random(3)
    source, end = feed(tmp_path, type="json"), 0
    seen: list[tuple[Any, Any, list[int]]] = []
    offset: Any = None
    for number in range(30):
        if number % 3 == 0:
            count = chance.randrange(1, 50)
            write(tmp_path, f"{number:02d}", end, end + count, "json")
            os.utime(tmp_path / "in" / f"{number:02d}", ns=(0, 10**9 * number))
            end += count
            source._next_listing = 0.0
        source.waiting(offset)
        after = source.advance(offset, chance.randrange(1, 20))
        seen.append((offset, after, read(source, offset, after)))
        offset = json.loads(json.dumps(after))
    seen.append((offset, None, flat(drain(source, offset, 1000)[1])))
    assert flat([rows for _, _, rows in seen]) == list(range(end))
    for start, after, rows in seen[:-1]:
        assert read(feed(tmp_path, type="json"), start, after, chance.randrange(1, 9)) == rows


def test_only_whole_files_of_the_pattern_are_read(tmp_path: Path) -> None:
    for name in ("a.parquet", "_b.parquet", "c.tmp", "d.parquet.partial", "e.csv"):
        write(tmp_path, name, 0, 5)
    (tmp_path / "in" / "f.parquet").mkdir()
    source = feed(tmp_path, pattern="*.parquet")
    assert drain(source, None, 100)[1] == [[0, 1, 2, 3, 4]]


def test_a_listing_that_can_be_trusted_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a", 0, 5)
    os.utime(tmp_path / "in", ns=(0, 0))
    source = feed(tmp_path)
    offset, _ = drain(source, None, 100)
    listings: list[object] = []
    real = os.scandir

    def scandir(path: str) -> Any:
        listings.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for _ in range(3):
        source._next_listing = 0.0
        assert not source.waiting(offset).rows
    assert not listings
    write(tmp_path, "b", 5, 9)
    for _ in range(2):
        # It has changed just now: another change may follow within the same tick of the clock.
        source._next_listing = 0.0
        assert source.waiting(offset).rows
    assert len(listings) == 2


@pytest.mark.parametrize("first", [True, False])
def test_a_load_ends_by_what_a_listing_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """A starved process may be suspended for minutes between the listing and the end of
    the load.
    """
    away = 0.0
    real, real_monotonic = time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: real() + away)
    monkeypatch.setattr(time, "monotonic", lambda: real_monotonic() + away)
    load = Load("s", number=0 if first else 3, is_open=True, began=real())
    write(tmp_path, "0.parquet", 0, 10)
    source = feed(tmp_path)
    source.waiting(None)
    away += 500.0
    assert source.load_end(None, load) is None
    write(tmp_path, "1.parquet", 10, 20)
    source.waiting(None)
    assert source.load_end(None, replace(load, began=time.time())) is None
    away += load.quiet(0.0) + 0.1
    assert source.load_end(None, replace(load, began=time.time())) is None
    source.waiting(None)
    assert source.load_end(None, replace(load, began=time.time())) == [2, 0]
    # Files that continue to appear belong to the next load, and those listed before do not.
    write(tmp_path, "2.parquet", 20, 30)
    away += 0.1
    source.waiting(None)
    long_ago = replace(load, began=time.time() - load.longest - 1.0)
    assert source.load_end(None, long_ago) == [3, 0]


def test_pauses_of_a_writer_make_no_loads_of_their_own(tmp_path: Path) -> None:
    source, began = feed(tmp_path), 1e9
    moments = list(accumulate([0.5, 0.9, 1.5, 3.0, 10.0, 0.2, 41.0], initial=began))
    nanos = [round(at * 1e9) for at in moments]
    source._loaded().files += [FoundFile(f"{at}", 1, at, at) for at in nanos]
    load = Load("s", is_open=True, began=began)
    apart = [source.is_apart([number, 0], load) for number in range(1, len(moments))]
    assert apart == [False] * 6 + [True]
    # A folder that was filled for days before is one load.
    backlog = replace(load, began=moments[-1] + 1.0)
    assert not any(source.is_apart([number, 0], backlog) for number in range(1, len(moments)))
    # In later loads a pause of 0.25 s ends the load, unless there were pauses as long.
    later = replace(load, number=1, began=began + 0.5)
    assert [source.is_apart([number, 0], later) for number in (1, 2, 3)] == [False, True, False]


def test_a_log_that_was_cut_off_is_mended(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, 5)
    source = feed(tmp_path)
    offset, _ = drain(source, None, 100)
    with source.log_path.open("a") as log:
        log.write('["b", 7')
    write(tmp_path, "b", 5, 8)
    offset, batches = drain(feed(tmp_path), offset, 100)
    assert batches == [[5, 6, 7]]
    assert drain(feed(tmp_path), None, 100)[1] == [list(range(8))]


def test_a_file_that_goes_unread_is_counted_and_one_that_goes_half_read_is_an_error(
    tmp_path: Path,
) -> None:
    for number in range(3):
        write(tmp_path, f"{number}", 10 * number, 10 * number + 10)
        os.utime(tmp_path / "in" / f"{number}", ns=(0, 10**9 * number))
    source = feed(tmp_path)
    source.waiting(None)
    offset = source.advance(None, 5)
    (tmp_path / "in" / "1").unlink()
    source = feed(tmp_path)
    assert source.waiting(offset).rows
    end = source.advance(offset, 1000)
    expected = [*range(5, 10), *range(20, 30)]
    assert read(source, offset, end) == expected
    gone = [p.source for p in source.pieces(offset, end, 3) if p.gone is not None]
    assert gone == [str(tmp_path / "in" / "1")]
    # The file is restored: the batch has the same rows, and so do later ones.
    write(tmp_path, "1", 10, 20)
    assert read(feed(tmp_path), offset, end) == expected
    (tmp_path / "in" / "2").unlink()
    with pytest.raises(SourceError, match="was removed"):
        read(source, offset, end)
    (tmp_path / "in" / "0").unlink()
    with pytest.raises(SourceError, match="was removed"):
        read(feed(tmp_path), offset, end)


def test_a_file_that_changes_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, 50, "json")
    source = feed(tmp_path, type="json")
    source.waiting(None)
    end = source.advance(None, 10)
    with (tmp_path / "in" / "a").open("a") as file:
        file.write('{"a": 7}\n')
    with pytest.raises(SourceError, match="has changed") as caught:
        read(source, None, end)
    assert "rename" in caught.value.remedy
    with pytest.raises(SourceError, match="has changed"):
        feed(tmp_path, type="json").advance(end, 10)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_files_that_are_something_else_are_errors_with_a_remedy(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("nothing of the kind")
    with pytest.raises(SourceError, match=f"is not a {kind} file") as caught:
        feed(tmp_path, type=kind).waiting(None)
    assert caught.value.remedy
    (tmp_path / "in" / "a").unlink()
    pq.write_table(pa.table({"a": [1], "t": [None]}), tmp_path / "in" / "b")
    if kind == "parquet":
        with pytest.raises(SourceError, match="no column 'b'"):
            feed(tmp_path / "." / "", type=kind, pattern="b").waiting(None)


def test_lines_that_are_no_tuples_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"a": 1}\nnothing\n\n{"a": 2}\n{"a": "x"}')
    source = feed(tmp_path, type="json")
    source.waiting(None)
    end = source.advance(None, 100)
    found = [r for p in source.pieces(None, end, 1) for r in read_piece(p)]
    assert [a for rows, _ in found for a in rows.column("a").to_pylist()] == [1, 2]
    assert sum(invalid.num_rows for _, invalid in found if invalid) == 2


def test_a_directory_that_is_missing_is_waited_for(tmp_path: Path) -> None:
    source = feed(tmp_path)
    (tmp_path / "in").rmdir()
    with pytest.raises(SourceError, match="can't be listed"):
        source.waiting(None)
    write(tmp_path, "a", 0, 3)
    assert drain(source, None, 100)[1] == [[0, 1, 2]]


def test_options_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="give one of parquet, arrow, json, csv"):
        feed(tmp_path, type="xml")
    with pytest.raises(StreamError, match="type, pattern, order, on_bad_file, on_changed_file"):
        feed(tmp_path, glob="*")
    with pytest.raises(StreamError, match="path of a directory"):
        file_feed(
            StreamRecord(name="s", columns=(), source=SourceRecord(format="files")), "x", OPEN
        )
