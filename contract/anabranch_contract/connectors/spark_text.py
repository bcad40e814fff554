"""Names, columns and string literals for Spark's parser: generated, never copied from a request.

In string literals every character but letters, digits and spaces is escaped, so Spark's parser
never sees a quote, backslash or ``${...}`` of a request.

>>> string("it's ${x}")
"'it\\\\u0027s \\\\u0024\\\\u007Bx\\\\u007D'"
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.types import DataType

_PLAIN = re.compile(r"[A-Za-z0-9 ]")


def quoted(name: str) -> str:
    """Return an identifier in backticks, for Spark's SQL.

    Raises:
        QueryError: the name has ``${...}``, which Spark would replace despite the backticks.

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
    """Return columns and their types in Spark's DDL.

    >>> from anabranch_contract.queries.types import parse_type
    >>> columns_text([("a", parse_type("int")), ("b c", parse_type("decimal(3, 1)"))])
    '`a` int, `b c` decimal(3,1)'
    """
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)


def string(text: str) -> str:
    """Return ``text`` as an escaped string literal of Spark's SQL."""
    return "'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
