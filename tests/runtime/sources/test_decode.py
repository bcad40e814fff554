"""Tests of decoding: decimals with too many digits make their row invalid, and no other."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch_runtime.sources.decode import from_arrow, from_json, schema_of, typed

COLUMNS = [("d", "decimal(5,2)"), ("k", "bigint")]


def decoded(lines: list[str]) -> tuple[list[object], list[bytes]]:
    """Return the valid values, and the rejected lines, in any order."""
    good: list[object] = []
    bad: list[bytes] = []
    for rows, aside in from_json("\n".join(lines).encode(), COLUMNS):
        good += rows.column("d").to_pylist()
        bad += [] if aside is None else aside.column("#arrived").to_pylist()
    return good, sorted(bad)


def test_lines_with_too_many_digits_are_invalid() -> None:
    fits = ['{"d": 999.99, "k": 1}', '{"d": -0.01, "k": 2}', '{"d": 7, "k": 3}', '{"k": 4}']
    too_long = ['{"d": -1000, "k": 6}', '{"d": 1000.50, "k": 5}']
    good, bad = decoded([*fits[:2], *too_long, *fits[2:]])
    assert sorted(good, key=str) == sorted(
        [Decimal("999.99"), Decimal("-0.01"), Decimal("7.00"), None], key=str
    )
    assert bad == [line.encode() for line in too_long]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int64(), pa.uint64()])
def test_integers_become_decimals_where_they_fit(kind: pa.DataType) -> None:
    values = [0, 99, None] if kind == pa.int8() else [0, 999, None, 1000, 32_000]
    numbers = pa.array(values, kind)
    batch = pa.RecordBatch.from_arrays([numbers, pa.array(range(len(values)))], names=["d", "k"])
    rows, aside = typed(batch, schema_of(COLUMNS))
    fits = [v for v in values if v is None or v < 1000]
    assert rows.column("d").to_pylist() == [None if v is None else Decimal(v) for v in fits]
    gone = [] if aside is None else aside.column("k").to_pylist()
    assert gone == [at for at, v in enumerate(values) if v is not None and v >= 1000]


def test_an_added_column_is_null_where_an_arrow_stream_lacks_it() -> None:
    batch = pa.record_batch({"a": [1, 2]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream, columns = sink.getvalue().to_pybytes(), (("a", "bigint"), ("added", "string"))
    ((rows, invalid),) = from_arrow(stream, columns, frozenset({"added"}))
    assert (rows.to_pydict(), invalid) == ({"a": [1, 2], "added": [None, None]}, None)
    ((rows, invalid),) = from_arrow(stream, columns)
    assert rows.num_rows == 0
    assert invalid is not None
    assert invalid.num_rows == 2
