"""CAST as in Spark's ANSI mode: a value that the target can't hold is an error.

Common spellings are read by Arrow kernels, unusual ones value by value, once per distinct value.

Some casts of Spark are refused with an :class:`ExpressionError`: years outside 0001 to 9999 in
text; time zones by region name, and times without a date, in text; decimals whose nearest ``float``
can't be found through a double. ``double`` and ``float`` are cast to the shortest text that reads
back as the same number, as in Java since version 19; older versions write a superfluous digit for a
few numbers.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.text_values import (
    SEVERAL_ROWS,
    UNIT_SIZES,
    WIDE,
    quantized,
    reader_of,
)
from anabranch_contract.queries.types import (
    EXACT,
    FLOATING,
    INTEGRAL,
    INTERVALS,
    NESTED,
    TIMESTAMPS,
    DataType,
    TypeKind,
)
from anabranch_runtime.columns.arrays import (
    MICROS_PER_DAY,
    assemble,
    by_value,
    fixed,
    interval_numbers,
    interval_texts,
    intervals,
    overflow,
    present,
    unscaled,
    with_nulls,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import rebuilt
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.arithmetic import checked, rounded
from anabranch_runtime.expressions.common_spellings import read_common

_LONG = 1 << 63
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def cast(column: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Evaluate SQL's CAST of ``column`` from type ``source`` (in its Arrow type) to ``target``.

    Raises:
        ExpressionError: a value can't be cast, or Spark has no such cast.
    """
    if source == target:
        return column
    if source.kind is TypeKind.NULL:
        return pa.nulls(len(column), arrow_type(target))
    a, b = source.kind, target.kind
    if a in NESTED and a is b:
        pairs = [(x, y) for (_, x), (_, y) in zip(source.fields, target.fields, strict=True)]
        return rebuilt(column, target, lambda part, n: cast(part, *pairs[n]))
    if a is TypeKind.STRING:
        return _from_string(column, target)
    if b is TypeKind.STRING:
        return _to_string(column, source)
    if a in INTERVALS:
        return _from_interval(column, source, target)
    if b in INTERVALS:
        size = pa.scalar(UNIT_SIZES[b][target.scale], pa.int64())
        return intervals(checked("mul", [column.cast(pa.int64()), size], target), target)
    if a is TypeKind.BOOLEAN and (b in EXACT or b in FLOATING):
        return _to_number(column.cast(pa.int8()), DataType(TypeKind.TINYINT), target)
    if b is TypeKind.BOOLEAN and (a in EXACT or a in FLOATING):
        zero = pa.scalar(Decimal(0) if a is TypeKind.DECIMAL else 0).cast(column.type)
        return pc.not_equal(column, zero)
    if (a in EXACT or a in FLOATING) and (b in EXACT or b in FLOATING):
        return _to_number(column, source, target)
    if a in TIMESTAMPS and b in TIMESTAMPS:
        return column.view(arrow_type(target))
    if a is TypeKind.DATE and b in TIMESTAMPS:
        micros = fixed(column, np.int32).astype(np.int64) * MICROS_PER_DAY
        return with_nulls(micros, arrow_type(target), present(column))
    if a in TIMESTAMPS and b is TypeKind.DATE:
        days = np.floor_divide(fixed(column, np.int64), MICROS_PER_DAY).astype(np.int32)
        return with_nulls(days, arrow_type(target), present(column))
    raise ExpressionError(
        "bad-cast",
        f"{source} can't be cast to {target}",
        remedy="cast the value by way of another type",
    )


# --- numbers ------------------------------------------------------------------------------------


def _to_number(column: pa.Array, source: DataType, target: DataType) -> pa.Array:
    a, b = source.kind, target.kind
    arrow = arrow_type(target)
    if b is TypeKind.DECIMAL:
        if a is TypeKind.DECIMAL:
            return rounded(column, target)
        if a in INTEGRAL:
            return rounded(column.cast(pa.int64()).cast(pa.decimal128(19, 0)), target)
        return _float_to_decimal(column, target)
    if a in INTEGRAL and b in INTEGRAL:
        try:
            return column.cast(arrow)
        except pa.ArrowInvalid as error:
            raise overflow(target) from error
    if a is TypeKind.DECIMAL:
        if b in INTEGRAL:
            return _decimal_to_integer(column, source, target)
        return _decimal_to_float(column, arrow)
    floats = np.float32 if b is TypeKind.FLOAT else np.float64
    if b in FLOATING:
        values = fixed(column, column.type.to_pandas_dtype())
        with np.errstate(over="ignore"):
            return with_nulls(values.astype(floats), arrow, present(column))
    return _float_to_integer(column, target)


