"""Tests that a source test accepts the same values as the runtime, which decodes whole columns."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_contract.queries.types import parse_type
from anabranch_runtime.sources.decode import from_json, schema_of, typed
from anabranch_service.streaming.samples.fit import Form, fit
from anabranch_service.streaming.samples.sample import scalars

TYPES = (
    *("tinyint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(38,10)"),
    *("string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"),
)
JSON: tuple[Any, ...] = (
    *(0, -1, 127, 128, 2**31, 2**63 - 1, 2**63, 1.5, 1e300, True, False, None),
    *("", "x", "12", "999.99", "1000", "yes", "aGk=", "a", "2026-01-02", "2026-1-2"),
    *("2026-01-02 03:04:05", "2026-01-02T03:04:05.123Z", "2026-13-01", "2026-02-30 00:00:00"),
    *([1], {"a": 1}, {}, {"a": None}, {"a": {"b": "2026-01-02"}}, {"a": {"b": "x"}}),
)
TEXTS = (
    *("0", "-7", "128", " 12 ", "1.5", "1e3", "x", "", "true", "FALSE", "maybe", "999.99", "1000"),
    *("2026-01-02", "2026-01-02 03:04:05", "2026-01-02T03:04:05Z", "2026-13-01"),
)


def fits(value: Any, kind: str, form: Form) -> bool:
    return not fit([{"c": value}], [("c", parse_type(kind))], None, form).invalid


def runtime_takes(value: Any, kind: str, *, text: bool) -> bool:
    parts = from_json(json.dumps({"c": value}).encode(), [("c", kind)], text=text)
    return all(invalid is None for _, invalid in parts)


@pytest.mark.parametrize(
    "kind", [*TYPES, "variant", "map<string,bigint>", "map<string,map<string,date>>"]
)
def test_values_of_json(kind: str) -> None:
    # Arrow's JSON parser accepts decimals with more digits than their type.
    values = [v for v in JSON if (v, kind) != ("1000", "decimal(5,2)")]
    other = [v for v in values if fits(v, kind, Form.JSON) != runtime_takes(v, kind, text=False)]
    assert other == []


@pytest.mark.parametrize("kind", TYPES)
def test_values_of_text(kind: str) -> None:
    other = [v for v in TEXTS if fits(v, kind, Form.TEXT) != runtime_takes(v, kind, text=True)]
    assert other == []


@pytest.mark.parametrize("kind", TYPES)
def test_values_of_files(kind: str) -> None:
    # Arrow has no cast of 64-bit integers to so short a decimal, whatever the values.
    columns: list[pa.Array] = [
        *([] if kind == "decimal(5,2)" else [pa.array([1, 128, 2**40])]),
        pa.array([1.0, 1.5, 1e300]),
        pa.array(["1", "x", "2026-01-02"]),
        pa.array([True]),
        pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        pa.array([b"\xff", b"a"]),
        pa.array([[1]]),
    ]
    for column in columns:
        batch = pa.RecordBatch.from_arrays([column], names=["c"])
        _, invalid = typed(batch, schema_of([("c", kind)]))
        expected = 0 if invalid is None else invalid.num_rows
        rows = list(scalars(batch, ["c"]))
        found = fit(rows, [("c", parse_type(kind))], None, Form.TYPED)
        assert len(found.invalid) == expected, column


def test_what_is_shown_is_short_and_json() -> None:
    file = io.BytesIO()
    table = pa.table({"c": ["x" * 10_000], "d": [float("nan")], "e": [b"\x00" * 1000]})
    pq.write_table(table, file)
    rows = list(scalars(table.to_batches()[0], ["c", "d", "e"]))
    kinds = [(n, parse_type(t)) for n, t in (("c", "string"), ("d", "double"), ("e", "binary"))]
    assert len(json.dumps(fit(rows, kinds, None, Form.TYPED).rows, allow_nan=False)) < 500
