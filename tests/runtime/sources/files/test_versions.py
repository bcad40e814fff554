"""Tests of the feed of a query's versions (result files): order, offsets, concurrent listings,
missing files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import IDENTITY
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sinks.parquet import write_version
from anabranch_runtime.sources.blocks import read_pieces
from anabranch_runtime.sources.feed import Piece, PieceError
from anabranch_runtime.sources.files import versions
from anabranch_runtime.sources.files.versions import VersionFeed, identities, version_feed

COLUMNS = (("n", "bigint"), (IDENTITY, "binary"), ("anabranch_change", "string"))


def _feed(results: Path) -> VersionFeed:
    record = StreamRecord(
        name="q",
        columns=tuple(ColumnRecord(name=name, type=kind) for name, kind in COLUMNS),
        source=SourceRecord(format="query", options={"run": "q~2", "identity": '["k"]'}),
        registration="r",
    )
    return version_feed(record, str(results))


def _write(results: Path, version: int, rows: int = 1) -> Path:
    path = results / "q~2" / f"version-{version:010d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "k": [None if n % 3 == 0 else n for n in range(rows)],
        "n": [version * 1000 + n for n in range(rows)],
        "anabranch_change": ["upsert"] * rows,
        "anabranch_version": [version] * rows,
    }
    earlier = [pq.read_metadata(p).num_rows for p in path.parent.glob("*.parquet") if p < path]
    write_version(pa.table(columns), path, sum(earlier) + rows)
    return path


def _read(feed: VersionFeed, start: Any, end: Any, parts: int = 2) -> list[dict[str, Any]]:
    pieces = feed.pieces(start, end, parts)
    numbered = [
        Piece(**{**{n: getattr(p, n) for n in p.__slots__}, "number": i})
        for i, p in enumerate(pieces)
    ]
    blocks = list(read_pieces(numbered))
    places = [block.position for block in blocks]
    assert places == sorted(places)
    return [row for block in blocks for row in block.rows.to_pylist()]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_REST", 0.0)
    monkeypatch.setattr(versions, "_REST_FACTOR", 0.0)


def test_whole_versions_are_read_in_order(tmp_path: Path) -> None:
    feed = _feed(tmp_path)
    assert feed.waiting(None).rows == 0
    for version in (0, 9, 10, 100):
        _write(tmp_path, version, 4)
    (tmp_path / "q~2" / "version-0000000101.new").write_bytes(b"half")
    assert feed.waiting(None).rows == 16
    # A version is not divided between batches, however small a batch's limit.
    assert feed.advance(None, 1) == [0, 4]
    assert feed.advance([0, 4], 5) == [10, 12]
    assert [row["n"] // 1000 for row in _read(feed, [0, 4], [10, 12])] == [9] * 4 + [10] * 4
    assert feed.waiting([100, 16]).rows == 0
    again = _feed(tmp_path)
    assert _read(again, [0, 4], [10, 12]) == _read(feed, [0, 4], [10, 12])


def test_a_large_version_is_read_in_pieces_of_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_PIECE_ROWS", 10)
    feed = _feed(tmp_path)
    _write(tmp_path, 3, 35)
    feed.waiting(None)
    assert feed.advance(None, 5) == [3, 35]
    pieces = feed.pieces(None, [3, 35], 4)
    assert [(p.first, p.last, p.before) for p in pieces] == [
        (0, 10, [-1, 0]),
        (10, 20, [-1, 0]),
        (20, 30, [-1, 0]),
        (30, 35, [-1, 0]),
    ]
    assert [row["n"] for row in _read(feed, None, [3, 35], 4)] == list(range(3000, 3035))


def test_a_version_found_before_an_earlier_one_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = _feed(tmp_path)
    _write(tmp_path, 1)
    _write(tmp_path, 3)
    listings = [[3], [1, 3, 4]]
    monkeypatch.setattr(VersionFeed, "_versions", lambda _: listings.pop(0))
    assert feed.waiting(None).rows == 2
    assert feed.advance(None, 100) == [3, 2]


def test_a_version_that_goes_missing_is_an_error(tmp_path: Path) -> None:
    feed = _feed(tmp_path)
    paths = [_write(tmp_path, version) for version in (1, 2, 3)]
    feed.waiting(None)
    paths[1].unlink()
    again = _feed(tmp_path)
    failed = list[tuple[Piece, PieceError]]()
    with pytest.raises(SourceError, match="lacks a version before 3"):
        again.waiting([1, 1])
    assert again.advance([1, 1], 9) == [1, 1]
    blocks = read_pieces(again.pieces([1, 1], [3, 3], 2), lambda p, why: failed.append((p, why)))
    assert list(blocks) == []
    assert [(why.code, piece.before) for piece, why in failed] == [("unreadable-version", [1, 1])]
    assert again.before([3, 3], [piece for piece, _ in failed]) == [1, 1]
    paths[2].write_bytes(b"damaged")
    with pytest.raises(SourceError, match="put the file back"):
        _feed(tmp_path).pieces([1, 1], [3, 2], 2) and _read(_feed(tmp_path), [1, 1], [3, 2])


def test_a_version_that_is_removed_before_it_is_planned_stops_the_feed(tmp_path: Path) -> None:
    feed = _feed(tmp_path)
    path = _write(tmp_path, 1)
    assert feed.waiting(None).rows == 1
    path.unlink()
    os.utime(path.parent, ns=(0, 0))
    feed._listed, feed._sizes = 0, {1: (1, 1)}
    with pytest.raises(SourceError, match="put the file back") as caught:
        feed.waiting(None)
    assert caught.value.code == "unreadable-version"
    assert feed.on_loss == "stop"


def test_identities_differ_where_values_do() -> None:
    rows = pa.record_batch(
        {
            "f": pa.array([0.0, -0.0, float("nan"), None, 1.5]),
            "t": pa.array([0, 0, 1, None, 1], pa.timestamp("us", "UTC")),
            "b": pa.array([b"\xff", b"\xff", b"", None, b"~"]),
            "d": pa.array([1, 1, None, None, 2], pa.date32()),
        }
    )
    found = identities(rows, rows.schema.names).to_pylist()
    assert found[0] == found[1]
    assert len(set(found)) == 4
    pairs = pa.record_batch({"x": ["a:1", "a"], "y": ["", "1:"]})
    assert len(set(identities(pairs, ["x", "y"]).to_pylist())) == 2