def _float_to_decimal(column: pa.Array, target: DataType) -> pa.Array:
    """Convert floats' shortest texts to decimals, rounding half up; NULL for NaN and infinities.

    A double scaled by the power of ten has a relative error of at most 2**-52, so it rounds to the
    same integer as its text, unless it lies within that error of the middle between two integers.
    Such values, great numbers, and floats of 32 bits (with shorter texts than equal doubles) are
    converted one by one.
    """
    valid = present(column)
    values = fixed(column, column.type.to_pandas_dtype()).astype(np.float64)
    with np.errstate(all="ignore"):
        scaled = np.abs(values) * 10.0**target.scale
        whole = np.floor(scaled)
        rest = scaled - whole
        near = np.abs(rest - 0.5) <= scaled * 2.0**-50 + 2.0**-60
        known = (scaled < 2.0**52) & ~near
    if pa.types.is_float32(column.type) or target.scale > 22 or not known.any():
        return by_value(column, lambda v: _decimal_of(v, target), arrow_type(target))
    unscaled_values = np.where(known, whole + (rest > 0.5), 0.0).astype(np.int64)
    unscaled_values = np.where(values < 0, -unscaled_values, unscaled_values)
    if target.precision < 16 and (np.abs(unscaled_values) >= 10**target.precision).any():
        beyond = np.abs(unscaled_values) >= 10**target.precision
        if (beyond if valid is None else beyond & valid).any():
            raise overflow(target)
    words = np.stack([unscaled_values, unscaled_values >> 63], axis=1)
    shown = known if valid is None else known & valid
    bits = pa.array(shown).buffers()[1]
    found = pa.Array.from_buffers(
        arrow_type(target), len(column), [bits, pa.py_buffer(np.ascontiguousarray(words))]
    )
    left = ~known if valid is None else ~known & valid
    if not left.any():
        return found
    rows = np.flatnonzero(left)
    exact = by_value(
        column.take(pa.array(rows)), lambda v: _decimal_of(v, target), arrow_type(target)
    )
    return assemble(
        [(np.flatnonzero(shown), found.filter(pa.array(shown))), (rows, exact)],
        len(column),
        arrow_type(target),
    )


def _decimal_to_integer(column: pa.Array, source: DataType, target: DataType) -> pa.Array:
    cut = pc.trunc(column.cast(pa.decimal256(76, source.scale)))
    try:
        return cut.cast(pa.int64()).cast(arrow_type(target))
    except pa.ArrowInvalid as error:
        raise overflow(target) from error


