"""Implication between filters: a query can read a store whose filter is weaker than its own.

Implication is decided by the form of conditions, so some implications are missed. A conjunct is
implied by an equal conjunct, or by a stricter comparison of the same column with a literal.

>>> from anabranch_contract.queries.expressions import BOOLEAN
>>> from anabranch_contract.queries.types import parse_type
>>> x, kind = Column("", "x", parse_type("int")), parse_type("int")
>>> more, less = (Call("gt", (x, Literal(n, kind)), BOOLEAN) for n in (3, 5))
>>> implies([less], [more]), implies([more], [less]), implies([more], [])
(True, False, True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from anabranch_contract.queries.expressions import Call, Column, Expr, Literal
from anabranch_planner.normal.conditions import HOLDS

#: Comparisons that are never true if an operand is NULL.
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def implies(strong: Sequence[Expr], weak: Sequence[Expr]) -> bool:
    """Whether the filter ``strong`` provably implies the filter ``weak`` for every row."""
    return all(any(_implied(s, w) for s in strong) for w in weak)


def _implied(strong: Expr, weak: Expr) -> bool:
    if strong == weak:
        return True
    if not isinstance(weak, Call):
        return False
    if weak.op == "or":
        return any(_implied(strong, part) for part in weak.args)
    values = _values(strong)
    if values is None:
        return False
    column, op, several = values
    if weak.op == "is_not_null":
        return weak.args[0] == column
    other = _values(weak)
    if other is None or other[0] != column:
        return False
    if op == "in":
        return all(_follows("eq", value, other) for value in several)
    return _follows(op, several[0], other)


def _values(condition: Expr) -> tuple[Column, str, list[Any]] | None:
    """A comparison or IN as (column, operator, literals); None for a condition of another form."""
    if not isinstance(condition, Call) or condition.op not in _COMPARISONS | {"in"}:
        return None
    column, *literals = condition.args
    if not isinstance(column, Column):
        return None
    values = []
    for literal in literals:
        if not isinstance(literal, Literal) or literal.type != column.type:
            return None
        if literal.value is None:
            return None
        if isinstance(literal.value, float) and math.isnan(literal.value):
            return None
        values.append(literal.value)
    return column, condition.op, values


def _follows(op: str, x: Any, weak: tuple[Column, str, list[Any]]) -> bool:
    """Whether the comparison ``column op x`` implies the comparison ``weak``."""
    _, other, values = weak
    if other == "in":
        return op == "eq" and x in values
    y = values[0]
    if op == "eq":
        return bool(HOLDS[other](x, y))
    if op not in ("gt", "ge", "lt", "le"):
        return False
    # Mirror a less-than comparison, so that only greater-than comparisons remain.
    beyond = op in ("gt", "ge")
    further, same = (x > y if beyond else x < y), x == y
    toward = {"gt", "ge"} if beyond else {"lt", "le"}
    strict = op in ("gt", "lt")
    if other not in toward | {"ne"}:
        return False
    return bool(further or (same and (strict or other in ("ge", "le"))))
