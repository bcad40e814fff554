"""Compare gathering rows from many tables with Arrow's own concatenation and take."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.errors import GatherOverflow
from anabranch_runtime.index.gather import gather, gather_words, pick, place_of, places

_TYPES = {
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.integers(0, 1 << 50),
    pa.decimal128(38, 2): st.integers(-(10**30), 10**30).map(lambda v: Decimal(v).scaleb(-2)),
    pa.string(): st.text(max_size=12),
    pa.binary(): st.binary(max_size=12),
    # Types without special kernels.
    pa.large_string(): st.text(max_size=3),
    pa.decimal256(60, 0): st.integers(-(10**50), 10**50).map(Decimal),
    pa.list_(pa.int32()): st.lists(st.integers(0, 9), max_size=3),
    pa.null(): st.none(),
}


@pytest.mark.parametrize("kind", _TYPES, ids=str)
@given(data=st.data())
def test_rows_come_in_the_order_that_is_asked_for(kind: pa.DataType, data: st.DataObject) -> None:
    values = st.lists(st.none() | _TYPES[kind], min_size=1, max_size=20)
    tables = []
    for made in data.draw(st.lists(values, min_size=1, max_size=4)):
        # Slices: a column seldom begins at the start of its buffers.
        whole = pa.array(made, kind)
        tables.append(whole.slice(data.draw(st.integers(0, len(made) - 1))))
    rows = data.draw(
        st.lists(
            st.integers(0, len(tables) - 1).flatmap(
                lambda t: st.tuples(st.just(t), st.integers(0, len(tables[t]) - 1))
            ),
            max_size=30,
        )
    )
    which = np.array([t for t, _ in rows], np.int16)
    wanted = np.array([r for _, r in rows], np.int32)
    found = gather(
        places([place_of(t) for t in tables]), which if len(tables) > 1 else None, wanted
    )
    found.validate(full=True)
    assert found.type == kind
    assert found.to_pylist() == [tables[t][r].as_py() for t, r in rows]


def test_words_are_read_where_they_are() -> None:
    tables = places([place_of(pa.array([5, 6, 7]).slice(1)), place_of(pa.array([1 << 62]))])
    which, rows = np.array([1, 0, 0], np.int16), np.array([0, 1, 0], np.int32)
    assert gather_words(tables, which, rows).tolist() == [1 << 62, 7, 6]


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, np.uint64])
def test_pick_is_indexing(kind: type[Any]) -> None:
    values = np.arange(9).astype(kind)
    picked = pick(values, np.array([8, 0, 8], np.int32))
    assert picked.dtype == values.dtype
    assert picked.tolist() == [8, 0, 8]
    assert pick(values[:0], np.empty(0, np.int32)).tolist() == []


def test_columns_beyond_two_gibibytes_overflow() -> None:
    """This is detected before any value is copied."""
    long = pa.array(["x" * (1 << 16)])
    tables, rows = places([place_of(long)]), np.zeros(1 << 15, np.int32)
    with pytest.raises(GatherOverflow, match="32768 rows are longer than 2 GiB"):
        gather(tables, None, rows)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("Take operation overflowed binary array capacity", GatherOverflow, "longer than 2 GiB"),
        ("bad data", pa.ArrowInvalid, "bad data"),
    ],
)
def test_only_arrow_s_overflow_is_one(
    words: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Column:
        def take(self, _: pa.Array) -> pa.Array:
            raise pa.ArrowInvalid(words)

    tables = places([place_of(pa.array([["x"]]))])
    monkeypatch.setattr(pa, "chunked_array", lambda *_: Column())
    with pytest.raises(error, match=message):
        gather(tables, None, np.zeros(3, np.int32))


@pytest.mark.slow
def test_nested_columns_beyond_two_gibibytes_overflow() -> None:
    tables = places([place_of(pa.array([{"a": "x" * (1 << 28)}]))])
    with pytest.raises(GatherOverflow, match="9 rows are longer than 2 GiB"):
        gather(tables, None, np.zeros(9, np.int32))
