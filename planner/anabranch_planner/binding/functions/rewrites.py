"""SQL functions that are rewritten as other expressions.

The rewriting is Spark's own, or follows the function's definition in Spark's documentation; tests
compare the values with Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from ipaddress import ip_network

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import DOUBLE, INT, MAX_PRECISION, STRING, TIMESTAMP
from anabranch_contract.queries.expressions import BOOLEAN, Call, Expr, Literal
from anabranch_contract.queries.types import FLOATING, INTEGRAL, INTERVALS, DataType, TypeKind
from anabranch_planner.binding.common_types import meet_all
from anabranch_planner.binding.functions.collections import COLLECTIONS, require_comparable
from anabranch_planner.binding.functions.dates import DATES, seconds_of
from anabranch_planner.binding.functions.intervals import MADE, part_of_interval, seconds_in
from anabranch_planner.binding.functions.numbers import NUMBERS, rounded_type
from anabranch_planner.binding.functions.signatures import (
    Argument,
    Rewriting,
    Signature,
    bad_literal,
    converted,
    text_of,
)
from anabranch_planner.binding.functions.texts import TEXTS
from anabranch_planner.binding.functions.variants import VARIANTS
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql import functions
from anabranch_planner.sql.unresolved import unsupported

_ONE, _TWO = Literal(1, INT), Literal(2, INT)
#: Maximum number of arguments of greatest and least; each argument is compared with each other one.
_MOST = 8
#: Maximum number of digits after the point in SQL's round().
_DIGITS = 18


def like(text: Expr, pattern: str) -> Expr:
    """The typed call ``text LIKE pattern``, with the backslash as escape character."""
    if text.type.kind not in (TypeKind.STRING, TypeKind.NULL):
        raise QueryError(
            "type-mismatch",
            f"{text} is of type {text.type}, not a text",
            remedy=f"write CAST({text} AS STRING)",
        )
    return Call("like", (text, Literal(pattern, STRING)), BOOLEAN)


def escaped(pattern: str, escape: str) -> str:
    """A LIKE pattern with escape character ``escape``, rewritten with backslashes.

    Raises:
        QueryError: ``bad-literal``: the escape precedes other characters than ``%``, ``_``, itself.

    >>> escaped("10#%_", "#")
    '10\\\\%_'
    """
    if len(escape) != 1:
        raise QueryError(
            "bad-literal", f"{escape!r} is not an escape character", remedy="give one character"
        )
    made, rest = "", iter(pattern)
    for character in rest:
        if character == escape:
            following = next(rest, "")
            if following not in ("%", "_", escape) or not following:
                raise QueryError(
                    "bad-literal",
                    f"in the pattern {pattern!r} {escape!r} stands before no %, _ or {escape}",
                    remedy="escape only these characters",
                )
            made += _verbatim(following)
        else:
            made += "\\\\" if character == "\\" else character
    return made


def lowered(pattern: str) -> str:
    """The pattern of an ILIKE call, rewritten for a call of LIKE over ``lower``.

    Raises:
        QueryError: ``unsupported-sql``: letters beyond ASCII, whose lower case varies by system.
    """
    if not pattern.isascii():
        raise QueryError(
            "unsupported-sql",
            f"ILIKE with the pattern {pattern!r} is not supported: it has letters beyond ASCII",
            remedy="write lower(x) LIKE 'pattern'",
        )
    return pattern.lower()


def call(name: str, args: Sequence[Expr]) -> Expr:
    """Rewrite a call of an SQL function in :data:`REWRITINGS` as another expression.

    Raises:
        QueryError: a wrong number or type of arguments.
    """
    rewriting = REWRITINGS[name]
    functions.check_arity(name, len(args), rewriting.least, rewriting.most)
    return rewriting.made(args)


def _verbatim(text: str) -> str:
    return "".join(f"\\{c}" if c in "%_\\" else c for c in text)


def _with_literal(before: str, after: str) -> Callable[[Sequence[Expr]], Expr]:
    """Rewriting of a search for a literal text as LIKE; the pattern is the text between ``before``
    and ``after``."""

    def made(args: Sequence[Expr]) -> Expr:
        text, wanted = args
        if not isinstance(wanted, Literal) or not isinstance(wanted.value, str):
            raise unsupported(
                f"a search for {wanted}, which is not a literal,", "write the text into the query"
            )
        return like(text, before + _verbatim(wanted.value) + after)

    return made


def _right(args: Sequence[Expr]) -> Expr:
    text, length = args
    if not isinstance(length, Literal) or not isinstance(length.value, int):
        raise unsupported(
            f"right() of {length} characters, which is not a literal,",
            "write the number into the query",
        )
    if length.value <= 0:
        return functions.call("substring", [text, _ONE, Literal(0, INT)])
    return functions.call("substring", [text, Literal(-length.value, INT)])


def _quarter(args: Sequence[Expr]) -> Expr:
    month = functions.call("month", args)
    thirds = Call("add", (month, _TWO), INT)
    third = Call("div", (Call("cast", (thirds,), DOUBLE), Literal(3.0, DOUBLE)), DOUBLE)
    return Call("cast", (third,), INT)


def _tested(op: str) -> Callable[[Sequence[Expr]], Expr]:
    return lambda args: Call(op, (args[0],), BOOLEAN)


def _extreme(op: str) -> Callable[[Sequence[Expr]], Expr]:
    """Rewriting of greatest (``ge``) or least (``le``), which skip NULLs."""

    def made(args: Sequence[Expr]) -> Expr:
        values = meet_all(args)
        kind = values[0].type
        require_comparable("greatest() or least() of", values[0])
        if kind.kind is TypeKind.BOOLEAN:
            raise QueryError(
                "type-mismatch", f"{args[0]} has no order", remedy="cast the value to another type"
            )
        branches = list[Expr]()
        for value in values:
            condition: Expr = Call("is_not_null", (value,), BOOLEAN)
            for other in values:
                if other is not value:
                    missing = Call("is_null", (other,), BOOLEAN)
                    found = Call("or", (missing, Call(op, (value, other), BOOLEAN)), BOOLEAN)
                    condition = Call("and", (condition, found), BOOLEAN)
            branches += [condition, value]
        return Call("case", tuple(branches), kind)

    return made


def _concat_ws(args: Sequence[Expr]) -> Expr:
    separator, *texts = (converted("concat_ws", arg, Argument.TEXT) for arg in args)
    if not isinstance(separator, Literal) or not isinstance(separator.value, str):
        raise unsupported(
            f"concat_ws() with the separator {separator}, which is not a literal,",
            "write the text into the query",
        )
    nothing = Literal("", STRING)
    parts = [
        Call(
            "case",
            (
                Call("is_null", (text,), BOOLEAN),
                nothing,
                functions.call("concat", [separator, text]),
            ),
            STRING,
        )
        for text in texts
    ]
    whole = functions.call("concat", [nothing, *parts])
    return functions.call("substring", [whole, Literal(len(separator.value) + 1, INT)])


def _round(args: Sequence[Expr]) -> Expr:
    """Rewriting of round(x, digits) as casts to decimals, which round half away from zero, too."""
    value, digits = args[0], args[1] if len(args) > 1 else Literal(0, INT)
    if (
        not isinstance(digits, Literal)
        or not isinstance(digits.value, int)
        or (not 0 <= digits.value <= _DIGITS)
    ):
        raise unsupported(
            f"round() to {digits} digits", f"write a number from 0 to {_DIGITS} into the query"
        )
    kind = value.type
    if kind.kind in INTEGRAL:
        return value
    if kind.kind is TypeKind.DECIMAL:
        return coerce(value, rounded_type(kind, digits.value))
    if kind.kind not in FLOATING:
        raise QueryError(
            "type-mismatch",
            f"round() takes a number, but {value} is of type {kind}",
            remedy="write CAST(... AS DOUBLE)",
        )
    wide = coerce(value, DOUBLE)
    # Doubles from 2**53 up are whole numbers.
    inside = Call("lt", (Call("abs", (wide,), DOUBLE), Literal(2.0**53, DOUBLE)), BOOLEAN)
    exact = DataType(TypeKind.DECIMAL, MAX_PRECISION, digits.value)
    rounded = coerce(coerce(wide, exact), DOUBLE)
    return coerce(Call("case", (inside, rounded, wide), DOUBLE), kind)


def _network(args: list[Expr]) -> list[Expr]:
    try:
        ip_network(text_of(args[1]), strict=False)
    except ValueError:
        raise bad_literal(
            "cidr_match", args[1], "it is no network", "write one such as '10.0.0.0/8', 'fd00::/8'"
        ) from None
    return args


_MATCH = Signature("cidr_match", (Argument.TEXT, Argument.PATTERN), BOOLEAN, check=_network)


def _in_networks(args: Sequence[Expr]) -> Expr:
    """Typed ``cidr_match(address, network, ...)``: whether a network contains the address."""
    found = [_MATCH([args[0], network]) for network in args[1:]]
    return reduce(lambda left, right: Call("or", (left, right), BOOLEAN), found)


#: Spark function -> rewriting. Functions whose arguments need a common type are in ``typecheck``.
REWRITINGS: dict[str, Rewriting] = {
    "isnull": Rewriting(1, 1, _tested("is_null")),
    "isnotnull": Rewriting(1, 1, _tested("is_not_null")),
    "left": Rewriting(2, 2, lambda args: functions.call("substring", [args[0], _ONE, args[1]])),
    "right": Rewriting(2, 2, _right),
    "quarter": Rewriting(1, 1, _quarter),
    "startswith": Rewriting(2, 2, _with_literal("", "%")),
    "endswith": Rewriting(2, 2, _with_literal("%", "")),
    "contains": Rewriting(2, 2, _with_literal("%", "%")),
    "concat_ws": Rewriting(1, None, _concat_ws),
    "greatest": Rewriting(2, _MOST, _extreme("ge")),
    "least": Rewriting(2, _MOST, _extreme("le")),
    "round": Rewriting(1, 2, _round),
    "cidr_match": Rewriting(2, None, _in_networks),
    **DATES,
    **NUMBERS,
    **TEXTS,
    **COLLECTIONS,
    **VARIANTS,
    **MADE,
}
#: Field name of EXTRACT and date_part -> function of dates and timestamps.
PARTS = {
    "year": "year", "years": "year", "month": "month", "months": "month", "day": "day",
    "days": "day", "hour": "hour", "hours": "hour", "minute": "minute", "minutes": "minute",
    "quarter": "quarter", "week": "weekofyear", "weeks": "weekofyear", "dow": "dayofweek",
    "dayofweek": "dayofweek", "doy": "dayofyear", "dayofyear": "dayofyear",
}  # fmt: skip
#: Fields of EXTRACT whose value is one more than the function's result.
_ISO_DAY = frozenset({"dayofweek_iso", "isodow", "dow_iso"})


def part_of(name: str, moment: Expr) -> Expr:
    """``EXTRACT(name FROM moment)``, with a date or timestamp, as a typed call.

    Raises:
        QueryError: ``unsupported-sql``.
    """
    if moment.type.kind in INTERVALS:
        return part_of_interval(name, moment)
    part = name.lower()
    if part in ("second", "seconds"):
        return seconds_of(moment)
    if part == "epoch":
        return seconds_in(functions.call("unix_micros", [coerce(moment, TIMESTAMP)]))
    if part in _ISO_DAY:
        return Call("add", (call("weekday", [moment]), _ONE), INT)
    function = PARTS.get(part)
    if function is None:
        raise unsupported(
            f"EXTRACT of {name.upper()}", f"use one of {', '.join(sorted(set(PARTS)))}, second"
        )
    return (
        call(function, [moment]) if function in REWRITINGS else functions.call(function, [moment])
    )
