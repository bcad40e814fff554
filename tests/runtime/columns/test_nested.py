"""Tests of nested values: exact texts restore the values, JSON has arrays and objects."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.types import DataType, TypeKind, array_of, parse_type, struct_of
from anabranch_runtime.columns.arrow_types import arrow_type, spark_type
from anabranch_runtime.columns.nested import elements, exact_text, exact_value
from anabranch_runtime.sinks.rows import json_rows
from anabranch_runtime.sources.decode import from_json, schema_of, typed
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout

_SIMPLE = ["int", "bigint", "float", "double", "decimal(20,3)", "string", "boolean", "date",
           "timestamp", "timestamp_ntz", "binary", "smallint", "tinyint"]  # fmt: skip
_FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, 0.1, -3e30]


def _kind(rng: Random, depth: int = 0) -> DataType:
    form = rng.random()
    if depth == 3 or (depth and form < 0.4):
        return parse_type(rng.choice(_SIMPLE))
    if form < 0.65:
        return array_of(_kind(rng, depth + 1))
    if form < 0.85:
        names = rng.sample(["a", "b", 'x "y"', "é", "k.1"], rng.randint(1, 3))
        return struct_of((name, _kind(rng, depth + 1)) for name in names)
    key = parse_type(rng.choice(["string", "int", "date"]))
    return DataType(TypeKind.MAP, fields=(("key", key), ("value", _kind(rng, depth + 1))))


def _value(rng: Random, kind: DataType) -> Any:
    if rng.random() < 0.15:
        return None
    if kind.kind is TypeKind.ARRAY:
        return [_value(rng, kind.element) for _ in range(rng.choice([0, 1, 2, 5]))]
    if kind.kind is TypeKind.STRUCT:
        return {name: _value(rng, of) for name, of in kind.fields}
    if kind.kind is TypeKind.MAP:
        keys = [_value(rng, kind.fields[0][1]) for _ in range(rng.randrange(4))]
        return [(key, _value(rng, kind.element)) for key in keys if key is not None]
    if kind in ("float", "double"):
        value = rng.choice(_FLOATS)
        return struct.unpack("f", struct.pack("f", value))[0] if kind == "float" else value
    moment = datetime(2024, 1, 31, 23, 59, tzinfo=UTC) + timedelta(
        microseconds=rng.randrange(10**9)
    )
    made: dict[str, Any] = {
        "string": rng.choice(["", "a", 'say "no"', "a\\b\n\x01", "é😀", "null"]),
        "boolean": rng.random() < 0.5,
        "date": date(rng.randint(1, 9999), 2, 3),
        "timestamp": moment,
        "timestamp_ntz": moment.replace(tzinfo=None),
        "binary": bytes([rng.randrange(256), 0]),
        "decimal(20,3)": Decimal(rng.randrange(-(10**19), 10**19)).scaleb(-3),
    }
    return made.get(kind, rng.randrange(-100, 100))


def _column(rng: Random, kind: DataType) -> pa.Array:
    made = pa.array([_value(rng, kind) for _ in range(60)], arrow_type(kind))
    return made.slice(7, 50)


@pytest.mark.parametrize("seed", range(40))
def test_exact_texts_make_the_values_again(seed: int) -> None:
    rng = Random(seed)
    kind = _kind(rng)
    column = _column(rng, kind)
    texts = exact_text(column)
    again = exact_value(texts, kind)
    again.validate(full=True)
    assert again.type == column.type
    assert repr(again.to_pylist()) == repr(column.to_pylist())
    assert texts.is_null().to_pylist() == column.is_null().to_pylist()
    assert parse_type(str(kind)) == kind == spark_type(column.type)


@pytest.mark.parametrize("seed", range(10))
def test_tables_keep_nested_values(seed: int) -> None:
    rng = Random(seed)
    kinds = [_kind(rng), parse_type("int"), _kind(rng)]
    columns = [_column(rng, kind) for kind in kinds]
    layout = TupleLayout([TupleField(kind, exact=True) for kind in kinds], Texts())
    found = layout.decode(layout.encode(columns))
    assert repr([c.to_pylist() for c in found]) == repr([c.to_pylist() for c in columns])


def test_limits_begin_at_0_and_nulls_have_no_elements() -> None:
    values = pa.array([1, 2, 3, 4], pa.int32())
    mask = pa.array([False, True, False])
    column = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), values, mask=mask)
    limits, inner = elements(column.slice(1))
    assert (limits.tolist(), inner.to_pylist()) == ([0, 0, 1], [4])
    assert limits.dtype == np.int64


def test_json_has_arrays_and_objects() -> None:
    kind = parse_type("struct<a:array<double>,m:map<int,string>,s:struct<t:timestamp>>")
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    value = {"a": [1.5, None, math.nan], "m": [(1, 'x"'), (2, None)], "s": {"t": moment}}
    rows = pa.record_batch({"v": pa.array([value, None], arrow_type(kind))})
    first, second = map(json.loads, json_rows(rows).to_pylist())
    assert first["v"] == {
        "a": [1.5, None, "NaN"],
        "m": {"1": 'x"', "2": None},
        "s": {"t": "2026-01-02T00:00:00.000000Z"},
    }
    assert second == {"v": None}


def test_nested_values_of_json_lines() -> None:
    columns = [("k", "int"), ("s", "struct<d:date,l:array<struct<n:int,t:timestamp>>,b:binary>")]
    lines = [
        '{"k": 1, "s": {"d": "2026-01-31", "l": [{"n": 1, "t": "2026-01-01T00:00:00Z"}, null]}}',
        '{"k": 2, "s": {"b": "AAE=", "more": 1}}',
        '{"k": 3, "s": {"d": "no date"}}',
        '{"k": 4, "s": [1]}',
        '{"k": 5, "s": {"l": [{"n": "x"}]}}',
        '{"k": 6, "s": null}',
        '{"k": 7}',
    ]
    good: list[Any] = []
    bad: list[bytes] = []
    for rows, aside in from_json("\n".join(lines).encode(), columns):
        good += rows.to_pylist()
        bad += [] if aside is None else aside.column("#arrived").to_pylist()
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert sorted(good, key=lambda row: row["k"]) == [
        {"k": 1, "s": {"d": date(2026, 1, 31), "l": [{"n": 1, "t": moment}, None], "b": None}},
        {"k": 2, "s": {"d": None, "l": None, "b": b"\0\1"}},
        {"k": 6, "s": None},
        {"k": 7, "s": None},
    ]
    assert sorted(bad) == [line.encode() for line in lines[2:5]]


@pytest.mark.parametrize("unit", ["ns", "ms"])
def test_times_in_nested_values_of_files_are_cut_to_microseconds(unit: str) -> None:
    given = pa.array([[1, None], [2_000_000_001]], pa.list_(pa.timestamp(unit, "UTC")))
    columns = [("l", "array<timestamp>")]
    rows, aside = typed(pa.record_batch({"l": given}), schema_of(columns))
    assert aside is None
    micros = {"ns": [0, None, 2_000_000], "ms": [1000, None, 2_000_000_001_000]}[unit]
    assert rows.column("l").flatten().cast(pa.int64()).to_pylist() == micros
