"""CAST as Spark does it in ANSI mode: a value that the target can't hold is an error.

Common forms run as Arrow kernels; unusual spellings are read once per distinct value.

Not answered, but refused with an :class:`ExpressionError`: years outside 0001 to 9999 in text;
time zones by region name, and times without a date, in text; decimals whose nearest ``float``
would need more than a double. ``double`` and ``float`` turn into the shortest text that
reads back as the same number, as Java has done since version 19; older ones give a digit too
many for a few numbers.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.types import (
    EXACT,
    FLOATING,
    INTEGRAL,
    TIMESTAMPS,
    DataType,
    TypeKind,
)
from anabranch_runtime.columns.arrays import (
    MICROS_PER_DAY,
    by_value,
    fixed,
    overflow,
    present,
    unscaled,
    with_nulls,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.arithmetic import rounded

if TYPE_CHECKING:
    from collections.abc import Callable

_WIDE = Context(prec=400, Emax=999_999, Emin=-999_999)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
# A zone may follow the seconds only.
_TIMESTAMP = re.compile(
    r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?\s*([^\d\s.].*)?)?)?)?)?)?",
    re.ASCII,
)
_TIME = re.compile(r"T?\d{1,2}:.*", re.ASCII)
_OFFSET = re.compile(r"([+-])(?:(\d\d)(\d\d)|(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}))?)?)", re.ASCII)
_NAMED_OFFSET = re.compile(r"(?:UTC|GMT|UT)([+-]\d{1,2}(?::\d{2})?)", re.ASCII)
_SPACE = "".join(map(chr, range(33)))
_CONTROL = _SPACE + "".join(map(chr, range(127, 160)))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG = 1 << 63
_PLAIN_INT = r"^-?[0-9]{1,18}$"
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def cast(column: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """``column`` of type ``source`` (in its Arrow type) cast to ``target``.

    Raises:
        ExpressionError: a value that can't be cast, or a cast that Spark doesn't have.
    """
    if source == target:
        return column
    if source.kind is TypeKind.NULL:
        return pa.nulls(len(column), arrow_type(target))
    a, b = source.kind, target.kind
    if a is TypeKind.STRING:
        return _from_string(column, target)
    if b is TypeKind.STRING:
        return _to_string(column, source)
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
        remedy="cast it by way of another type",
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
        return by_value(column, lambda v: _decimal_of(v, target), arrow)
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


def _decimal_to_integer(column: pa.Array, source: DataType, target: DataType) -> pa.Array:
    cut = pc.trunc(column.cast(pa.decimal256(76, source.scale)))
    try:
        return cut.cast(pa.int64()).cast(arrow_type(target))
    except pa.ArrowInvalid as error:
        raise overflow(target) from error


def _decimal_to_float(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Correctly rounded.

    An unscaled value below 2**53 and a power of ten up to 22 are doubles themselves, so that one
    division rounds once (Clinger 1990); anything else goes through Python's integers.
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
    # Compared as doubles, like in Java: for bigint, 2**63 itself still passes and is cut.
    if not bool(((np.floor(doubles) <= most) & (np.ceil(doubles) >= least)).all()):
        raise overflow(target)
    cut = np.trunc(doubles)
    top = cut >= 2.0**63
    cut[top] = 0.0
    whole = cut.astype(np.int64)
    whole[top] = _LONG - 1
    return with_nulls(whole.astype(arrow_type(target).to_pandas_dtype()), arrow_type(target), valid)


def _decimal_of(value: Any, target: DataType) -> Decimal | None:
    """A float as decimal by its shortest text; NULL for what is no number, even in ANSI mode."""
    number = float(value)
    if not np.isfinite(number):
        return None
    return _quantized(Decimal(repr(number)), target)


def _quantized(value: Decimal, target: DataType) -> Decimal:
    step = Decimal(1).scaleb(-target.scale)
    try:
        exact = value.quantize(step, rounding=ROUND_HALF_UP, context=_WIDE)
    except InvalidOperation as error:
        raise overflow(target) from error
    if abs(exact) >= Decimal(10) ** (target.precision - target.scale):
        raise overflow(target)
    return exact


# --- text to values -----------------------------------------------------------------------------


def _from_string(column: pa.Array, target: DataType) -> pa.Array:
    arrow = arrow_type(target)
    kind = target.kind
    if kind is TypeKind.BINARY:
        return column.cast(arrow)
    if kind in INTEGRAL and pc.all(pc.match_substring_regex(column, _PLAIN_INT)).as_py() is True:
        try:
            return column.cast(pa.int64()).cast(arrow)
        except pa.ArrowInvalid as error:
            raise overflow(target) from error
    readers: dict[TypeKind, Callable[[str], Any]] = {
        TypeKind.BOOLEAN: _read_boolean,
        TypeKind.DATE: _read_date,
        TypeKind.TIMESTAMP: lambda s: _read_timestamp(s, zoned=True),
        TypeKind.TIMESTAMP_NTZ: lambda s: _read_timestamp(s, zoned=False),
        TypeKind.DOUBLE: _read_float,
        TypeKind.FLOAT: _read_single,
        TypeKind.DECIMAL: lambda s: _read_decimal(s, target),
    }
    reader = readers.get(kind) or (lambda s: _read_integer(s, arrow.bit_width))

    def read(text: str) -> Any:
        value = reader(text)
        if value is None:
            raise malformed(text, target)
        return value

    return by_value(column, read, arrow)


def malformed(text: str, target: DataType) -> ExpressionError:
    """The complaint about text that doesn't spell a ``target``."""
    shown = text if len(text) <= 60 else text[:57] + "..."
    return ExpressionError(
        "bad-cast",
        f"{shown!r} can't be cast to {target}",
        remedy="filter such rows out first, or correct the input",
    )


