"""Compare expansions (EXPLODE etc.) with loops over rows, on random arrays and maps."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expansion, Expr, Literal
from anabranch_contract.queries.types import DataType, parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.expansion import expanded

_INT = parse_type("int")
_ITEMS = parse_type("array<struct<n:int,tags:array<string>>>")
_MAP = parse_type("map<string,int>")
_KINDS = {"k": _INT, "items": _ITEMS, "m": _MAP}


def _value(rng: Random, kind: DataType) -> Any:
    if rng.random() < 0.2:
        return None
    if kind == _INT:
        return rng.randrange(5)
    if kind == _MAP:
        return [(f"k{n}", _value(rng, _INT)) for n in range(rng.randrange(3))]
    if kind == _ITEMS:
        return [_value(rng, _ITEMS.element) for _ in range(rng.randrange(4))]
    if kind == _ITEMS.element:
        tags = [rng.choice(("a", "b", None)) for _ in range(rng.randrange(3))]
        return {"n": _value(rng, _INT), "tags": rng.choice((tags, None))}
    raise AssertionError(kind)


def _looped(one: Expansion, row: dict[Column, Any], value: Any) -> Iterator[dict[Column, Any]]:
    """Return the expanded rows of one row, by a loop over its elements."""
    names = one.columns[one.position :]
    if not value and one.outer:
        yield {**row, **dict.fromkeys(one.columns)}
    for place, element in enumerate(value or ()):
        made = [element]
        if one.value.type == _MAP:
            made = list(element)
        elif one.fields:
            made = [None if element is None else element[c.name] for c in names]
        own = dict(zip(names, made, strict=True))
        yield {**row, **own, **({one.columns[0]: place} if one.position else {})}


def _column(expr: Expr, row: dict[Column, Any]) -> Any:
    if isinstance(expr, Call):
        inner = _column(expr.args[0], row)
        assert isinstance(expr.args[1], Literal)
        return None if inner is None else inner[expr.args[1].value]
    assert isinstance(expr, Column)
    return row[expr]


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("position", [False, True])
@pytest.mark.parametrize("name", ["items", "m"])
def test_rows_are_those_of_a_loop(name: str, position: bool, outer: bool) -> None:
    rng = Random(f"{name} {position} {outer}")
    rows = [{n: _value(rng, kind) for n, kind in _KINDS.items()} for _ in range(500)]
    fields = name == "items" and not position
    first = Expansion("#1", Column("a", name, _KINDS[name]), outer, position, fields)
    steps = [first]
    if name == "items":
        element = next(c for c in first.columns if c.name in ("col", "tags"))
        tags: Expr = element
        if element.name == "col":
            path = Literal("tags", parse_type("string"))
            tags = Call("field", (element, path), _ITEMS.element.fields[1][1])
        steps.append(Expansion("#2", tags, not outer, position))
    wanted = [{Column("a", n, _KINDS[n]): v for n, v in row.items()} for row in rows]
    for row, number in zip(wanted, range(len(rows)), strict=True):
        row[Column("", "row", _INT)] = number
    for one in steps:
        wanted = [made for row in wanted for made in _looped(one, row, _column(one.value, row))]
    columns = {n: pa.array([r[n] for r in rows], arrow_type(kind)) for n, kind in _KINDS.items()}
    read, parents = expanded(steps, lambda c: columns[c.name], len(rows))
    assert parents.tolist() == [row[Column("", "row", _INT)] for row in wanted]
    shown = [c for one in steps for c in one.columns] + [Column("a", "k", _INT)]
    for column in shown:
        assert read(column).to_pylist() == [row[column] for row in wanted], column


def test_conditions_leave_rows_out() -> None:
    xs = pa.array([[1, 2, None], None, [], [3]], pa.list_(pa.int32()))
    x = Column("#1", "col", _INT)
    above = Call("gt", (x, Literal(1, _INT)), BOOLEAN)
    one = Expansion("#1", Column("a", "xs", parse_type("array<int>")), True, conditions=(above,))
    read, rows = expanded([one], lambda _: xs, 4)
    assert (read(x).to_pylist(), rows.tolist()) == ([2, 3], [0, 3])


def test_too_many_rows_are_an_error() -> None:
    many = pa.array([list(range(1000))] * 3, pa.list_(pa.int32()))
    one = Expansion("#1", Column("a", "xs", parse_type("array<int>")))
    with pytest.raises(ExpressionError, match=r"makes 3000 rows of 3.*slice\(x, 1, 1000\)"):
        expanded([one], lambda _: many, 3, 2999)
    assert len(expanded([one], lambda _: many, 3, 3000)[1]) == 3000


def test_rows_without_elements() -> None:
    none = pa.nulls(3, pa.list_(pa.int32()))
    one = Expansion("#1", Column("a", "xs", parse_type("array<int>")), position=True)
    read, rows = expanded([one], lambda _: none, 3)
    assert [len(read(column)) for column in one.columns] == [0, 0]
    assert np.array_equal(rows, [])
