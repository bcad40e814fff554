"""Tests of result rows as JSON: every type, NULLs, and escaping."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.sinks.rows import json_rows


def texts(**columns: pa.Array) -> list[str]:
    return list(json_rows(pa.record_batch(columns)).to_pylist())


def test_every_type_and_null() -> None:
    aware = datetime(1969, 12, 31, 23, 59, 59, 4, tzinfo=UTC)
    one = {
        "i": pa.array([2**62, None], pa.int64()),
        "t": pa.array([-1, None], pa.int8()),
        "f": pa.array([0.1, None]),
        "n": pa.array([float("nan"), float("-inf")]),
        "d": pa.array([Decimal("-1.50"), None], pa.decimal128(38, 2)),
        "b": pa.array([True, None]),
        "s": pa.array(["x", None]),
        "y": pa.array(["x", None]).dictionary_encode(),
        "day": pa.array([date(1, 1, 1), None]),
        "ts": pa.array([aware, None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([aware.replace(tzinfo=None), None], pa.timestamp("us")),
        "raw": pa.array([b"\0a", None], pa.binary()),
        "gap": pa.array([timedelta(seconds=1), None], pa.duration("us")),
        "no": pa.array([None, None], pa.null()),
    }
    first, second = map(json.loads, texts(**one))
    assert first == {
        "i": 2**62,
        "t": -1,
        "f": 0.1,
        "n": "NaN",
        "d": "-1.50",
        "b": True,
        "s": "x",
        "y": "x",
        "day": "0001-01-01",
        "ts": "1969-12-31T23:59:59.000004Z",
        "ntz": "1969-12-31T23:59:59.000004",
        "raw": "AGE=",
        "gap": "INTERVAL '0 00:00:01' DAY TO SECOND",
        "no": None,
    }
    assert second == {**dict.fromkeys(one), "n": "-Infinity"}


@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False, allow_infinity=False))))
def test_text_and_numbers_come_back(rows: list[tuple[str, float]]) -> None:
    found = texts(
        **{'k"\n': pa.array([s for s, _ in rows], pa.string())},
        x=pa.array([x for _, x in rows], pa.float64()),
    )
    assert [tuple(json.loads(text).values()) for text in found] == rows
    assert not any("\n" in text for text in found)


def test_different_rows_have_different_text() -> None:
    floats = pa.array([0.0, -0.0, 1.0, 1e16, 1e-7])
    assert len(set(texts(x=floats))) == 5
    assert texts() == []
