"""Spark's mathematical functions, over doubles by numpy.

Java's ``StrictMath`` and the C library may differ in the last bit of a transcendental function.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.coercion import DOUBLE
from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.text_values import WIDE
from anabranch_contract.queries.types import TypeKind
from anabranch_runtime.columns.arrays import (
    all_present,
    both,
    by_value,
    fixed,
    overflow,
    present,
    with_nulls,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.expressions.arithmetic import divided_by_zero, rounded
from anabranch_runtime.expressions.casts import cast

Doubles = npt.NDArray[np.float64]


def _doubles(column: pa.Array) -> Doubles:
    return fixed(column, np.float64)


def _plain(function: Callable[[Doubles], Any]) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        with np.errstate(all="ignore"):
            return with_nulls(function(_doubles(args[0])), pa.float64(), present(args[0]))

    return kernel


def _logarithm(
    function: Callable[[Doubles], Any], above: float
) -> Callable[[Call, list[pa.Array]], pa.Array]:
    """Return the kernel of a logarithm, which is NULL for values up to ``above``."""

    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        values = _doubles(args[0])
        with np.errstate(all="ignore"):
            found = function(values)
        return with_nulls(found, pa.float64(), both(present(args[0]), ~(values <= above)))

    return kernel


def _two(function: Callable[[Doubles, Doubles], Any]) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        left, right = (_doubles(arg) for arg in args)
        with np.errstate(all="ignore"):
            found = function(left, right)
        return with_nulls(found, pa.float64(), all_present(*args))

    return kernel


def _power(base: Doubles, exponent: Doubles) -> Doubles:
    """Evaluate ``power``; as in Java, NaN for 1 to the power of NaN, and ±1 to infinity."""
    odd = np.isnan(exponent) | ((np.abs(base) == 1) & np.isinf(exponent))
    found: Doubles = np.where(odd, np.nan, np.power(base, exponent))
    return found


def log(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``log(base, x)``: NULL if either argument is not positive."""
    base, value = (_doubles(arg) for arg in args)
    with np.errstate(all="ignore"):
        found = np.log(value) / np.log(base)
    valid = both(all_present(*args), ~((base <= 0) | (value <= 0)))
    return with_nulls(found, pa.float64(), valid)


def _integral(up: bool) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        source = call.args[0].type
        if source.kind is TypeKind.DECIMAL:
            wide = args[0].cast(pa.decimal256(76, source.scale))
            return rounded((pc.ceil if up else pc.floor)(wide), call.type)
        if source.kind is not TypeKind.DOUBLE:
            return args[0]
        with np.errstate(all="ignore"):
            whole = (np.ceil if up else np.floor)(_doubles(args[0]))
        valid = present(args[0])
        whole = np.where(np.isnan(whole), 0.0, whole)
        beyond = (whole < -(2.0**63)) | (whole >= 2.0**63)
        if (beyond if valid is None else beyond & valid).any():
            raise overflow(call.type)
        return with_nulls(np.where(beyond, 0.0, whole).astype(np.int64), pa.int64(), valid)

    return kernel


