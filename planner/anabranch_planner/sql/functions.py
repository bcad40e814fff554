"""The scalar functions that queries may call, by their Spark names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from sqlglot import exp

from anabranch_contract.connectors.user_functions import UserFunction
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import BIGINT, INT, STRING, TIMESTAMP
from anabranch_contract.queries.expressions import Call, Expr, Literal
from anabranch_contract.queries.time_zones import is_zone, regions
from anabranch_contract.queries.types import (
    INTEGRAL,
    INTERVALS,
    NUMERIC,
    TIMESTAMPS,
    DataType,
    TypeKind,
)
from anabranch_planner.sql.aggregates import AGGREGATES, REFUSED
from anabranch_planner.sql.scope import closest
from anabranch_planner.sql.unresolved import Unresolved, unsupported

_TEXT = frozenset({TypeKind.STRING})
_CALENDAR = TIMESTAMPS | {TypeKind.DATE}
_INSTANT = frozenset({TypeKind.TIMESTAMP})
#: Accepted types of an argument -> their name in messages, and the type to cast to in remedies.
_NAMED = {
    NUMERIC | INTERVALS: ("a number", "DOUBLE"),
    NUMERIC: ("a number", "DOUBLE"),
    INTEGRAL: ("an integer", "BIGINT"),
}
_SUBSTRING_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A scalar function of SQL: operation; accepted types per argument (the last ones for all
    further arguments); minimum and maximum number of arguments; result type, None if it depends on
    arguments."""

    op: str
    arguments: tuple[frozenset[TypeKind], ...]
    least: int = 1
    most: int | None = 1
    type: DataType | None = None


_INTEGER = frozenset({TypeKind.INT, TypeKind.SMALLINT, TypeKind.TINYINT})
_SUBSTRING = ScalarFunction("substring", (_TEXT, _INTEGER, _INTEGER), 2, 3)
_FUNCTIONS = {
    "lower": ScalarFunction("lower", (_TEXT,)),
    "lcase": ScalarFunction("lower", (_TEXT,)),
    "upper": ScalarFunction("upper", (_TEXT,)),
    "ucase": ScalarFunction("upper", (_TEXT,)),
    "trim": ScalarFunction("trim", (_TEXT,)),
    "length": ScalarFunction("length", (_TEXT,)),
    "char_length": ScalarFunction("length", (_TEXT,)),
    "character_length": ScalarFunction("length", (_TEXT,)),
    "substring": _SUBSTRING,
    "substr": _SUBSTRING,
    "concat": ScalarFunction("concat", (_TEXT,), 1, None),
    "abs": ScalarFunction("abs", (NUMERIC | INTERVALS,)),
    "year": ScalarFunction("year", (_CALENDAR,)),
    "month": ScalarFunction("month", (_CALENDAR,)),
    "day": ScalarFunction("day", (_CALENDAR,)),
    "dayofmonth": ScalarFunction("day", (_CALENDAR,)),
    "hour": ScalarFunction("hour", (TIMESTAMPS,)),
    "minute": ScalarFunction("minute", (TIMESTAMPS,)),
    "second": ScalarFunction("second", (TIMESTAMPS,)),
    **{
        name: ScalarFunction(name, (INTEGRAL,), type=TIMESTAMP)
        for name in ("timestamp_seconds", "timestamp_millis", "timestamp_micros")
    },
    **{
        name: ScalarFunction(name, (_INSTANT,), type=BIGINT)
        for name in ("unix_seconds", "unix_millis", "unix_micros")
    },
}
#: Key in a call's metadata: the user's function that the call denotes.
FUNCTION = "function"
#: Functions that the typechecker handles itself, because their arguments need a common type.
MEETING = {"coalesce": (1, None), "nvl": (2, 2), "ifnull": (2, 2)}
_AGGREGATES = frozenset({
    *AGGREGATES, *REFUSED, "any", "count_min_sketch", "grouping", "grouping_id",
})  # fmt: skip
_WINDOW = frozenset({
    "row_number", "rank", "dense_rank", "ntile", "lag", "lead", "cume_dist", "percent_rank",
})  # fmt: skip
_CLAUSES = frozenset({
    "cumulate", "descriptor", "hop", "session", "session_window", "tumble", "window",
})  # fmt: skip
_NOT_REPEATABLE = frozenset({
    "rand", "random", "randn", "uuid", "monotonically_increasing_id", "current_user",
})  # fmt: skip


def call(name: str, args: Sequence[Expr]) -> Expr:
    """The typed call of function ``name``.

    Raises:
        QueryError: an aggregate, an unknown function, or a wrong number or type of arguments.
    """
    function = _FUNCTIONS.get(name)
    if function is None:
        raise unknown(name)
    check_arity(name, len(args), function.least, function.most)
    for position, arg in enumerate(args):
        wanted = function.arguments[min(position, len(function.arguments) - 1)]
        if arg.type.kind not in wanted and arg.type.kind is not TypeKind.NULL:
            listed, target = _NAMED.get(
                wanted, (" or ".join(sorted(wanted)), sorted(wanted)[0].upper())
            )
            raise QueryError(
                "type-mismatch",
                f"{name}() takes {listed}, but {arg} is of type {arg.type}",
                remedy=f"write CAST(... AS {target})",
            )
    typed = tuple(args)
    if function.op == "substring" and len(typed) == 2:
        typed = (*typed, Literal(_SUBSTRING_END, INT))
    if function.op == "concat" and len(typed) == 1:
        return typed[0]
    result = function.type or (
        typed[0].type
        if function.op == "abs"
        else STRING
        if function.arguments[0] is _TEXT and function.op != "length"
        else INT
    )
    return Call(function.op, typed, result)