def _decimal_to_float(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast each decimal to the nearest float.

    An unscaled value below 2**53 and 10 to the power of up to 22 are exact doubles, so their
    division rounds only once (Clinger 1990). All other values use Python's integers.
    """
    scale = column.type.scale
    valid = present(column)
    words = fixed(column, np.dtype("V16")).view(np.int64).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    small = (np.abs(low) < 1 << 53) & (high == low >> 63)
    if valid is not None:
        small = small | ~valid
    if scale <= 22 and small.all():
        doubles = low.astype(np.float64) / 10.0**scale
    else:
        doubles = np.array(
            [0.0 if v is None else v / 10**scale for v in unscaled(column)], dtype=np.float64
        )
    if pa.types.is_float32(target):
        half = doubles.view(np.int64) & ((1 << 29) - 1) == 1 << 28
        if valid is not None:
            half &= valid
        exact = unscaled(column.take(pa.array(np.flatnonzero(half)))) if half.any() else []
        for value, double in zip(exact, doubles[half].tolist(), strict=True):
            if Fraction(value or 0, 10**scale) != Fraction(double):
                raise ExpressionError(
                    "unsupported",
                    "a decimal lies too close to the middle between two floats",
                    remedy="cast to double",
                )
        return with_nulls(doubles.astype(np.float32), target, valid)
    return with_nulls(doubles, target, valid)


def _float_to_integer(column: pa.Array, target: DataType) -> pa.Array:
    valid = present(column)
    doubles = fixed(column, column.type.to_pandas_dtype()).astype(np.float64)
    if valid is not None:
        doubles[~valid] = 0.0
    bits = arrow_type(target).bit_width
    least, most = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1.0
    # Compare as doubles, as in Java: for bigint, 2**63 is accepted and becomes 2**63 - 1.
    if not bool(((np.floor(doubles) <= most) & (np.ceil(doubles) >= least)).all()):
        raise overflow(target)
    cut = np.trunc(doubles)
    top = cut >= 2.0**63
    cut[top] = 0.0
    whole = cut.astype(np.int64)
    whole[top] = _LONG - 1
    return with_nulls(whole.astype(arrow_type(target).to_pandas_dtype()), arrow_type(target), valid)


def _decimal_of(value: Any, target: DataType) -> Decimal | None:
    """Cast a float to the decimal of its shortest text; NULL for NaN and infinities."""
    number = float(value)
    if not np.isfinite(number):
        return None
    return _quantized(Decimal(repr(number)), target)


def _quantized(value: Decimal, target: DataType) -> Decimal:
    try:
        return quantized(value, target)
    except OverflowError as error:
        raise overflow(target) from error


# --- intervals ----------------------------------------------------------------------------------


def _from_interval(column: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Cast intervals to other units, or to a number of units, cutting off smaller ones."""
    last = source if target.kind in INTEGRAL else target
    size = UNIT_SIZES[source.kind][last.scale]
    numbers = interval_numbers(column)
    whole = numbers // size + ((numbers < 0) & (numbers % size != 0))
    if target.kind in INTEGRAL:
        counts = with_nulls(whole, pa.int64(), present(column))
        return _to_number(counts, DataType(TypeKind.BIGINT), target)
    if target.scale >= source.scale:
        return column
    return intervals(with_nulls(whole * size, pa.int64(), present(column)), target)


# --- text to values -----------------------------------------------------------------------------


def _from_string(column: pa.Array, target: DataType) -> pa.Array:
    arrow = arrow_type(target)
    if target.kind is TypeKind.BINARY:
        return column.cast(arrow)
    common = read_common(column, target)
    if common is not None:
        return common
    if target.kind in INTERVALS:
        arrow = pa.int64()
    reader = reader_of(target)

    def read(text: str) -> Any:
        try:
            value = reader(text)
        except OverflowError as error:
            raise overflow(target) from error
        except ValueError as error:
            remedy = "write the value in full, moments in UTC, or cast to double"
            raise ExpressionError("unsupported", str(error), remedy=remedy) from error
        if value is None:
            raise malformed(text, target)
        return value

    found = by_value(column, read, arrow)
    return intervals(found, target) if target.kind in INTERVALS else found


def malformed(text: str, target: DataType) -> ExpressionError:
    """Return the error of a CAST for text that can't be read as a ``target``."""
    if text == SEVERAL_ROWS:
        return ExpressionError(
            "several-rows",
            "a scalar subquery gives several rows, and its value is needed",
            remedy="replace the query: with an aggregate such as max(x) in the subquery, or with "
            "ORDER BY and LIMIT 1",
        )
    shown = text if len(text) <= 60 else text[:57] + "..."
    return ExpressionError(
        "bad-cast",
        f"{shown!r} can't be cast to {target}",
        remedy="filter such rows out first, or correct the input",
    )


# --- values to text -----------------------------------------------------------------------------


def _to_string(column: pa.Array, source: DataType) -> pa.Array:
    kind = source.kind
    if kind in INTEGRAL or kind is TypeKind.BOOLEAN:
        return column.cast(pa.string())
    if kind is TypeKind.BINARY:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise ExpressionError("bad-cast", "a binary value is not UTF-8 text") from error
    if kind in FLOATING:
        return by_value(column, java_text, pa.string())
    if kind is TypeKind.DECIMAL:
        # Up to scale 6, Arrow's texts are Spark's; below 1e-6 Arrow would use scientific notation.
        if source.scale <= 6:
            return column.cast(pa.string())
        return by_value(column, lambda v: format(v, "f"), pa.string())
    if kind is TypeKind.DATE:
        require_years(column, 1)
        return column.cast(pa.string())
    if kind in TIMESTAMPS:
        require_years(column, MICROS_PER_DAY)
        text = pc.strftime(column.view(pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")
        return _without_zeros(text)
    if kind in INTERVALS:
        return interval_texts(column, source)
    raise ExpressionError("bad-cast", f"{source} can't be cast to string")


def _without_zeros(text: pa.Array) -> pa.Array:
    short = pc.replace_substring_regex(text, pattern=r"0+$", replacement="")
    has_fraction = pc.match_substring(text, ".")
    short = pc.utf8_rtrim(pc.if_else(has_fraction, short, text), characters=".")
    return short.cast(pa.string())


def require_years(column: pa.Array, per_day: int) -> None:
    """Check that dates (``per_day`` 1) or timestamps in microseconds are in years 0001 to 9999.

    Raises:
        ExpressionError: a value is outside these years.
    """
    bounds = pc.min_max(column.view(pa.int32() if per_day == 1 else pa.int64()))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and (least < _FIRST_DAY * per_day or most >= (_LAST_DAY + 1) * per_day):
        raise ExpressionError("unsupported", "a year outside 0001 to 9999 can't be written as text")


def java_text(value: Any) -> str:
    """Format a float or double as Java does.

    >>> java_text(1e7), java_text(0.001), java_text(123.0), java_text(1.5e-5)
    ('1.0E7', '0.001', '123.0', '1.5E-5')
    """
    if np.isnan(value):
        return "NaN"
    sign = "-" if np.signbit(value) else ""
    if np.isinf(value):
        return sign + "Infinity"
    if value == 0:
        return sign + "0.0"
    shortest = str(value) if isinstance(value, np.floating) else repr(value)
    _, digits, exponent = Decimal(shortest).normalize(WIDE).as_tuple()
    if len(digits) == 1:
        # Java writes at least two digits: the nearest two are taken if they read back as equal.
        closer = f"{value:.1e}"
        if type(value)(closer) == value:
            _, digits, exponent = Decimal(closer).normalize(WIDE).as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{text}"
        whole = text[:point].ljust(point, "0")
        return f"{sign}{whole}.{text[point:] or '0'}"
    return f"{sign}{text[0]}.{text[1:] or '0'}E{point - 1}"