def pmod(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``pmod(n, divisor)``: the remainder, plus the divisor where it would be negative.

    Raises:
        ExpressionError: a divisor of zero.
    """
    left, right = args
    valid = both(present(left), present(right))
    target = arrow_type(call.type)
    dtype = target.to_pandas_dtype()
    n, divisor = fixed(left, dtype), fixed(right, dtype)
    zero = divisor == 0
    if (zero if valid is None else zero & valid).any():
        raise divided_by_zero()
    divisor = np.where(zero, 1, divisor)
    with np.errstate(all="ignore"):
        rest = np.fmod(n, divisor)
        found = np.where(rest < 0, np.fmod(rest + divisor, divisor), rest)
    return with_nulls(found.astype(dtype), target, valid)


def div_int(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``left DIV right``: the quotient without its fraction, as a bigint.

    Raises:
        ExpressionError: a divisor of zero, or a quotient beyond bigint.
    """
    valid = all_present(*args)
    if call.args[0].type.kind is TypeKind.DECIMAL:
        wanted = call.args[0].type
        scale = max(wanted.scale, call.args[1].type.scale)
        left, right = (_unscaled(arg, scale) for arg in args)
        rows = range(len(left))
        found: list[int | None] = [None] * len(left)
        for row in rows:
            a, b = left[row], right[row]
            if a is None or b is None:
                continue
            if b == 0:
                raise divided_by_zero()
            found[row] = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        try:
            return pa.array(found, pa.int64())
        except OverflowError as error:
            raise overflow(call.type) from error
    n, divisor = (fixed(arg, np.int64) for arg in args)
    zero = divisor == 0
    if (zero if valid is None else zero & valid).any():
        raise divided_by_zero()
    least = (n == -(2**63)) & (divisor == -1)
    if (least if valid is None else least & valid).any():
        raise overflow(call.type)
    safe = np.where(zero | least, 1, divisor)
    quotient = np.floor_divide(n, safe)
    quotient += (quotient < 0) & (quotient * safe != n)
    return with_nulls(quotient, pa.int64(), valid)


def _unscaled(column: pa.Array, scale: int) -> list[int | None]:
    shift = 10 ** (scale - column.type.scale)
    return [
        None if v is None else int(v.scaleb(column.type.scale)) * shift for v in column.to_pylist()
    ]


def sign(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``sign(x)``: -1.0, 0.0 or 1.0 as a double."""
    values = _doubles(cast(args[0], call.args[0].type, DOUBLE))
    # The sign of -0.0 is -0.0.
    signs = np.where(values == 0, values, np.sign(values))
    return with_nulls(signs, pa.float64(), present(args[0]))


def isnan(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``isnan(x)``: whether a float is NaN; false for NULL."""
    return pc.fill_null(pc.is_nan(args[0]), False)


def _bits(function: Callable[..., Any]) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        target = arrow_type(call.type)
        values = [fixed(arg, arg.type.to_pandas_dtype()) for arg in args]
        found = function(*values).astype(target.to_pandas_dtype())
        return with_nulls(found, target, all_present(*args))

    return kernel


def _shifted(*, left: bool) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def shift(values: Any, by: Any) -> Any:
        # As in Java, only the low bits of the number of places to shift count.
        places = (by & (values.dtype.itemsize * 8 - 1)).astype(values.dtype)
        return np.left_shift(values, places) if left else np.right_shift(values, places)

    return _bits(shift)


def bround(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``bround(x, digits)``: rounds halves to the even digit."""
    digits = call.args[1]
    assert isinstance(digits, Literal)
    step = Decimal(1).scaleb(-int(str(digits.value)))

    def rounded_even(value: Any) -> Any:
        if isinstance(value, Decimal):
            return value.quantize(step, ROUND_HALF_EVEN, WIDE)
        number = float(value)
        if not np.isfinite(number) or abs(number) >= 2.0**53:
            return number
        # Adding 0.0 turns -0.0 into 0.0.
        return float(Decimal(repr(number)).quantize(step, ROUND_HALF_EVEN, WIDE)) + 0.0

    return by_value(args[0], rounded_even, arrow_type(call.type))


def width_bucket(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``width_bucket(x, low, high, buckets)``: 0 is below, ``buckets + 1`` above."""
    value, low, high = (_doubles(arg) for arg in args[:3])
    buckets = fixed(args[3], np.int64)
    wrong = (buckets <= 0) | (low == high) | ~np.isfinite(low) | ~np.isfinite(high)
    wrong |= np.isnan(value)
    with np.errstate(all="ignore"):
        inside = np.floor(buckets * (value - low) / (high - low))
    least, most = np.minimum(low, high), np.maximum(low, high)
    down = low > high
    before = np.where(down, value > most, value < least)
    after = np.where(down, value <= least, value >= most)
    inside = np.where(wrong | before | after, 0, inside)
    found = np.where(before, 0, np.where(after, buckets + 1, inside.astype(np.int64) + 1))
    return with_nulls(found, pa.int64(), both(all_present(*args), ~wrong))


#: Operation -> kernel.
NUMBERS: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "acos": _plain(np.arccos),
    "asin": _plain(np.arcsin),
    "atan": _plain(np.arctan),
    "atan2": _two(lambda y, x: np.arctan2(y + 0.0, x + 0.0)),
    "bit_and": _bits(np.bitwise_and),
    "bit_not": _bits(np.bitwise_not),
    "bit_or": _bits(np.bitwise_or),
    "bit_xor": _bits(np.bitwise_xor),
    "bround": bround,
    "ceil": _integral(up=True),
    "cos": _plain(np.cos),
    "degrees": _plain(lambda x: x * (180.0 / np.pi)),
    "div_int": div_int,
    "exp": _plain(np.exp),
    "expm1": _plain(np.expm1),
    "floor": _integral(up=False),
    "hypot": _two(np.hypot),
    "isnan": isnan,
    "ln": _logarithm(np.log, 0.0),
    "log": log,
    "log10": _logarithm(np.log10, 0.0),
    "log1p": _logarithm(np.log1p, -1.0),
    "log2": _logarithm(np.log2, 0.0),
    "pmod": pmod,
    "power": _two(_power),
    "radians": _plain(lambda x: x * (np.pi / 180.0)),
    "rint": _plain(np.rint),
    "shiftleft": _shifted(left=True),
    "shiftright": _shifted(left=False),
    "sign": sign,
    "sin": _plain(np.sin),
    "sqrt": _plain(np.sqrt),
    "tan": _plain(np.tan),
    "width_bucket": width_bucket,
}
#: Operations that can fail on a value.
FALLIBLE = frozenset({"ceil", "div_int", "floor", "pmod"})
