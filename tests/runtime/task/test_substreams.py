"""Tests of dividing starting tuples by substream: each tuple is in exactly one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import AttrRef, Label
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.task.substreams import numbers

R = Label("R")


class Starts:
    """Starting tuples with one key column."""

    def __init__(self, values: list[object], kind: pa.DataType) -> None:
        self.array = pa.array(values, kind)
        self.length, self.start = len(values), R

    def cut(self, first: int, last: int) -> Starts:
        return Starts(self.array.to_pylist()[first:last], self.array.type)


class Keys:
    """The key of :class:`Starts`."""

    def probed(self, starts: Starts, ref: AttrRef) -> pa.Array:
        assert ref == AttrRef(R, "a")
        return starts.array


class Failing(Keys):
    """A key that fails on negative values."""

    def probed(self, starts: Starts, ref: AttrRef) -> pa.Array:
        if any(v is not None and v < 0 for v in starts.array.to_pylist()):
            raise ExpressionError("overflow", "too large")
        return starts.array


def hashes(values: list[object], kind: pa.DataType, key: str) -> list[int]:
    found: list[int] = key_vector([pa.array(values, kind)], [key]).hashes.tolist()
    return found


@pytest.mark.parametrize(
    ("values", "kind", "key"),
    [
        ([5, None, 7, 5, -1, 9], pa.int64(), "bigint"),
        (["x", None, "", "x", "ü", "z"], pa.string(), "string"),
        ([0.5, None, float("nan"), 0.5, -0.0, 2.0], pa.float64(), "double"),
    ],
)
def test_sets_of_hashes(values: list[object], kind: pa.DataType, key: str) -> None:
    first, _, second, _, third, _ = hashes(values, kind, key)
    function = Substreams(R, "a", key, ((second,), tuple(sorted((first, third)))))
    found = numbers(Keys(), Starts(values, kind), function)  # type: ignore[arg-type]
    assert found.tolist() == [2, 0, 1, 2, 2, 0]


def test_others_by_ranges_of_hash() -> None:
    values: list[object] = [None, *range(10_000)]
    function = Substreams(R, "a", "bigint", (tuple(hashes([3], pa.int64(), "bigint")),), 4)
    found = numbers(Keys(), Starts(values, pa.int64()), function)  # type: ignore[arg-type]
    assert found[0] == 0
    assert found[4] == 4
    assert sorted(set(found.tolist())) == [0, 1, 2, 3, 4]
    one_by_one = [function.number(value) for value in hashes(values[1:], pa.int64(), "bigint")]
    assert found[1:].tolist() == one_by_one
    counts = [found.tolist().count(n) for n in range(4)]
    assert max(counts) < 1.1 * min(counts)


def test_no_tuples() -> None:
    function = Substreams(R, "a", "bigint", others=2)
    assert len(numbers(Keys(), Starts([], pa.int64()), function)) == 0  # type: ignore[arg-type]


def test_a_key_that_cannot_be_had_is_of_the_first_and_leaves_others_where_they_belong() -> None:
    function = Substreams(R, "a", "bigint", (tuple(hashes([3], pa.int64(), "bigint")),))
    starts = Starts([3, -1, None, 3, 2, -5, 3], pa.int64())
    found = numbers(Failing(), starts, function)  # type: ignore[arg-type]
    assert found.tolist() == [1, 0, 0, 1, 0, 0, 1]
