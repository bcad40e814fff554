"""Spark's ANSI type rules: the common type of two operands, and the result type of arithmetic.

Spark converts silently between some families of types (string with number, date with timestamp).
Such a conversion is rarely intended; these functions return None, and the caller demands a cast.

>>> common_type(parse_type("int"), parse_type("decimal(10,2)"))
'decimal(12,2)'
>>> str(arithmetic_type("mul", parse_type("decimal(38,10)"), parse_type("decimal(38,10)")))
'decimal(38,6)'
"""

from __future__ import annotations

from decimal import Decimal

from anabranch_contract.queries.types import (
    EXACT,
    FLOATING,
    INTEGRAL,
    INTERVALS,
    NESTED,
    NUMERIC,
    TIMESTAMPS,
    WIDTHS,
    DataType,
    TypeKind,
    parse_type,
)

MAX_PRECISION = 38
_MINIMUM_ADJUSTED_SCALE = 6
_DIGITS = {TypeKind.TINYINT: 3, TypeKind.SMALLINT: 5, TypeKind.INT: 10, TypeKind.BIGINT: 20}
_RANGES = {
    TypeKind.TINYINT: 2**7,
    TypeKind.SMALLINT: 2**15,
    TypeKind.INT: 2**31,
    TypeKind.BIGINT: 2**63,
}
DOUBLE = DataType(TypeKind.DOUBLE)
INT = DataType(TypeKind.INT)
BIGINT = DataType(TypeKind.BIGINT)
TIMESTAMP = DataType(TypeKind.TIMESTAMP)


def as_decimal(type_: DataType) -> DataType:
    """Return the decimal type that has all values of an integral type; a decimal type unchanged."""
    if type_.kind is TypeKind.DECIMAL:
        return type_
    return DataType(TypeKind.DECIMAL, _DIGITS[type_.kind], 0)


def decimal_of(value: Decimal | int) -> DataType:
    """Return the narrowest decimal type of a constant, as Spark does for literals.

    >>> str(decimal_of(Decimal("0.001"))), str(decimal_of(Decimal("100.00")))
    ('decimal(3,3)', 'decimal(5,2)')
    """
    _, digits, exponent = Decimal(value).as_tuple()
    scale = max(0, -int(exponent))
    return DataType(TypeKind.DECIMAL, max(len(digits) + max(0, int(exponent)), scale, 1), scale)


def fits(value: int, kind: TypeKind) -> bool:
    """Whether a column of the integral type ``kind`` can have ``value``."""
    return -_RANGES[kind] <= value < _RANGES[kind]


def integer_digits(type_: DataType) -> int:
    """Return the maximum number of digits before the point in values of an exact numeric type."""
    if type_.kind is TypeKind.BIGINT:
        return 19
    return as_decimal(type_).precision - type_.scale


def common_type(left: DataType, right: DataType) -> DataType | None:
    """Return the common type for comparisons, CASE and coalesce; None if a cast is needed.

    The common type of exact numbers has all their values. So two decimals that would need more than
    38 digits have no common type.
    """
    if left == right:
        return left
    kinds = {left.kind, right.kind}
    if TypeKind.NULL in kinds:
        return right if left.kind is TypeKind.NULL else left
    if kinds <= INTEGRAL:
        return DataType(max(kinds, key=WIDTHS.index))
    if kinds <= EXACT:
        a, b = as_decimal(left), as_decimal(right)
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale
        if precision > MAX_PRECISION:
            return None
        return DataType(TypeKind.DECIMAL, precision, scale)
    if kinds <= NUMERIC:
        return DOUBLE
    if kinds <= TIMESTAMPS:
        return TIMESTAMP
    if left.kind is right.kind and left.kind in INTERVALS:
        units = min(left.precision, right.precision), max(left.scale, right.scale)
        return DataType(left.kind, *units)
    if len(kinds) == 1 and kinds <= NESTED and len(left.fields) == len(right.fields):
        pairs = zip(left.fields, right.fields, strict=True)
        met = [(name, common_type(a, b)) for (name, a), (_, b) in pairs]
        fields = tuple((name, one) for name, one in met if one is not None)
        if len(fields) == len(met):
            return DataType(left.kind, fields=fields)
    return None


def arithmetic_type(op: str, left: DataType, right: DataType) -> DataType | None:
    """Return the result type of ``add, sub, mul, div, mod`` of two numbers; None for other types.

    The quotient of integers is a double. Decimals follow the SQL rules for precision and scale; a
    result of more than 38 digits loses fraction digits, down to six.
    """
    kinds = {left.kind, right.kind}
    if not kinds <= NUMERIC:
        return None
    if kinds & FLOATING:
        return left if kinds == {TypeKind.FLOAT} and op != "div" else DOUBLE
    if kinds <= INTEGRAL:
        return DOUBLE if op == "div" else DataType(max(kinds, key=WIDTHS.index))
    a, b = as_decimal(left), as_decimal(right)
    whole_a, whole_b = a.precision - a.scale, b.precision - b.scale
    if op in ("add", "sub"):
        scale = max(a.scale, b.scale)
        precision = max(whole_a, whole_b) + scale + 1
    elif op == "mul":
        scale = a.scale + b.scale
        precision = a.precision + b.precision + 1
    elif op == "div":
        scale = max(_MINIMUM_ADJUSTED_SCALE, a.scale + b.precision + 1)
        precision = whole_a + b.scale + scale
    else:
        scale = max(a.scale, b.scale)
        precision = min(whole_a, whole_b) + scale
    return _adjusted(precision, scale)


def castable(source: DataType, target: DataType) -> bool:
    """Whether Spark in ANSI mode has an explicit cast from ``source`` to ``target``."""
    a, b = source.kind, target.kind
    if TypeKind.NULL in (a, b):
        return True
    if TypeKind.VARIANT in (a, b):
        return a is b
    if a in NESTED or b in NESTED:
        pairs = zip(source.fields, target.fields, strict=False)
        same = a is b and len(source.fields) == len(target.fields)
        return same and all(castable(x, y) for (_, x), (_, y) in pairs)
    if a is b:
        return True
    if TypeKind.STRING in (a, b):
        return True
    if a in INTERVALS:
        return b in INTEGRAL
    if b in INTERVALS:
        return a in INTEGRAL and target.units[0] == target.units[1]
    numberlike = NUMERIC | {TypeKind.BOOLEAN}
    timelike = TIMESTAMPS | {TypeKind.DATE}
    return {a, b} <= numberlike or {a, b} <= timelike


def _adjusted(precision: int, scale: int) -> DataType:
    if precision <= MAX_PRECISION:
        return DataType(TypeKind.DECIMAL, precision, scale)
    least = min(scale, _MINIMUM_ADJUSTED_SCALE)
    return DataType(
        TypeKind.DECIMAL, MAX_PRECISION, max(MAX_PRECISION - (precision - scale), least)
    )


#: The type ``string``.
STRING = parse_type("string")
DATE = parse_type("date")