def _read_integer(text: str, bits: int) -> int | None:
    text = text.strip(_CONTROL)
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def _read_boolean(text: str) -> bool | None:
    text = text.strip(_CONTROL).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _read_decimal(text: str, target: DataType) -> Decimal | None:
    text = text.strip(_SPACE)
    return _quantized(Decimal(text), target) if _DECIMAL.fullmatch(text) else None


def _special_float(text: str) -> float | None:
    word = text.lower()
    sign = -1.0 if word.startswith("-") else 1.0
    if word == "nan":
        return float("nan")
    bare = word[1:] if word[:1] in ("+", "-") else word
    return sign * float("inf") if bare in ("inf", "infinity") else None


def _read_float(text: str) -> float | None:
    text = text.strip(_SPACE)
    if not _FLOAT.fullmatch(text):
        return _special_float(text)
    return float(text.rstrip("dDfF"))


def _read_single(text: str) -> float | None:
    double = _read_float(text)
    if double is None or not np.isfinite(double):
        return double
    spelled = Fraction(text.strip(_SPACE).rstrip("dDfF"))
    half = np.float64(double).view(np.int64) & ((1 << 29) - 1) == 1 << 28
    if half and spelled != Fraction(double):
        raise ExpressionError(
            "unsupported",
            "a number lies too close to the middle between two floats",
            remedy="cast to double",
        )
    with np.errstate(over="ignore"):
        return float(np.float32(double))


def _read_date(text: str) -> int | None:
    match = _DATE.fullmatch(text.strip(_CONTROL))
    if match is None:
        return None
    year = _year(match[1])
    try:
        day = date(year, int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None
    return (day - date(1970, 1, 1)).days


def _read_timestamp(text: str, *, zoned: bool) -> int | None:
    text = text.strip(_CONTROL)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        if _TIME.fullmatch(text):
            raise _refused("a time without a date would depend on the day it is read")
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(
            _year(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0),
            int(second or 0), int((fraction or "")[:6].ljust(6, "0")), UTC,
        )  # fmt: skip
    except ValueError:
        return None
    shift = timedelta(0) if zone is None else _zone_offset(zone.strip())
    if shift is None:
        return None
    return (moment - _EPOCH - (shift if zoned else timedelta(0))) // timedelta(microseconds=1)


def _year(text: str) -> int:
    year = int(text)
    if not 1 <= year <= 9999:
        raise _refused("years outside 0001 to 9999 can't be read from text")
    return year


def _zone_offset(zone: str) -> timedelta | None:
    if zone in ("Z", "UTC", "GMT", "UT"):
        return timedelta(0)
    named = _NAMED_OFFSET.fullmatch(zone)
    match = _OFFSET.fullmatch(named[1] if named else zone)
    if match is None:
        if zone[0].isalpha():
            raise _refused(f"the time zone {zone[:40]!r} is not read by name")
        return None
    sign, *parts = match.groups("0")
    hours, minutes, seconds = (int(p) for p in ([*parts[:2], "0"] if match[2] else parts[2:]))
    shift = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if shift > timedelta(hours=18) or minutes > 59 or seconds > 59:
        return None
    return -shift if sign == "-" else shift


def _refused(why: str) -> ExpressionError:
    return ExpressionError("unsupported", why, remedy="write the moment in full, in UTC")


# --- values to text -----------------------------------------------------------------------------


def _to_string(column: pa.Array, source: DataType) -> pa.Array:
    kind = source.kind
    if kind in INTEGRAL or kind is TypeKind.BOOLEAN:
        return column.cast(pa.string())
    if kind is TypeKind.BINARY:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise ExpressionError("bad-cast", "a binary value is no UTF-8 text") from error
    if kind in FLOATING:
        return by_value(column, java_text, pa.string())
    if kind is TypeKind.DECIMAL:
        # Arrow switches to scientific notation below 1e-6; Spark never does.
        if source.scale <= 6:
            return column.cast(pa.string())
        return by_value(column, lambda v: format(v, "f"), pa.string())
    if kind is TypeKind.DATE:
        _require_years(column, 1)
        return column.cast(pa.string())
    if kind in TIMESTAMPS:
        _require_years(column, MICROS_PER_DAY)
        text = pc.strftime(column.view(pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")
        return _without_zeros(text)
    raise ExpressionError("bad-cast", f"{source} can't be cast to string")


def _without_zeros(text: pa.Array) -> pa.Array:
    short = pc.replace_substring_regex(text, pattern=r"0+$", replacement="")
    has_fraction = pc.match_substring(text, ".")
    short = pc.utf8_rtrim(pc.if_else(has_fraction, short, text), characters=".")
    return short.cast(pa.string())


def _require_years(column: pa.Array, per_day: int) -> None:
    bounds = pc.min_max(column.view(pa.int32() if per_day == 1 else pa.int64()))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and (least < _FIRST_DAY * per_day or most >= (_LAST_DAY + 1) * per_day):
        raise ExpressionError("unsupported", "a year outside 0001 to 9999 can't be written as text")


def java_text(value: Any) -> str:
    """A float or double as Java writes it.

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
    _, digits, exponent = Decimal(shortest).normalize(_WIDE).as_tuple()
    if len(digits) == 1:
        # Two digits are written in any case; the second shall be the nearest, not just a zero.
        closer = f"{value:.1e}"
        if type(value)(closer) == value:
            _, digits, exponent = Decimal(closer).normalize(_WIDE).as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{text}"
        whole = text[:point].ljust(point, "0")
        return f"{sign}{whole}.{text[point:] or '0'}"
    return f"{sign}{text[0]}.{text[1:] or '0'}E{point - 1}"
