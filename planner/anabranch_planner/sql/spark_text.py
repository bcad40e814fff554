"""Typed expressions as text for Spark: written anew from the tree, never copied from a request.

Only operations of the expression language can appear, so no function of Spark's that the language
lacks can be reached. String literals hold letters, digits and spaces as they are and every other
character as an escape: no quote, backslash or ``${...}`` of a request is ever seen by Spark's
parser.

>>> from anabranch_planner.expr import BOOLEAN, Call
>>> from anabranch_planner.types import parse_type
>>> text = Literal("it's ${x}", parse_type("string"))
>>> to_spark_text(Call("eq", (Column("data", "a`b", parse_type("string")), text), BOOLEAN))
"(`data`.`a``b` = 'it\\\\u0027s \\\\u0024\\\\u007Bx\\\\u007D')"
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from anabranch_planner.errors import QueryError
from anabranch_planner.expr import OPERATIONS, Column, Expr, Literal
from anabranch_planner.types import TypeKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch_planner.types import DataType

_INFIX = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "and", "or", "like",
    "add", "sub", "mul", "div", "mod",
})  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z0-9 ]")
_MICROS_PER_DAY = 86_400_000_000


def to_spark_text(expr: Expr) -> str:
    """``expr`` in Spark's SQL; a column's alias becomes the table or struct before its name.

    Raises:
        QueryError: a column has a name that can't be quoted safely.
    """
    if isinstance(expr, Column):
        name = quoted(expr.name)
        return f"{quoted(expr.alias)}.{name}" if expr.alias else name
    if isinstance(expr, Literal):
        return _literal(expr)
    args = [to_spark_text(a) for a in expr.args]
    symbol = OPERATIONS[expr.op]
    if expr.op in _INFIX:
        return f"({args[0]} {symbol} {args[1]})"
    if expr.op in ("is_null", "is_not_null"):
        return f"({args[0]} {symbol})"
    if expr.op in ("not", "neg"):
        return f"({symbol} {args[0]})"
    if expr.op == "in":
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    if expr.op == "cast":
        return f"CAST({args[0]} AS {expr.type})"
    if expr.op == "case":
        pairs = zip(args[::2], args[1::2], strict=False)
        branches = " ".join(f"WHEN {when} THEN {then}" for when, then in pairs)
        otherwise = f" ELSE {args[-1]}" if len(args) % 2 else ""
        return f"CASE {branches}{otherwise} END"
    return f"{symbol}({', '.join(args)})"


def quoted(name: str) -> str:
    """An identifier in backticks.

    Raises:
        QueryError: Spark would replace ``${...}`` in the name before it reads the quotes.

    >>> quoted("a b")
    '`a b`'
    """
    if "${" in name or not name.isprintable():
        raise QueryError(
            "bad-name",
            f"the column name {name!r} has ${{ or a control character in it",
            remedy="give the column another name",
        )
    return "`" + name.replace("`", "``") + "`"


def columns_text(columns: Iterable[tuple[str, DataType]]) -> str:
    """Columns and their types as Spark's DDL has them.

    >>> from anabranch_planner.types import parse_type
    >>> columns_text([("a", parse_type("int")), ("b c", parse_type("decimal(3, 1)"))])
    '`a` int, `b c` decimal(3,1)'
    """
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)


def string(text: str) -> str:
    """A string literal."""
    return "'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _literal(literal: Literal) -> str:
    value, kind = literal.value, literal.type.kind
    if kind is TypeKind.NULL:
        return "NULL"
    if value is None:
        return f"CAST(NULL AS {literal.type})"
    if isinstance(value, bool):
        return str(value).lower()
    if kind is TypeKind.STRING:
        return string(str(value))
    if kind is TypeKind.BINARY:
        return f"X'{bytes.fromhex(str(value)).hex()}'"
    if kind is TypeKind.DATE:
        return f"date_from_unix_date({int(value)})"
    if kind is TypeKind.TIMESTAMP:
        return f"timestamp_micros(CAST('{int(value)}' AS bigint))"
    if kind is TypeKind.TIMESTAMP_NTZ:
        return f"CAST(timestamp_micros(CAST('{int(value)}' AS bigint)) AS timestamp_ntz)"
    if kind is TypeKind.INTERVAL:
        return _interval(int(value))
    return f"CAST({_number(value)} AS {literal.type})"


def _number(value: object) -> str:
    text = str(value)
    named = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return f"'{named.get(text, text)}'"


def _interval(micros: int) -> str:
    days, rest = divmod(abs(micros), _MICROS_PER_DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if micros < 0 else ""
    clock = f"{hours:02d}:{minutes:02d}:{seconds:02d}.{fraction:06d}"
    return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"
