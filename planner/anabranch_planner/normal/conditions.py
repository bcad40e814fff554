"""Canonical form of bound conditions, so that equal conditions of different queries are identical.

>>> from anabranch_contract.queries.types import parse_type
>>> x, five = Column("", "x", parse_type("int")), Literal(5, parse_type("int"))
>>> str(canonical(Call("lt", (five, x), BOOLEAN)))
'(x > 5)'
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal, columns
from anabranch_planner.binding.typecheck import MIRRORED, balanced

_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt",
            "is_null": "is_not_null", "is_not_null": "is_null"}  # fmt: skip
#: Comparison operator -> Python function on two values that are not NULL.
HOLDS: dict[str, Callable[..., bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def canonical(condition: Expr) -> Expr:
    """``condition`` with constants on the right, operands sorted, NOT pushed into comparisons.

    Every rewriting is valid in three-valued logic, also for NaN, Spark's greatest float.
    """
    if not isinstance(condition, Call):
        return condition
    if condition.op in ("and", "or"):
        parts = {str(p): p for p in map(canonical, operands_of(condition, condition.op))}
        return balanced(condition.op, [parts[text] for text in sorted(parts)])
    if condition.op == "not":
        return _negation(canonical(condition.args[0]))
    if condition.op == "in":
        values = {str(v): v for v in condition.args[1:]}
        ordered = tuple(values[text] for text in sorted(values))
        if len(ordered) == 1:
            return canonical(Call("eq", (condition.args[0], ordered[0]), BOOLEAN))
        return Call("in", (condition.args[0], *ordered), BOOLEAN)
    if condition.op in MIRRORED:
        return _comparison(condition)
    return condition


def is_true(condition: Expr) -> bool:
    """Whether a bound ``condition`` is the constant TRUE."""
    return isinstance(condition, Literal) and condition.value is True


def operands_of(condition: Expr, op: str) -> list[Expr]:
    """The operands of a chain of ``op`` (AND or OR) in a bound condition, left to right."""
    found: list[Expr] = []
    pending = [condition]
    while pending:
        current = pending.pop()
        if isinstance(current, Call) and current.op == op:
            pending += reversed(current.args)
        else:
            found.append(current)
    return found


def _negation(inner: Expr) -> Expr:
    """Canonical form of NOT ``inner``."""
    if isinstance(inner, Literal) and isinstance(inner.value, bool):
        return Literal(not inner.value, BOOLEAN)
    if isinstance(inner, Call):
        if inner.op == "not":
            return inner.args[0]
        if inner.op in _NEGATED:
            return Call(_NEGATED[inner.op], inner.args, BOOLEAN)
    return Call("not", (inner,), BOOLEAN)


def _comparison(condition: Call) -> Expr:
    """Canonical form of a comparison: constants on the right, or its constant value."""
    left, right = condition.args
    if isinstance(left, Literal) and isinstance(right, Literal) and condition.op in HOLDS:
        if left.value is None or right.value is None:
            return Literal(None, BOOLEAN)
        if not isinstance(left.value, float):
            return Literal(HOLDS[condition.op](left.value, right.value), BOOLEAN)
    if _rank(right) < _rank(left):
        return Call(MIRRORED[condition.op], (right, left), BOOLEAN)
    return condition


def _rank(side: Expr) -> tuple[bool, bool, str]:
    """Sort key of a comparison's sides: columns, then expressions, then constants."""
    constant = next(columns(side), None) is None
    return constant, not isinstance(side, Column), str(side)