def mark_calls(query: Unresolved, known: Mapping[str, UserFunction]) -> frozenset[str]:
    """Mark the calls in ``query`` of users' functions (``known``), and return their names."""
    found = set()
    for call in _calls(query) if known else ():
        name = str(call.this).lower()
        if name in known:
            call.meta[FUNCTION] = known[name]
            found.add(name)
    return frozenset(found)


def _calls(value: Any) -> Iterator[exp.Anonymous]:
    if isinstance(value, exp.Expr):
        yield from value.find_all(exp.Anonymous)
    elif isinstance(value, tuple):
        for one in value:
            yield from _calls(one)
    elif isinstance(value, Mapping):
        yield from _calls(tuple(value.values()))
    elif is_dataclass(value):
        yield from _calls(tuple(getattr(value, field.name) for field in fields(value)))


def names() -> frozenset[str]:
    """Return the names of all scalar, aggregate and window functions."""
    return frozenset({*_FUNCTIONS, *MEETING, *AGGREGATES, *_WINDOW, "if"})


def is_reserved(name: str) -> bool:
    """Whether ``name`` already denotes a function of SQL, whether supported or rejected."""
    others = {*MEETING, *_AGGREGATES, *_WINDOW, *_NOT_REPEATABLE, *_CLAUSES}
    return is_known(name) or name in others


def is_known(name: str) -> bool:
    """Whether ``name`` is a scalar function, which :func:`call` can type."""
    return name in _FUNCTIONS


def is_repeatable(name: str) -> bool:
    """Whether SQL function ``name``, called without arguments, always returns the same value."""
    return name not in _NOT_REPEATABLE


def check_zone(zone: str) -> None:
    """Reject the name of a time zone that does not exist.

    Raises:
        QueryError: ``bad-literal``.
    """
    if is_zone(zone):
        return
    # Compare cities first: they distinguish similar names better than continents do.
    city = zone.rpartition("/")[2]
    cities = {name.rpartition("/")[2]: name for name in sorted(regions(), reverse=True)}
    near = cities.get(closest(city, cities, 0.8) or "") or closest(zone, regions())
    raise QueryError(
        "bad-literal",
        f"there is no time zone {zone!r}",
        remedy=f"did you mean {near!r}? An offset such as '+02:00' is allowed too"
        if near
        else "write a region such as 'Europe/Berlin', or an offset such as '+02:00'",
    )


#: Function -> addition to the remedy for calls with too many arguments: the fixed behaviour that
#: further arguments would change.
_FURTHER = {"regexp_replace": ": it replaces all matches, and (?i) in the pattern ignores case"}


def check_arity(name: str, given: int, least: int, most: int | None) -> None:
    """Reject a parsed call with too few or too many arguments.

    Raises:
        QueryError: ``bad-arguments``.
    """
    if given < least or (most is not None and given > most):
        wanted = (
            str(least)
            if least == most
            else f"{least} or more"
            if most is None
            else (f"{least} to {most}")
        )
        wanted += " argument" if wanted == "1" else " arguments"
        raise QueryError(
            "bad-arguments",
            f"{name}() takes {wanted}, not {given}",
            remedy=f"write {name}() with {wanted}{_FURTHER.get(name, '')}",
        )


def unknown(name: str, also: Iterable[str] = (), written: str = "") -> QueryError:
    """The error for the unknown function ``name``.

    Args:
        also: further names to suggest. ``written``: the call as the user wrote it.
    """
    if name in _AGGREGATES:
        return QueryError(
            "misplaced-aggregate",
            f"the aggregate {name}() is not allowed here",
            remedy="use it in SELECT, HAVING or ORDER BY of the whole statement",
        )
    if name in _WINDOW:
        return unsupported(
            f"the window function {name}() here",
            "keep the first rows with QUALIFY row_number() OVER (...) <= n",
        )
    if name in ("window", "session_window"):
        grouped = written or f"{name}(ts, '10 minutes')"
        return unsupported(
            f"{name}() without GROUP BY of it",
            f"write GROUP BY {grouped} in the same SELECT, or date_trunc('hour', ts) for single "
            "rows",
        )
    if name in _NOT_REPEATABLE:
        return QueryError(
            "unsupported-sql",
            f"{name}() gives another value each time, so a result could not be repeated",
            remedy="compare event times with each other or with a literal",
        )
    close = closest(name, [*_FUNCTIONS, *MEETING, *also, "if"], 0.8)
    return QueryError(
        "unknown-function",
        f"function {name}() is not supported",
        remedy=f"did you mean {close!r}?" if close else "docs/sql.md lists all functions",
    )
