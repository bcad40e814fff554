"""Compare kernels of window functions with simple loops over the rows of each frame."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.types import DataType, parse_type
from anabranch_contract.queries.views import (
    Excluded,
    Frame,
    FrameUnit,
    SortKey,
    View,
    Windowed,
    WindowFunction,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.tables import sums
from anabranch_runtime.tables.table import MaintainedTable
from anabranch_runtime.tables.windows.frames import SortedRows
from anabranch_runtime.tables.windows.values import window_values
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout

BIGINT, DOUBLE = parse_type("bigint"), parse_type("double")
_MOST = 2**63 - 1
#: Doubles whose sums are exact, and others.
_DOUBLES = (0.0, 0.1, -0.1, 1.5, 1e16, -1e16, 3e-40)
_WILD = (*_DOUBLES, 1e300, -1e300, 7e-310, math.inf, -math.inf, math.nan)
_VALUES: dict[str, Callable[[Random], Any]] = {
    "bigint": lambda random: random.choice((-3, 0, 1, 5, 2**62, -(2**62))),
    "int": lambda random: random.randrange(-5, 6),
    "decimal(12,2)": lambda random: Decimal(random.randrange(-500, 500)).scaleb(-2),
    "decimal(38,0)": lambda random: Decimal(random.choice((1, -7, 10**37, -(10**37)))),
    "double": lambda random: random.choice(_WILD),
    "string": lambda random: random.choice(("", "a", "ab", "é", "b")),
}


class Rows:
    """Random sorted rows: a partition, a sort key, and a value each."""

    def __init__(self, random: Random, kind: str, keys: tuple[int, ...]) -> None:
        rows = [
            (random.randrange(4), random.choice((None, *keys)), random.random() < 0.2)
            for _ in range(random.choice((0, 1, 5, 30, 80)))
        ]
        rows.sort(key=lambda row: (row[0], row[1] is not None, row[1] or 0))
        self.partitions = [row[0] for row in rows]
        self.keys = [row[1] for row in rows]
        self.values = [None if row[2] else _VALUES[kind](random) for row in rows]
        self.kind: DataType = parse_type(kind)
        self.layout = TupleLayout([TupleField(BIGINT), TupleField(self.kind)], Texts())
        columns = [pa.array(self.keys, pa.int64()), pa.array(self.values, arrow_type(self.kind))]
        self.words = self.layout.encode(columns)
        numbers = np.array(self.partitions, np.int64)
        self.sorted = SortedRows.of(numbers, self.words[:, : self.layout.end(1)])

    def frame(self, i: int, frame: Frame) -> list[int]:
        """Return the row numbers of the frame of row ``i``, by definition."""
        groups = sorted(
            {(p, k is not None, k or 0) for p, k in zip(self.partitions, self.keys, strict=True)}
        )

        def group(j: int) -> int:
            key = self.keys[j]
            return groups.index((self.partitions[j], key is not None, key or 0))

        def within(j: int) -> bool:
            if self.partitions[j] != self.partitions[i]:
                return False
            peer, excluded = group(j) == group(i), frame.excluded
            if (j == i and excluded in (Excluded.ROW, Excluded.GROUP)) or (
                j != i and peer and excluded in (Excluded.TIES, Excluded.GROUP)
            ):
                return False
            return _after(frame.start, j) and not (frame.end is not None and _beyond(frame.end, j))

        def _after(limit: int | None, j: int) -> bool:
            if limit is None:
                return True
            if frame.unit is FrameUnit.ROWS:
                return j - i >= limit
            if frame.unit is FrameUnit.GROUPS:
                return group(j) - group(i) >= limit
            own, other = self.keys[i], self.keys[j]
            if own is None or other is None:
                return other is not None or own is None
            return other - own >= limit

        def _beyond(limit: int, j: int) -> bool:
            if frame.unit is FrameUnit.ROWS:
                return j - i > limit
            if frame.unit is FrameUnit.GROUPS:
                return group(j) - group(i) > limit
            own, other = self.keys[i], self.keys[j]
            if own is None or other is None:
                return own is None and other is not None
            return other - own > limit

        return [j for j in range(len(self.values)) if within(j)]

    def found(
        self,
        function: WindowFunction,
        kind: DataType,
        frame: Frame,
        number: int = 1,
        ignoring: bool = False,
    ) -> list[Any]:
        """Return the values of a function by the kernels."""
        one = Windowed("w", function, "v", kind, number, frame=frame, ignore_nulls=ignoring)

        def never(_: object) -> pa.Array:
            raise AssertionError("there is no default")

        column = window_values(one, self.sorted, self.words, self.layout, 1, never)
        values: list[Any] = column.to_pylist()
        return values


def _frame(random: Random, scale: int) -> Frame:
    start, end = random.choice((None, 0, -1, -2, 1)), random.choice((None, 0, 1, 2, -1))
    if start is not None and end is not None and start > end:
        start, end = end, start
    unit = random.choice(tuple(FrameUnit))
    size = scale if unit is FrameUnit.RANGE else 1
    excluded = random.choice((Excluded.NOTHING, *Excluded))
    return Frame(unit, start and start * size, end and end * size, excluded)


@pytest.mark.parametrize("seed", range(150))
def test_frames_by_definition(seed: int) -> None:
    random = Random(seed)
    scale = random.choice((1, 1, 2**61))
    keys = (-2, 0, 1, 3) if scale == 1 else (-_MOST - 1, -(2**62), 0, 5, _MOST)
    rows = Rows(random, "int", keys)
    frame = _frame(random, scale)
    starts, ends = rows.sorted.frames(frame)
    found = [
        [j for a, b in zip(starts[:, i], ends[:, i], strict=True) for j in range(a, b)]
        for i in range(len(rows.values))
    ]
    assert found == [rows.frame(i, frame) for i in range(len(rows.values))]


@pytest.mark.parametrize("seed", range(150))
def test_aggregates_of_frames(seed: int) -> None:
    random = Random(seed)
    rows, frame = Rows(random, random.choice(tuple(_VALUES)), (-2, 0, 1, 3)), _frame(random, 1)
    inside = [
        [rows.values[j] for j in rows.frame(i, frame) if rows.values[j] is not None]
        for i in range(len(rows.values))
    ]
    assert rows.found(WindowFunction.COUNT, BIGINT, frame) == list(map(len, inside))
    numbers = rows.kind.kind != "string"
    for function, of in ((WindowFunction.MIN, min), (WindowFunction.MAX, max)):
        expected = [of(some, key=_order) if some else None for some in inside]
        assert list(map(_shown, rows.found(function, rows.kind, frame))) == [
            _shown(value) for value in expected
        ]
    if numbers:
        _compare_sums(rows, frame, inside)


@pytest.mark.parametrize("seed", range(100))
def test_values_of_frames(seed: int) -> None:
    random = Random(seed)
    rows, frame = Rows(random, "int", (-2, 0, 1, 3)), _frame(random, 1)
    inside = [[rows.values[j] for j in rows.frame(i, frame)] for i in range(len(rows.values))]
    for function, place in (
        (WindowFunction.FIRST_VALUE, 0),
        (WindowFunction.LAST_VALUE, -1),
        (WindowFunction.NTH_VALUE, 1),
    ):
        number = 2 if place == 1 else 1
        for ignoring in (False, True):
            some = [[v for v in vs if v is not None or not ignoring] for vs in inside]
            expected = [vs[place] if len(vs) >= number else None for vs in some]
            assert rows.found(function, rows.kind, frame, number, ignoring) == expected


def _compare_sums(rows: Rows, frame: Frame, inside: list[list[Any]]) -> None:
    if rows.kind == DOUBLE:
        expected: list[Any] = [_double_sum(some) if some else None for some in inside]
        found = rows.found(WindowFunction.SUM, DOUBLE, frame)
        assert list(map(_shown, found)) == list(map(_shown, expected))
        means = [None if e is None else e / len(s) for e, s in zip(expected, inside, strict=True)]
        found = rows.found(WindowFunction.AVG, DOUBLE, frame)
        assert list(map(_shown, found)) == list(map(_shown, means))
        return
    exact = [sum(map(int, some)) if rows.kind.scale == 0 else sum(some) for some in inside]
    most = _MOST if rows.kind.kind != "decimal" else 10**38 - 1
    kind = BIGINT
    if rows.kind.kind == "decimal":
        precision = min(38, rows.kind.precision + 10)
        kind = parse_type(f"decimal({precision},{rows.kind.scale})")
    if any(not -most - 1 <= total <= most for total in exact):
        with pytest.raises(ExpressionError):
            rows.found(WindowFunction.SUM, kind, frame)
        return
    expected = [t if s else None for t, s in zip(exact, inside, strict=True)]
    assert rows.found(WindowFunction.SUM, kind, frame) == expected


def _double_sum(values: list[float]) -> float:
    """Return the sum by a group's accumulator, to which the frame's values are added in order."""
    state = np.zeros((1, sums.FLOAT_WORDS), np.int64)
    unsigned, floats, out = state.view(np.uint64), state.view(np.float64), np.empty(1)
    zeros, ones = np.zeros(len(values), np.int64), np.ones(len(values), np.int64)
    sums.add_floats(unsigned, floats, 0, zeros, np.array(values), np.empty(0, np.bool_), ones)
    sums.float_sums(unsigned, floats, 0, out)
    if all(value in _DOUBLES for value in values):
        assert out[0] == math.fsum(values)
    return float(out[0])


def _order(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), value)
    return value.encode() if isinstance(value, str) else value


def _shown(value: Any) -> str:
    return repr(value + 0.0 if isinstance(value, float) else value)


def _running(kind: str) -> tuple[View, pa.Schema]:
    """Return a view with sums of the last three rows, and of all rows so far."""
    value = parse_type(kind)
    total = DOUBLE if kind == "double" else BIGINT
    frames = (Frame(FrameUnit.ROWS, -2, 0), Frame())
    windowed = tuple(
        Windowed(f"w{n}", WindowFunction.SUM, "v", total, frame=frame)
        for n, frame in enumerate(frames)
    )
    columns = [Column("", "k", BIGINT), Column("", "v", value)]
    shown = [*columns, *(Column("", one.name, total) for one in windowed)]
    outputs = tuple(Output(c.name, c) for c in shown)
    order = (SortKey(columns[0]),)
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in columns])
    return View(False, (), (), outputs, order=order, windowed=windowed), schema


def test_sums_of_doubles_do_not_depend_on_the_order_of_arrival() -> None:
    view, schema = _running("double")
    random = Random(7)
    rows = [(n, random.choice((1e16, -1e16, 0.1, 1e300, -1e300, 3.0))) for n in range(200)]
    found = set()
    for seed in range(4):
        random = Random(seed)
        random.shuffle(rows)
        table = MaintainedTable(view, schema, deletes=True)
        gone = [(1000, 1e22), (-5, -1e303)]
        for part in (gone, rows[:70], rows[70:]):
            given = pa.Table.from_pylist([{"k": k, "v": v} for k, v in part], schema)
            table.apply(given, None, 1)
        given = pa.Table.from_pylist([{"k": k, "v": v} for k, v in gone], schema)
        table.apply(given, np.full(2, -1), 2)
        found.add(str(table.rows(None).to_pylist()))
    assert len(found) == 1


def test_only_changed_rows_are_changes() -> None:
    view, schema = _running("bigint")
    table = MaintainedTable(view, schema, deletes=True)
    rows = pa.table({"k": list(range(10)), "v": [1] * 10}, schema)
    assert table.apply(rows, None, 1).num_rows == 10
    later = table.apply(pa.table({"k": [10], "v": [1]}, schema), None, 2)
    assert later.column("k").to_pylist() == [10]
    last = table.apply(pa.table({"k": [10], "v": [1]}, schema), np.array([-1]), 3)
    assert last.num_rows == 1


def test_a_table_is_unchanged_after_an_overflow() -> None:
    view, schema = _running("bigint")
    table = MaintainedTable(view, schema, deletes=True)
    table.apply(pa.table({"k": [1], "v": [_MOST]}, schema), None, 1)
    before = table.rows(None)
    with pytest.raises(ExpressionError, match="bigint"):
        table.apply(pa.table({"k": [2], "v": [1]}, schema), None, 2)
    assert table.rows(None) == before
    # A frame whose sum fits does not fail because intermediate sums overflow.
    table.apply(pa.table({"k": [2, 3], "v": [-5, 2]}, schema), None, 2)
    assert table.rows(None).column("w1").to_pylist() == [_MOST, _MOST - 5, _MOST - 3]
