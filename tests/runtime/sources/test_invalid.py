"""Tests that one bad value rejects one row, whatever is read with it and however a source is
divided.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.sinks.late import aside
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.decode import from_arrow, from_json, schema_of, typed
from anabranch_runtime.sources.feed import Feed
from anabranch_runtime.sources.files.feed import file_feed
from anabranch_runtime.sources.invalid import ARRIVED, LENGTH, Decoded, convert_values, raw_text
from anabranch_runtime.sources.redis_stream import redis_feed
from tests.support.surroundings.arrow_ipc import ipc_stream
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.sources import understood

COLUMNS = (("a", "int"), ("b", "string"), ("t", "timestamp"))
DAY = datetime(2026, 5, 1, tzinfo=UTC)
KEY = Keys("test").stream("s")


def record(format: str, path: Path | None = None, **options: str) -> StreamRecord:
    return understood(
        StreamRecord(
            name="s",
            columns=tuple(ColumnRecord(name=c, type=t) for c, t in COLUMNS),
            source=SourceRecord(format=format, path=path and str(path), options=options),
        )
    )


def read(feed: Feed, parts: int) -> tuple[list[int], list[dict[str, Any]]]:
    """Return column ``a`` of the valid rows, and the recorded rejected rows."""
    feed.waiting(None)
    end = feed.advance(None, 1 << 30)
    return told(d for piece in feed.pieces(None, end, parts) for d in read_piece(piece))


def told(decoded: Iterator[Decoded]) -> tuple[list[int], list[dict[str, Any]]]:
    rows: list[int] = []
    kept: list[dict[str, Any]] = []
    for valid, invalid in decoded:
        assert valid.schema == schema_of(COLUMNS)
        rows += valid.column("a").to_pylist()
        if invalid is not None:
            kept += aside(invalid, "invalid", 0, None).to_pylist()
    return rows, kept


def write(path: Path, kind: str, numbers: list[Any]) -> None:
    """Write a file of rows whose column ``a`` has ``numbers``."""
    path.parent.mkdir()
    if kind == "json":
        lines = [json.dumps({"a": n, "b": "x", "t": DAY.isoformat()}) for n in numbers]
        path.write_text("\n".join(lines))
        return
    rows = pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "b": ["x"] * len(numbers),
            "t": pa.array([DAY] * len(numbers), pa.timestamp("ns", "UTC")),
        }
    )
    if kind == "arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as out:
            out.write_table(rows)
    else:
        pq.write_table(rows, path)


@pytest.mark.parametrize("parts", [1, 3, 16])
@pytest.mark.parametrize("kind", ["parquet", "arrow", "json"])
def test_a_number_out_of_range_in_a_file_is_one_row(kind: str, parts: int, tmp_path: Path) -> None:
    numbers = list(range(20_000))
    bad = [7, 9_999, 10_000, 19_999]
    for place in bad:
        numbers[place] += 1 << 40
    write(tmp_path / "in" / "f", kind, numbers)
    rows, kept = read(
        file_feed(record("files", tmp_path / "in", type=kind), str(tmp_path), OPEN), parts
    )
    assert rows == [n for n in numbers if n < 1 << 40]
    assert [json.loads(row["_raw"])["a"] for row in kept] == [numbers[place] for place in bad]
    assert {row["a"] for row in kept} == {None}
    # Nothing is known of a line that can't be parsed; of a row, the values that fit.
    assert {(row["b"], row["t"]) for row in kept} == (
        {(None, None)} if kind == "json" else {("x", DAY)}
    )


@pytest.fixture
def server(url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(url)
    yield client
    client.close()


def push(server: redis.Redis, payload: str, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        if payload == "fields":
            server.xadd(KEY, dict(entry.items()))
        elif payload == "json":
            server.xadd(KEY, {"data": json.dumps(entry)})
        else:
            rows = pa.RecordBatch.from_pylist([entry, {**entry, "a": 1}])
            server.xadd(KEY, {"arrow": ipc_stream(rows), "rows": 2})


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("payload", ["json", "fields", "arrow"])
def test_a_bad_value_in_a_redis_stream_is_one_row(
    payload: str, parts: int, server: redis.Redis, url: str
) -> None:
    entries = [{"a": n, "b": f"b{n}", "t": DAY.isoformat()} for n in range(600)]
    entries[70]["a"] = 1 << 40
    entries[71]["t"] = "yesterday"
    push(server, payload, entries)
    rows, kept = read(redis_feed(record("redis-stream", payload=payload), url, KEY), parts)
    expected = [n for n in range(600) if n not in (70, 71)]
    if payload == "arrow":
        # One row of each entry is valid, but in entry 71 both have the bad time.
        assert sorted(rows) == sorted([*expected, *[1] * 599])
        kept = kept[:1] + kept[2:]
    else:
        assert rows == expected
    assert [json.loads(row["_raw"])["b"] for row in kept] == ["b70", "b71"]
    assert [row["a"] for row in kept] == [None, 1 if payload == "arrow" else 71]
    assert kept[1]["t"] is None


def test_entries_that_can_not_be_read_are_a_row_each(server: redis.Redis, url: str) -> None:
    server.xadd(KEY, {"other": "x", "raw": b"\xff"})
    server.xadd(KEY, {"arrow": b"no stream"})
    lacking = pa.RecordBatch.from_pydict({"a": [1, 2], "t": [DAY, DAY]})
    server.xadd(KEY, {"arrow": ipc_stream(lacking), "rows": 2})
    rows, kept = read(redis_feed(record("redis-stream", payload="arrow"), url, KEY), 1)
    assert rows == []
    assert kept[0]["_raw"].startswith("base64:")
    assert kept[1]["_raw"] == "no stream"
    assert [(row["a"], row["b"], row["t"]) for row in kept[2:]] == [(1, None, DAY), (2, None, DAY)]
    assert json.loads(kept[2]["_raw"])["a"] == 1


def test_damaged_offsets_of_an_arrow_entry_do_not_reach_whoever_reads_them() -> None:
    stream = bytearray(ipc_stream(pa.RecordBatch.from_pydict({"b": ["one", "two", "three"]})))
    place = stream.index(bytes([0, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0]))
    stream[place + 7] = 0x7F
    rows, kept = told(from_arrow(bytes(stream), COLUMNS))
    assert rows == []
    assert len(kept) == 1


#: Lines that are invalid alone, and might look valid when joined.
BAD = [
    "null",
    "[1]",
    '{"a": 1,',
    '"b": "x"}',
    '{"a": 1} {"a": 2}',
    '{"a": 1.5}',
    '{"a": "1"}',
    '{"a": true}',
    '{"a": 3000000000}',
    '{"a": 1, "a": 2}',
    '{"b": 1}',
    '{"b": "\\ud800"}',
    '{"t": "yesterday"}',
    '{"t": 1}',
    "{",
    "7",
]


def test_a_line_is_judged_by_itself() -> None:
    good = [json.dumps({"a": n, "t": DAY.isoformat()}) for n in range(400)]
    rng = np.random.default_rng(17)
    for _ in range(20):
        chosen = [*rng.permutation(BAD), "good", *rng.choice(BAD, int(rng.integers(0, 200)))]
        lines = [*good[:300], *chosen, *good[300:]]
        order = rng.permutation(len(lines))
        shuffled = [lines[i] if lines[i] != "good" else good[0] for i in order]
        cuts = np.sort(rng.integers(0, len(lines), int(rng.integers(0, 9)))).tolist()
        rows: list[int] = []
        kept: list[dict[str, Any]] = []
        for low, high in zip([0, *cuts], [*cuts, len(lines)], strict=True):
            text = "\n".join(shuffled[low:high]).encode()
            some, others = told(from_json(text, COLUMNS))
            rows, kept = rows + some, kept + others
        assert sorted(rows) == sorted([0, *range(400)])
        assert sorted(row["_raw"] for row in kept) == sorted(c for c in chosen if c != "good")


def test_lines_of_other_bytes_and_ends() -> None:
    lines = b'\xef\xbb\xbf{"a": 1}\r\n \t\n{"b": "\xff"}\r\n  {"a": 2} \n{"a": 3}'
    rows, kept = told(from_json(lines, COLUMNS))
    assert rows == [1, 2, 3]
    assert [row["_raw"] for row in kept] == ["base64:eyJiIjogIv8ifQ0="]


def test_one_of_every_value_that_does_not_fit() -> None:
    """Values that can be converted and values that can't, alone and among others."""
    far = pa.array([1 << 60, 5], pa.timestamp("s", "UTC"))
    for given, wanted, fits in [
        (pa.array([1.5, 2.0]), pa.int32(), [False, True]),
        (pa.array(["x", "1"]), pa.int32(), [False, True]),
        (pa.array([Decimal("1.234"), Decimal("1.500")]), pa.decimal128(4, 1), [False, True]),
        (far, pa.timestamp("us", "UTC"), [False, True]),
        (pa.array([-1, 1]), pa.uint8(), [False, True]),
        (pa.array([[1 << 40], [1]]), pa.list_(pa.int32()), [False, True]),
        (pa.array([{"x": 1}, {"x": 2}]), pa.int32(), [False, False]),
        (pa.array([1, 1001], pa.timestamp("ns")), pa.timestamp("us"), [True, True]),
    ]:
        schema = pa.schema([("c", wanted)])
        rows, invalid = typed(pa.record_batch({"c": given}), schema)
        assert rows.num_rows == sum(fits)
        count = 0 if invalid is None else invalid.num_rows
        assert count == len(fits) - sum(fits), given
        if invalid is not None:
            assert invalid.column("c").null_count == count
            assert raw_text(invalid.column(ARRIVED)).null_count == 0


