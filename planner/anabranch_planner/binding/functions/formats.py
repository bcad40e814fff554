"""The SQL function ``format_string`` (``printf``), rewritten as a concatenation of its literal and
formatted pieces; and ``to_char``, which formats a number or a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import STRING, as_decimal
from anabranch_contract.queries.expressions import Call, Expr, Literal, is_null
from anabranch_contract.queries.text_values import NUMBER_FORMAT
from anabranch_contract.queries.time_patterns import check_written
from anabranch_contract.queries.types import (
    FLOATING,
    INTEGRAL,
    INTERVALS,
    NUMERIC,
    TIMESTAMPS,
    DataType,
    TypeKind,
)
from anabranch_planner.binding.functions.signatures import Argument, bad_literal, converted, text_of
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql import functions
from anabranch_planner.sql.unresolved import unsupported

_SPECIFIER = re.compile(
    r"%(?:(?P<place>[0-9]+)\$)?(?P<flags>[-+ ,0#(]*)(?P<width>[1-9][0-9]*)?"
    r"(?:\.(?P<digits>[0-9]+))?(?P<kind>[a-zA-Z%])"
)
#: Conversion character of ``format_string`` -> the flags that it may have.
_FLAGS = {"s": "-", "d": "-+ ,0", "x": "-0", "f": "-+ ,0"}
#: Maximum width in characters, and maximum precision in digits.
_MOST = 1000
#: Scale from which Java writes small decimals with an exponent.
_SMALL = 7
_REMEDY = "write %s, %d, %x, %f, %% and %n, with width and digits such as %5d or %.2f"


#: Pairs of equivalent pattern letters for dates and times: PostgreSQL's and Spark's.
_PATTERNS = (
    ("YYYY", "yyyy"), ("YY", "yy"), ("DD", "dd"), ("HH24", "HH"), ("HH12", "hh"), ("MI", "mm"),
    ("SS", "ss"), ("Mon", "MMM"), ("Month", "MMMM"), ("Day", "EEEE"), ("Dy", "EEE"), ("AM", "a"),
)  # fmt: skip
_BINARY = ("base64", "hex")
#: Floating type -> decimal type to which Spark casts its values before it formats them.
_EXACT = {
    TypeKind.FLOAT: DataType(TypeKind.DECIMAL, 14, 7),
    TypeKind.DOUBLE: DataType(TypeKind.DECIMAL, 30, 15),
}


@dataclass(frozen=True, slots=True)
class _Specifier:
    text: str
    place: int | None
    flags: str
    width: int
    digits: int | None
    kind: str


def formatted(args: Sequence[Expr]) -> Expr:
    """Typed ``format_string(format, values...)``, whose format must be a literal.

    Raises:
        QueryError: ``bad-literal``: the format; ``type-mismatch``: a value of a wrong type.
    """
    pattern = converted("format_string", args[0], Argument.PATTERN)
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        return Literal(None, STRING)
    pieces = list[Expr]()
    ordinary = 0
    for piece in _split_format(pattern, pattern.value):
        if isinstance(piece, str):
            pieces.append(Literal(piece, STRING))
            continue
        ordinary += piece.place is None
        number = ordinary if piece.place is None else piece.place
        if not 0 < number < len(args):
            reason = f"there is no value for {piece.text}"
            raise bad_literal("format_string", pattern, reason, "give a value for each of them")
        pieces.append(_value(piece, args[number]))
    if not pieces:
        return Literal("", STRING)
    return functions.call("concat", pieces)


def _split_format(pattern: Expr, text: str) -> list[str | _Specifier]:
    found = list[str | _Specifier]()
    after = 0
    for match in _SPECIFIER.finditer(text):
        found.append(text[after : match.start()])
        after = match.end()
        kind, whole = match["kind"], match[0]
        if whole in ("%%", "%n"):
            found.append("%" if whole == "%%" else "\n")
            continue
        flags, width = match["flags"], int((match["width"] or "0")[:9])
        digits = None if match["digits"] is None else int(match["digits"][:9])
        wrong = kind not in _FLAGS or set(flags) - set(_FLAGS[kind]) or len(set(flags)) < len(flags)
        wrong = wrong or (("-" in flags or "0" in flags) and not width)
        wrong = wrong or {"-", "0"} <= set(flags) or {"+", " "} <= set(flags)
        wrong = wrong or (digits is not None and kind in ("d", "x"))
        if wrong or max(width, digits or 0) > _MOST:
            raise bad_literal("format_string", pattern, f"{whole} is not supported", _REMEDY)
        place = None if match["place"] is None else int(match["place"][:9])
        bare = "%" + whole[whole.index("$") + 1 :] if place is not None else whole
        found.append(_Specifier(bare, place, flags, width, digits, kind))
    found.append(text[after:])
    if any(
        isinstance(piece, str) and "%" in piece.replace("%%", "") and piece != "%"
        for piece in found
    ):
        reason = "a % stands before no conversion"
        raise bad_literal("format_string", pattern, reason, "write %% for the character itself")
    return [piece for piece in found if piece != ""]


def _value(piece: _Specifier, arg: Expr) -> Expr:
    """Typed text of an argument of ``format_string``; NULL becomes the text ``null``."""
    kind = arg.type.kind
    missing = "null" if piece.digits is None else "null"[: piece.digits]
    missing = missing.ljust(piece.width) if "-" in piece.flags else missing.rjust(piece.width)
    if kind is TypeKind.NULL:
        return Literal(missing, STRING)
    if piece.kind == "s":
        value = _text(arg)
    else:
        kinds = FLOATING if piece.kind == "f" else INTEGRAL
        if kind not in kinds:
            wanted = "DOUBLE" if piece.kind == "f" else "BIGINT"
            raise QueryError(
                "type-mismatch",
                f"{piece.text} does not take {arg}, which is of type {arg.type}",
                remedy=f"write CAST({arg} AS {wanted})",
            )
        value = arg
    if piece.text != "%s":
        value = Call("format_string", (Literal(piece.text, STRING), value), STRING)
    return Call("coalesce", (value, Literal(missing, STRING)), STRING)


def _text(arg: Expr) -> Expr:
    kind = arg.type.kind
    dated = kind in TIMESTAMPS | INTERVALS | {TypeKind.DATE, TypeKind.BINARY}
    if dated or (kind is TypeKind.DECIMAL and arg.type.scale >= _SMALL):
        raise unsupported(f"%s of {arg}, which is of type {arg.type},", f"cast it: {_cast(arg)}")
    return coerce(arg, STRING)


def _cast(arg: Expr) -> str:
    return f"CAST({arg} AS STRING)"


def shown(args: Sequence[Expr]) -> Expr:
    """Typed ``to_char(x, format)``, also spelled ``to_varchar``, whose format must be a literal.

    Raises:
        QueryError: ``bad-literal``: the format; ``type-mismatch``: ``x`` is no number, date,
            timestamp or binary.
    """
    value, pattern = args[0], converted("to_char", args[1], Argument.PATTERN)
    if is_null(value) or is_null(pattern):
        return Literal(None, STRING)
    text, kind = text_of(pattern), value.type.kind
    if kind in TIMESTAMPS | {TypeKind.DATE}:
        try:
            check_written(text)
        except ValueError as cause:
            meant = text
            for theirs, ours in _PATTERNS:
                meant = meant.replace(theirs, ours)
            remedy = f"write to_char({value}, '{meant}'), a pattern as of date_format"
            raise bad_literal("to_char", pattern, str(cause), remedy) from cause
        moment = converted("to_char", value, Argument.TIMESTAMP)
        return Call("date_format", (moment, pattern), STRING)
    if kind is TypeKind.BINARY:
        if text.lower() not in _BINARY:
            remedy = "write 'hex' or 'base64', or CAST(x AS STRING) for a text in UTF-8"
            raise bad_literal("to_char", pattern, "it is no format of bytes", remedy)
        return Call(text.lower(), (value,), STRING)
    if kind not in NUMERIC:
        raise QueryError(
            "type-mismatch",
            f"to_char() takes a number, a date or a timestamp, but {value} is of type {value.type}",
            remedy=f"write CAST({value} AS DECIMAL(20, 2))",
        )
    if NUMBER_FORMAT.fullmatch(text.upper()) is None:
        remedy = (
            "write digits as 9 (blank) or 0, with a comma or G between thousands and a point or D, "
            "S or MI at one end, PR at the end, $ before the digits: '$9,990.99MI'"
        )
        raise bad_literal("to_char", pattern, "it is no format of a number", remedy)
    exact = _EXACT.get(kind) or as_decimal(value.type)
    return Call("to_char", (coerce(value, exact), pattern), STRING)
