"""Tests that the kernel of rounds hashes values as the key vectors of stored rows do."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch_runtime.index.gather import place_of
from anabranch_runtime.index.kernels import mixed
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.index.rounds import lane_of, same_value

_INTEGERS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64, pa.date32(): 32}


def hash_at(at: int, row: int, width: int, data: int) -> int:
    """Return the hash of a value, by the kernel."""
    lane: Any = np.uint64(lane_of(at, row, width, data))
    return int(mixed(lane))


def location(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the column's location, as in the kernel's table."""
    place = place_of(column)
    width = _INTEGERS.get(column.type, 0)
    return np.array([place.first, place.valid, place.offset, width, place.data], np.int64)


def strings(chance: Random, count: int) -> pa.Array:
    """Strings of up to 100 bytes, many with a common prefix; not all from row 0 of a buffer."""
    texts = ["\0" * chance.randrange(3) + "ab\u00e9" * chance.randrange(34) for _ in range(count)]
    return pa.array(["before", *texts])[1:]


@pytest.mark.parametrize("seed", range(5))
def test_strings_have_the_hash_of_their_key_vector(seed: int) -> None:
    column = strings(Random(seed), 200)
    at, _, _, width, data = location(column).tolist()
    wanted = key_vector([column], ["string"]).hashes.tolist()
    assert [hash_at(at, n, width, data) for n in range(200)] == wanted


@pytest.mark.parametrize("kind", _INTEGERS, ids=str)
def test_integers_have_the_hash_of_their_key_vector(kind: pa.DataType) -> None:
    width = _INTEGERS[kind]
    chance = Random(width)
    most = 1 << (width - 1)
    values = [-most, -1, 0, 1, most - 1, *(chance.randrange(-most, most) for _ in range(50))]
    column = pa.array(values, pa.int64()).cast(pa.int32() if width == 32 else kind).cast(kind)
    at = location(column).tolist()[0]
    key = "date" if pa.types.is_date(kind) else "bigint"
    wanted = key_vector([column], [key]).hashes.tolist()
    assert [hash_at(at, n, width, 0) for n in range(len(values))] == wanted


@pytest.mark.parametrize("seed", range(5))
def test_only_equal_strings_are_the_same(seed: int) -> None:
    chance = Random(seed)
    one, other = strings(chance, 60), strings(chance, 60)
    left, right = location(one), location(other)
    found = [[bool(same_value(left, n, right, m)) for m in range(60)] for n in range(60)]
    assert found == [[a == b for b in other.to_pylist()] for a in one.to_pylist()]
    assert any(map(any, found)), "no two are equal"


def test_integers_of_different_widths_are_compared_by_value() -> None:
    narrow, wide = pa.array([-1, 5], pa.int8()), pa.array([-1, 255, 5], pa.int64())
    left, right = location(narrow), location(wide)
    found = [[bool(same_value(left, n, right, m)) for m in range(3)] for n in range(2)]
    assert found == [[True, False, False], [False, False, True]]