def test_the_text_of_a_row_is_bounded_and_survives_what_python_has_not() -> None:
    arrived = pa.StructArray.from_arrays(
        [
            pa.array(["x" * 2 * LENGTH]),
            pa.array([1 << 59], pa.timestamp("us")),
            pa.array([b"\xff\x00"]),
            pa.array([[1 << 59]], pa.list_(pa.timestamp("us"))),
            pa.array([1], pa.timestamp("ns")),
            pa.array([b"\xff"]).view(pa.string()),
        ],
        names=["long", "far", "bytes", "nested", "nanos", "text"],
    )
    (text,) = raw_text(arrived).to_pylist()
    assert len(text) == LENGTH
    (text,) = raw_text(pa.StructArray.from_arrays(arrived.flatten()[1:], names=list("fbnst")))
    row = json.loads(text.as_py())
    assert (row["b"], row["t"]) == ("/wA=", "/w==")


def test_conversions_grow_with_the_bad_values_and_not_with_the_rows() -> None:
    calls = 0

    def convert(column: pa.Array) -> pa.Array:
        nonlocal calls
        calls += 1
        return column.cast(pa.int32())

    values = np.arange(1 << 20)
    clean, bad = convert_values(pa.array(values), pa.int32(), convert)
    assert (calls, bad, len(clean)) == (1, None, 1 << 20)
    values[[3, 500_000, 1_000_000]] = 1 << 40
    found, bad = convert_values(pa.array(values), pa.int32(), convert)
    assert bad is not None
    assert np.flatnonzero(bad).tolist() == [3, 500_000, 1_000_000]
    assert found.null_count == 3
    assert calls < 3 * 2 * 20 + 40


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("value", ['"x"', "3000000000", '1, "t": "yesterday"', "1, a"])
def test_rows_that_are_all_bad_take_a_bounded_time(value: str, rows: int) -> None:
    lines = b"\n".join(b'{"b": "%d", "a": %s}' % (n, value.encode()) for n in range(rows))
    started = time.process_time()
    valid = sum(d[0].num_rows for d in from_json(lines, COLUMNS))
    assert valid == 0
    # On an idle machine about 10 us per row; parsing line by line takes 400.
    assert time.process_time() - started < 5 + rows * 60e-6
