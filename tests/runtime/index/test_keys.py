"""Tests of key vectors against Python's values: keys are equal exactly if the values are."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.errors import KeyTypeError
from anabranch_runtime.index.keys import key_vector, mix, partition_of, values_equal

_WIDE = Context(prec=80)
_INTS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]
_TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
_BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _scaled(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, _WIDE)


@st.composite
def _sliced(draw: st.DrawFn, values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
    items = draw(st.lists(st.none() | values, max_size=12))
    column = pa.array(items, kind)
    start = draw(st.integers(0, len(items)))
    return column.slice(start, draw(st.integers(0, len(items) - start)))


def _int_values(kind: pa.DataType) -> st.SearchStrategy[int]:
    bits = kind.bit_width
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(kind) else (
        0, (1 << bits) - 1)  # fmt: skip
    return st.integers(max(least, -3), min(most, 3)) | st.integers(least, most)


_INT_COLUMNS = st.sampled_from(_INTS).flatmap(lambda k: _sliced(_int_values(k), k))


@st.composite
def _decimal_column(draw: st.DrawFn) -> pa.Array:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    top = 10**precision - 1
    units = 10**scale
    whole = st.integers(-3, 3).map(lambda v: v * units).filter(lambda v: abs(v) <= top)
    unscaled = whole | st.integers(-top, top)
    return draw(_sliced(unscaled.map(lambda v: _scaled(v, scale)), pa.decimal128(precision, scale)))


_FLOATS = st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5, math.inf]) | st.floats(width=32)
_FLOAT_COLUMNS = st.sampled_from([pa.float32(), pa.float64()]).flatmap(
    lambda k: _sliced(_FLOATS, k)
)
_WORDS = st.text("ab\u00e9\u65e5\U0001f600\0", max_size=40) | st.text(max_size=10)
_TEXT_COLUMNS = st.sampled_from(_TEXTS).flatmap(lambda k: _sliced(_WORDS, k))
_BYTES = st.binary(max_size=40) | st.binary(min_size=60, max_size=200)
_BINARY_COLUMNS = st.sampled_from(_BINARIES).flatmap(lambda k: _sliced(_BYTES, k))
_SECONDS = st.integers(-5, 5) | st.integers(-(10**9), 10**9)
_TIME_COLUMNS = st.sampled_from(
    [pa.timestamp(u, z) for u in ("s", "ms", "us", "ns") for z in (None, "UTC")]
).flatmap(lambda k: _sliced(_SECONDS.map(lambda s: _EPOCH + timedelta(seconds=s)), k))
_DATE_COLUMNS = st.sampled_from([pa.date32(), pa.date64()]).flatmap(
    lambda k: _sliced(st.dates(date(1960, 1, 1), date(1980, 1, 1)), k)
)
_BOOLEAN_COLUMNS = _sliced(st.booleans(), pa.bool_())


def _value(scalar: pa.Scalar) -> Any:
    """Return a key value as a Python value whose equality is that of keys."""
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(scalar.type):
        return scalar.cast(pa.timestamp("ns", scalar.type.tz)).value
    value = scalar.as_py()
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    return value


def _taken(column: pa.Array, rows: pa.Array) -> pa.Array:
    if column.type in (pa.string_view(), pa.binary_view()):  # Arrow has no kernel for these.
        return pa.array([column[i].as_py() for i in rows.to_pylist()], column.type)
    return column.take(rows)


def _check(left: list[pa.Array], right: list[pa.Array], types: list[str]) -> None:
    a, b = key_vector(left, types), key_vector(right, types)
    rows_a = [tuple(map(_value, row)) for row in zip(*left, strict=True)]
    rows_b = [tuple(map(_value, row)) for row in zip(*right, strict=True)]
    for vector, rows in ((a, rows_a), (b, rows_b)):
        null = [None in row for row in rows]
        assert (vector.valid is None and not any(null)) or (
            vector.valid is not None and [not v for v in vector.valid] == null
        )
    pairs = [(i, j) for i in range(len(rows_a)) for j in range(len(rows_b))]
    want = [None not in rows_a[i] and rows_a[i] == rows_b[j] for i, j in pairs]
    take = pa.array([i for i, _ in pairs], pa.int64()), pa.array([j for _, j in pairs], pa.int64())
    found = values_equal(
        [_taken(c, take[0]) for c in left], [_taken(c, take[1]) for c in right], types
    ).tolist()
    assert found == want
    hashes = [
        None not in rows_a[i] and None not in rows_b[j] and bool(a.hashes[i] == b.hashes[j])
        for i, j in pairs
    ]
    # A collision among so few values would be a defect of the hash.
    assert hashes == want


@given(_INT_COLUMNS, _INT_COLUMNS)
def test_integers_of_any_width(left: pa.Array, right: pa.Array) -> None:
    _check([left], [right], ["bigint"])


@given(_INT_COLUMNS | _decimal_column(), _INT_COLUMNS | _decimal_column())
def test_integers_and_decimals_of_any_scale(left: pa.Array, right: pa.Array) -> None:
    scale = max([c.type.scale for c in (left, right) if pa.types.is_decimal(c.type)], default=7)
    _check([left], [right], [f"decimal(38,{scale})"])


@given(_FLOAT_COLUMNS, _FLOAT_COLUMNS)
def test_floats(left: pa.Array, right: pa.Array) -> None:
    _check([left], [right], ["double"])


@given(_TEXT_COLUMNS, _TEXT_COLUMNS)
def test_strings(left: pa.Array, right: pa.Array) -> None:
    _check([left], [right], ["string"])


@given(_BINARY_COLUMNS, _BINARY_COLUMNS)
def test_binary(left: pa.Array, right: pa.Array) -> None:
    _check([left], [right], ["binary"])


@given(_TIME_COLUMNS, _TIME_COLUMNS)
def test_timestamps_of_any_unit(left: pa.Array, right: pa.Array) -> None:
    _check([left], [right], ["timestamp"])


@given(_DATE_COLUMNS, _DATE_COLUMNS, _BOOLEAN_COLUMNS)
def test_dates_and_booleans(left: pa.Array, right: pa.Array, flags: pa.Array) -> None:
    _check([left], [right], ["date"])
    _check([flags], [flags], ["boolean"])


@given(_INT_COLUMNS, _TEXT_COLUMNS, _decimal_column(), _FLOAT_COLUMNS)
def test_composite_keys(a: pa.Array, b: pa.Array, c: pa.Array, d: pa.Array) -> None:
    n = min(map(len, (a, b, c, d)))
    parts = [x.slice(0, n) for x in (a, b, c, d)]
    other = [x.slice(len(x) - n) for x in (a, b, c, d)]
    types = ["bigint", "string", f"decimal(38,{c.type.scale})", "double"]
    _check(parts, other, types)
    _check([parts[1], parts[0]], [other[1], other[0]], ["string", "bigint"])


def test_the_order_of_parts_counts() -> None:
    one, two = pa.array([1]), pa.array([2])
    types = ["bigint", "bigint"]
    assert key_vector([one, two], types).hashes[0] != key_vector([two, one], types).hashes[0]


def test_values_beyond_128_bits_stay_exact() -> None:
    big = 10**38 - 1
    whole = pa.array([Decimal(big), Decimal(big - 1)], pa.decimal128(38, 0))
    point = pa.array([_scaled(big, 38), _scaled(big - 1, 38)], pa.decimal128(38, 38))
    types = ["decimal(38,38)"]
    assert not values_equal([whole], [point], types).any()
    assert values_equal([whole], [whole], types).all()
    assert len(set(key_vector([whole], types).hashes) | set(key_vector([point], types).hashes)) == 4
    unsigned = pa.array([2**64 - 1, 7], pa.uint64())
    same = pa.array([Decimal(2**64 - 1), Decimal(7)], pa.decimal128(20, 0))
    assert (key_vector([unsigned], types).hashes == key_vector([same], types).hashes).all()


def test_long_strings_go_through_both_passes() -> None:
    texts = ["x" * n for n in range(200)] + ["x" * n + "y" for n in range(200)]
    texts += ["x" * 64 + "\0" * n for n in range(1, 20)]
    hashes = key_vector([pa.array(texts)], ["string"]).hashes
    assert len(set(hashes.tolist())) == len(set(texts))
    alone = [int(key_vector([pa.array([t])], ["string"]).hashes[0]) for t in texts]
    assert alone == hashes.tolist()


def test_exact_is_one_injective_part() -> None:
    column = pa.array([1])
    assert key_vector([column], ["bigint"]).exact
    assert not key_vector([column], ["decimal(38,2)"]).exact
    assert not key_vector([column, column], ["bigint", "bigint"]).exact
    assert not key_vector([pa.array(["a"])], ["string"]).exact


def test_mix_is_a_bijection_on_close_words() -> None:
    words = np.arange(1 << 17, dtype=np.uint64)
    assert len(np.unique(mix(words))) == len(words)


def test_hashes_are_the_same_in_another_process() -> None:
    program = (
        "import pyarrow as pa\n"
        "from anabranch_runtime.index.keys import key_vector\n"
        "k = key_vector([pa.array([7, -1]), pa.array(['a', 'bc' * 9])], ['bigint', 'string'])\n"
        "print(k.hashes.tolist())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
    )
    here = key_vector([pa.array([7, -1]), pa.array(["a", "bc" * 9])], ["bigint", "string"])
    assert other.stdout.strip() == str(here.hashes.tolist())


def test_hashes_are_those_of_the_files_written_so_far() -> None:
    # Segments store hashes: changing them needs a new format version.
    assert key_vector([pa.array([1])], ["bigint"]).hashes.tolist() == [_splitmix(1)]
    double = struct.unpack("<Q", struct.pack("<d", 2.5))[0]
    assert key_vector([pa.array([2.5])], ["double"]).hashes.tolist() == [_splitmix(double)]


def _splitmix(word: int) -> int:
    top = (1 << 64) - 1
    z = (word + 0x9E3779B97F4A7C15) & top
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & top
    z = (z ^ z >> 27) * 0x94D049BB133111EB & top
    return z ^ z >> 31


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 64])
def test_partitions_are_even(partitions: int) -> None:
    hashes = key_vector([pa.array(range(20_000))], ["bigint"]).hashes
    counts = np.bincount(partition_of(hashes, partitions), minlength=partitions)
    assert len(counts) == partitions
    assert counts.min() > 0.8 * len(hashes) / partitions


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["1"]), "bigint"),
        (pa.array([1]), "string"),
        (pa.array([1.0]), "decimal(38,0)"),
        (pa.array([1]), "double"),
        (pa.array([date(2020, 1, 1)]), "timestamp"),
    ],
)
def test_a_column_of_another_family_is_refused(column: pa.Array, kind: str) -> None:
    with pytest.raises(KeyTypeError, match="can't be a key"):
        key_vector([column], [kind])


def test_a_column_of_nothing_but_null() -> None:
    for kind in ("bigint", "decimal(38,2)", "string", "double", "timestamp"):
        found = key_vector([pa.nulls(3)], [kind])
        assert found.valid is not None
        assert not found.valid.any()
