"""Common types of operands, with the casts that Spark makes silently for literals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import (
    DOUBLE,
    MAX_PRECISION,
    as_decimal,
    castable,
    common_type,
    decimal_of,
    fits,
)
from anabranch_contract.queries.expressions import NULL, Expr, Literal, is_null
from anabranch_contract.queries.text_values import moment_text
from anabranch_contract.queries.types import (
    EXACT,
    FLOATING,
    INTEGRAL,
    INTERVALS,
    NUMERIC,
    TIMESTAMPS,
    DataType,
    TypeKind,
)
from anabranch_planner.binding.literals import cast_literal, coerce


def mismatch(left: Expr, right: Expr) -> QueryError:
    """The type-mismatch error for typed operands ``left`` and ``right`` without a common type."""
    exact = all(t.kind in NUMERIC for t in (left.type, right.type))
    if exact:
        return QueryError(
            "type-mismatch",
            f"{left} ({left.type}) and {right} ({right.type}) have no common exact type:"
            " it would need more than 38 digits",
            remedy="cast one side to a decimal with fewer digits",
        )
    kept, other = (left, right) if left.type.kind is not TypeKind.STRING else (right, left)
    if not castable(other.type, kept.type):
        kept, other = other, kept
    remedy = f"make them agree: CAST({_shown(other)} AS {str(kept.type).upper()})"
    return QueryError(
        "type-mismatch",
        f"{_shown(left)} is of type {left.type}, {_shown(right)} of type {right.type}",
        remedy=remedy if castable(other.type, kept.type) else _same(left, right),
    )


def _same(left: Expr, right: Expr) -> str:
    """The remedy of a type mismatch without a cast; it shows a literal of the right type."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Literal) and (text := _EXAMPLES.get(other.type.kind)):
            return f"write a literal of that type, such as {text}"
    return "give both the same type"


_EXAMPLES = {
    **dict.fromkeys(TIMESTAMPS, "TIMESTAMP '2026-01-31 12:00:00'"),
    TypeKind.DATE: "DATE '2026-01-31'",
    TypeKind.BOOLEAN: "TRUE",
    TypeKind.INTERVAL: "INTERVAL '5' MINUTE",
    TypeKind.MONTHS: "INTERVAL '1' MONTH",
}


def _shown(expr: Expr) -> str:
    """A typed expression as SQL text for error messages; dates and timestamps as texts."""
    kind, text = expr.type.kind, None
    moment = kind in TIMESTAMPS or kind is TypeKind.DATE
    if moment and isinstance(expr, Literal) and isinstance(expr.value, int):
        text = moment_text(expr.value, kind)
    return text or str(expr)


def widest(left: DataType, right: DataType) -> DataType | None:
    """Common decimal type of two numbers that together need more than 38 digits: 38 digits, with
    the greater scale. As in Spark, a value too large for it is an error."""
    if left.kind not in EXACT or right.kind not in EXACT:
        return None
    return DataType(TypeKind.DECIMAL, MAX_PRECISION, max(left.scale, right.scale))


def rounded(left: DataType, right: DataType) -> DataType | None:
    """Common type of two columns of a set operation that together need more than 38 digits: as in
    Spark a decimal of 38 digits, with all digits before the point and as many after it as fit. None
    unless both are exact numbers."""
    if left.kind not in EXACT or right.kind not in EXACT:
        return None
    a, b = as_decimal(left), as_decimal(right)
    whole, scale = max(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale)
    return DataType(TypeKind.DECIMAL, MAX_PRECISION, max(0, min(scale, MAX_PRECISION - whole)))


def meet(
    left: Expr,
    right: Expr,
    otherwise: Callable[[DataType, DataType], DataType | None] | None = None,
) -> tuple[Expr, Expr]:
    """Both operands of a comparison, cast to the type in which Spark compares them.

    Args:
        otherwise: returns the common type of two types that have no exact one, or None.

    Raises:
        QueryError: ``type-mismatch``.
    """
    left, right = _aimed(left, right.type), _aimed(right, left.type)
    meeting = common_type(left.type, right.type)
    if meeting is None and otherwise is not None:
        meeting = otherwise(left.type, right.type)
    if meeting is None:
        raise mismatch(left, right)
    return coerce(left, meeting), coerce(right, meeting)


def _aimed(expr: Expr, other: DataType) -> Expr:
    """``expr``, if it is a literal, cast to the type in which Spark compares it with ``other``."""
    if not isinstance(expr, Literal) or expr.type == other:
        return expr
    if expr.value is None:
        return Literal(None, other)
    value, source = expr.value, expr.type.kind
    target = other
    if source is TypeKind.STRING:
        if other.kind in INTERVALS | {TypeKind.BINARY, TypeKind.NULL}:
            return expr
        if other.kind in FLOATING or other.kind is TypeKind.DECIMAL:
            target = DOUBLE
        folded = cast_literal(expr, target) or (
            cast_literal(expr, DataType(TypeKind.BIGINT)) if other.kind in INTEGRAL else None
        )
        if folded is None:
            text = _EXAMPLES.get(other.kind) or ("12" if other.kind in NUMERIC else "")
            such = f" such as {text}" if text else f" of type {other}"
            raise QueryError(
                "type-mismatch",
                f"{expr} is compared with a value of type {other}, but can't be read as one",
                remedy=f"write a literal{such}, or cast the other side to STRING",
            )
        return folded
    if source is TypeKind.DATE and other.kind in TIMESTAMPS and isinstance(value, int):
        return Literal(value * 86_400_000_000, other)
    if isinstance(value, int) and not isinstance(value, bool) and source in INTEGRAL:
        if other.kind in INTEGRAL and fits(value, other.kind):
            return Literal(value, other)
        if other.kind is TypeKind.DECIMAL:
            return Literal(Decimal(value), decimal_of(value))
    return expr


def typed_null(expr: Expr, other: DataType) -> Expr:
    """``expr``; if it is an untyped NULL, a NULL of type ``other``."""
    if is_null(expr) and expr.type == NULL:
        return Literal(None, other)
    return expr


def meet_all(values: Sequence[Expr]) -> list[Expr]:
    """Typed alternatives of CASE or coalesce, cast to their least common type."""

    def wider(left: Expr, right: Expr) -> Expr:
        kind = common_type(left.type, right.type)
        if kind is None:
            raise mismatch(left, right)
        return left if left.type == kind else right if right.type == kind else coerce(left, kind)

    target = reduce(wider, values).type
    return [coerce(v, target) for v in values]
