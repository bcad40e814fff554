"""Arithmetic as in Spark's ANSI mode: overflow and division by zero are errors.

``/`` of integers gives a double. Floats follow IEEE 754, except that division by zero is an error.
``%`` has the sign of the dividend. A decimal result is computed exactly and then rounded half up to
the scale of the call's type; as in Spark, a quotient is first rounded to 39 decimal places.
Timestamps and intervals are numbers of microseconds, or of months; products and quotients of
intervals are rounded half up.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.types import (
    FLOATING,
    INTEGRAL,
    INTERVALS,
    TIMESTAMPS,
    DataType,
    TypeKind,
)
from anabranch_runtime.columns.arrays import (
    Ints,
    both,
    decimals,
    fixed,
    interval_numbers,
    intervals,
    overflow,
    present,
    unscaled,
    with_nulls,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError

_CHECKED = {
    "add": pc.add_checked,
    "sub": pc.subtract_checked,
    "mul": pc.multiply_checked,
    "neg": pc.negate_checked,
    "abs": pc.abs_checked,
}
_QUOTIENT_SCALE = 39
_TIMES = TIMESTAMPS | INTERVALS
_WHOLE = DataType(TypeKind.DECIMAL, 38, 0)


def binary(op: str, left: pa.Array, right: pa.Array, kind: DataType) -> pa.Array:
    """Compute ``left op right`` as ``kind``; ``op``: ``add``, ``sub``, ``mul``, ``div``, ``mod``.

    Raises:
        ExpressionError: overflow, or a divisor of zero.
    """
    if op in ("div", "mod"):
        _refuse_zero(left, right)
    if kind.kind is TypeKind.DECIMAL:
        return _decimal_arithmetic(op, left, right, kind)
    if kind.kind in INTERVALS and op in ("mul", "div"):
        return _scaled(op, left, right, kind)
    if kind.kind in _TIMES:
        if op not in ("add", "sub"):
            raise ExpressionError("unsupported", f"{op} is not defined for {kind}")
        return checked(op, [_numbers(left), _numbers(right)], kind).view(arrow_type(kind))
    target = arrow_type(kind)
    a, b = left.cast(target), right.cast(target)
    if kind.kind in FLOATING:
        return _floating(op, a, b, target)
    if kind.kind not in INTEGRAL or op == "div":
        raise ExpressionError("unsupported", f"{op} is not defined for {kind}")
    if op == "mod":
        return _integer_mod(a, b, target)
    return checked(op, [a, b], kind)


def unary(op: str, value: pa.Array, kind: DataType) -> pa.Array:
    """Compute ``neg`` or ``abs`` of ``value`` as type ``kind``.

    Raises:
        ExpressionError: overflow: the least integer has no positive counterpart.
    """
    if kind.kind in _TIMES:
        return checked(op, [_numbers(value)], kind).view(arrow_type(kind))
    return checked(op, [value], kind).cast(arrow_type(kind))


def rounded(column: pa.Array, kind: DataType) -> pa.Array:
    """Convert decimals to the decimal type ``kind`` of an SQL expression, rounding half up.

    Raises:
        ExpressionError: a value has too many digits before the decimal point.
    """
    target = arrow_type(kind)
    if column.type == target:
        return column
    try:
        if column.type.scale <= kind.scale and (
            kind.precision - kind.scale >= column.type.precision - column.type.scale
        ):
            return column.cast(target)
        wide = column.cast(pa.decimal256(76, column.type.scale))
        if column.type.scale > kind.scale:
            wide = pc.round(wide, ndigits=kind.scale, round_mode="half_towards_infinity")
        return wide.cast(pa.decimal256(76, kind.scale)).cast(target)
    except pa.ArrowInvalid as error:
        raise overflow(kind) from error


def _numbers(times: pa.Array) -> pa.Array:
    return times if times.type == pa.int32() else times.view(pa.int64())


def _scaled(op: str, value: pa.Array, by: pa.Array, kind: DataType) -> pa.Array:
    """Return intervals multiplied or divided by numbers, rounded half up as in Spark."""
    valid = both(present(value), present(by))
    numbers = interval_numbers(value)
    if pa.types.is_decimal(by.type):
        exact = pa.array(numbers, mask=None if valid is None else ~valid)
        whole = _decimal_arithmetic(op, exact.cast(pa.decimal128(19, 0)), by, _WHOLE)
        try:
            return intervals(whole.cast(pa.int64()), kind)
        except pa.ArrowInvalid as error:
            raise overflow(kind) from error
    if pa.types.is_floating(by.type):
        factors = fixed(by, by.type.to_pandas_dtype()).astype(np.float64)
        with np.errstate(all="ignore"):
            floats = numbers * factors if op == "mul" else numbers / factors
            nearest = np.rint(floats)
            tied = np.abs(floats - nearest) == 0.5
            nearest = np.where(tied, floats + np.copysign(0.5, floats), nearest)
        good = (nearest >= -(2.0**63)) & (nearest < 2.0**63)
        if not (good if valid is None else good | ~valid).all():
            raise overflow(kind)
        found = np.where(good, nearest, 0.0).astype(np.int64)
    elif op == "mul":
        exact = pa.array(numbers, mask=None if valid is None else ~valid)
        return intervals(checked(op, [exact, by.cast(pa.int64())], kind), kind)
    else:
        divisors = fixed(by.cast(pa.int64()), np.int64)
        found = half_up(numbers, np.where(divisors == 0, 1, divisors))
        beyond = (numbers == np.iinfo(np.int64).min) & (divisors == -1)
        if (beyond if valid is None else beyond & valid).any():
            raise overflow(kind)
    return intervals(with_nulls(found, pa.int64(), valid), kind)


def half_up(numbers: Ints, divisors: Ints) -> Ints:
    """Divide integers as SQL rounds: half away from zero; no divisor may be 0."""
    size, by = (np.abs(part).view(np.uint64) for part in (numbers, divisors))
    quotient = size // by
    rest = size - quotient * by
    found: Ints = (quotient + (rest >= by - rest)).view(np.int64)
    return np.where((numbers < 0) != (divisors < 0), -found, found)


def checked(op: str, args: list[pa.Array], kind: DataType) -> pa.Array:
    """Compute the arithmetic operation ``op`` of integers or decimals by Arrow's checked kernels.

    Raises:
        ExpressionError: overflow of the type ``kind``.
    """
    try:
        return _CHECKED[op](*args)
    except pa.ArrowInvalid as error:
        raise overflow(kind) from error


def _refuse_zero(left: pa.Array, right: pa.Array) -> None:
    if pa.types.is_decimal(right.type):
        zero = pa.scalar(0, pa.int64()).cast(pa.decimal128(19, 0)).cast(right.type)
    else:
        zero = pa.scalar(0).cast(right.type)
    bad = pc.and_(pc.equal(right, zero), left.is_valid())
    if pc.any(bad).as_py():
        raise divided_by_zero()


def divided_by_zero() -> ExpressionError:
    """Return the error for an SQL expression that divides by zero."""
    return ExpressionError(
        "divide-by-zero",
        "a divisor is zero",
        remedy="guard it, e.g. CASE WHEN d <> 0 THEN n / d END",
    )


def _floating(op: str, left: pa.Array, right: pa.Array, target: pa.DataType) -> pa.Array:
    if op == "mod":
        dtype = np.float32 if pa.types.is_float32(target) else np.float64
        with np.errstate(all="ignore"):
            values = np.fmod(fixed(left, dtype), fixed(right, dtype))
        return with_nulls(values, target, both(present(left), present(right)))
    plain = {"add": pc.add, "sub": pc.subtract, "mul": pc.multiply, "div": pc.divide}
    return plain[op](left, right)


def _integer_mod(left: pa.Array, right: pa.Array, target: pa.DataType) -> pa.Array:
    valid = both(present(left), present(right))
    dtype = target.to_pandas_dtype()
    divisor = fixed(right, dtype)
    # Divisors of 0 at NULLs, and of -1 (whose quotient may overflow), become 1: x % 1 is 0, too.
    divisor = np.where((divisor == 0) | (divisor == -1), 1, divisor).astype(dtype)
    return with_nulls(np.fmod(fixed(left, dtype), divisor), target, valid)


def _decimal_arithmetic(op: str, left: pa.Array, right: pa.Array, kind: DataType) -> pa.Array:
    a, b = left.type, right.type
    if op in ("add", "sub"):
        whole = max(a.precision - a.scale, b.precision - b.scale)
        digits = whole + max(a.scale, b.scale) + 1
    else:
        digits = a.precision + b.precision + 1
    if op in ("div", "mod") or digits > 76:
        return _exact(op, left, right, kind)
    if digits > 38:
        left = left.cast(pa.decimal256(a.precision, a.scale))
        right = right.cast(pa.decimal256(b.precision, b.scale))
    return rounded(checked(op, [left, right], kind), kind)


def _exact(op: str, left: pa.Array, right: pa.Array, kind: DataType) -> pa.Array:
    """Compute quotients, remainders and results over 76 digits of decimals by Python's integers."""
    s, t = left.type.scale, right.type.scale
    common = max(s, t)
    results: list[int | None] = []
    for a, b in zip(unscaled(left), unscaled(right), strict=True):
        if a is None or b is None:
            results.append(None)
            continue
        x, y = a * 10 ** (common - s), b * 10 ** (common - t)
        if op == "div":
            quotient = _half_up(x * 10**_QUOTIENT_SCALE, y)
            results.append(_rescaled(quotient, _QUOTIENT_SCALE, kind.scale))
        elif op == "mod":
            rest = abs(x) % abs(y)
            results.append(_rescaled(-rest if x < 0 else rest, common, kind.scale))
        elif op == "mul":
            results.append(_rescaled(a * b, s + t, kind.scale))
        else:
            results.append(_rescaled(x + y if op == "add" else x - y, common, kind.scale))
    return decimals(results, kind)


def _half_up(numerator: int, denominator: int) -> int:
    sign = -1 if (numerator < 0) != (denominator < 0) else 1
    quotient, rest = divmod(abs(numerator), abs(denominator))
    return sign * (quotient + (2 * rest >= abs(denominator)))


def _rescaled(value: int, scale: int, target: int) -> int:
    if target >= scale:
        return value * int(10 ** (target - scale))
    return _half_up(value, int(10 ** (scale - target)))
