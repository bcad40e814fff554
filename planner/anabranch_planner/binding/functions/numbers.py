"""Signatures of the SQL functions of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import e, pi

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import BIGINT, DOUBLE, INT, MAX_PRECISION, common_type
from anabranch_contract.queries.expressions import BOOLEAN, OPERATIONS, Call, Expr, Literal
from anabranch_contract.queries.types import (
    FLOATING,
    INTEGRAL,
    INTERVALS,
    NUMERIC,
    DataType,
    TypeKind,
)
from anabranch_planner.binding.functions.intervals import count_of
from anabranch_planner.binding.functions.signatures import (
    Argument,
    Rewriting,
    Signature,
    converted,
    rewriting,
)
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql.unresolved import unsupported

_OF_ONE = (
    "acos", "asin", "atan", "cos", "degrees", "exp", "expm1", "ln", "log10", "log1p",
    "log2", "radians", "rint", "sin", "sqrt", "tan",
)  # fmt: skip


def _integral(op: str) -> Callable[[Sequence[Expr]], Expr]:
    """Rewriting of ``floor`` or ``ceil``: a decimal gives one without fraction, else a bigint."""

    def made(args: Sequence[Expr]) -> Expr:
        value, kind = args[0], args[0].type
        if kind.kind is TypeKind.DECIMAL:
            digits = min(kind.precision - kind.scale + 1, MAX_PRECISION)
            whole = DataType(TypeKind.DECIMAL, digits, 0) if kind.scale else kind
            return Call(op, (value,), whole)
        if kind.kind in INTEGRAL:
            return coerce(value, BIGINT)
        return Call(op, (converted(op, value, Argument.DOUBLE),), BIGINT)

    return made


def _log(args: Sequence[Expr]) -> Expr:
    if len(args) == 1:
        return _LN(args)
    base, value = (converted("log", arg, Argument.DOUBLE) for arg in args)
    return Call("log", (base, value), DOUBLE)


_LN = Signature("ln", (Argument.DOUBLE,), DOUBLE)


def _sign(args: Sequence[Expr]) -> Expr:
    if args[0].type.kind in INTERVALS:
        return Call("sign", (count_of(args[0]),), DOUBLE)
    if args[0].type.kind not in NUMERIC:
        converted("sign", args[0], Argument.DOUBLE)
    return Call("sign", (args[0],), DOUBLE)


def _pmod(args: Sequence[Expr]) -> Expr:
    left, right = args
    kind = common_type(left.type, right.type)
    if kind is None or kind.kind not in INTEGRAL | FLOATING:
        raise QueryError(
            "type-mismatch",
            f"pmod() of {left} ({left.type}) and {right} ({right.type}) is not supported",
            remedy="cast both to BIGINT or DOUBLE",
        )
    return Call("pmod", (coerce(left, kind), coerce(right, kind)), kind)


def quotient(left: Expr, right: Expr) -> Expr:
    """Typed ``left DIV right``: the integer quotient, as a bigint.

    Raises:
        QueryError: ``type-mismatch``.
    """
    kinds = left.type.kind, right.type.kind
    if kinds[0] in INTERVALS and kinds[0] is kinds[1]:
        return Call("div_int", (count_of(left), count_of(right)), BIGINT)
    if TypeKind.DECIMAL in kinds and all(k in INTEGRAL | {TypeKind.DECIMAL} for k in kinds):
        exact = [
            side if side.type.kind is TypeKind.DECIMAL else _exact(side) for side in (left, right)
        ]
        return Call("div_int", tuple(exact), BIGINT)
    args = tuple(converted("DIV", side, Argument.BIGINT) for side in (left, right))
    return Call("div_int", args, BIGINT)


def _exact(side: Expr) -> Expr:
    return coerce(side, DataType(TypeKind.DECIMAL, 20, 0))


def bits(op: str, args: Sequence[Expr]) -> Expr:
    """Typed ``&``, ``|``, ``^`` or ``~`` of integers.

    Raises:
        QueryError: ``type-mismatch``.
    """
    for arg in args:
        if arg.type.kind not in INTEGRAL:
            converted(OPERATIONS[op], arg, Argument.BIGINT)
    kind = reduce(lambda a, b: a if common_type(a, b) == a else b, (arg.type for arg in args))
    return Call(op, tuple(coerce(arg, kind) for arg in args), kind)


def _shift(op: str) -> Callable[[Sequence[Expr]], Expr]:
    def made(args: Sequence[Expr]) -> Expr:
        wide = args[0].type.kind is TypeKind.BIGINT
        value = converted(op, args[0], Argument.BIGINT if wide else Argument.INT)
        return Call(op, (value, converted(op, args[1], Argument.INT)), value.type)

    return made


def rounded_type(kind: DataType, digits: int) -> DataType:
    """The type of an SQL decimal of type ``kind`` after rounding to ``digits`` places."""
    scale = min(kind.scale, digits)
    precision = min(kind.precision - kind.scale + 1 + scale, MAX_PRECISION)
    return DataType(TypeKind.DECIMAL, precision, scale)


def _bround(args: Sequence[Expr]) -> Expr:
    value, digits = args[0], args[1] if len(args) > 1 else Literal(0, INT)
    if not isinstance(digits, Literal) or not isinstance(digits.value, int) or digits.value < 0:
        raise unsupported(f"bround() to {digits} digits", "write a number into the query")
    kind = value.type
    if kind.kind in INTEGRAL:
        return value
    if kind.kind is TypeKind.DECIMAL:
        return Call("bround", (value, digits), rounded_type(kind, digits.value))
    found = Call("bround", (converted("bround", value, Argument.DOUBLE), digits), DOUBLE)
    return coerce(found, kind) if kind.kind is TypeKind.FLOAT else found


#: SQL function of numbers -> rewriting of its calls.
NUMBERS: dict[str, Rewriting] = {
    **{op: rewriting(Signature(op, (Argument.DOUBLE,), DOUBLE)) for op in _OF_ONE},
    **{
        name: rewriting(Signature(op, (Argument.DOUBLE, Argument.DOUBLE), DOUBLE))
        for name, op in (
            ("power", "power"),
            ("pow", "power"),
            ("atan2", "atan2"),
            ("hypot", "hypot"),
        )
    },
    "ceil": Rewriting(1, 1, _integral("ceil")),
    "ceiling": Rewriting(1, 1, _integral("ceil")),
    "e": Rewriting(0, 0, lambda _: Literal(e, DOUBLE)),
    "floor": Rewriting(1, 1, _integral("floor")),
    "isnan": rewriting(Signature("isnan", (Argument.DOUBLE,), BOOLEAN)),
    "log": Rewriting(1, 2, _log),
    "pi": Rewriting(0, 0, lambda _: Literal(pi, DOUBLE)),
    "pmod": Rewriting(2, 2, _pmod),
    "sign": Rewriting(1, 1, _sign),
    "signum": Rewriting(1, 1, _sign),
    **{op: Rewriting(2, 2, _shift(op)) for op in ("shiftleft", "shiftright")},
    "bround": Rewriting(1, 2, _bround),
    "width_bucket": rewriting(
        Signature(
            "width_bucket",
            (Argument.DOUBLE, Argument.DOUBLE, Argument.DOUBLE, Argument.BIGINT),
            BIGINT,
        )
    ),
}
