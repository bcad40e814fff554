"""Families of SQL statements that differ only in constants: templates, and values of parameters.

Statements are only divided into tokens here; the planner parses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from anabranch_contract.errors import QueryError

#: A value for a parameter of an SQL statement.
Constant: TypeAlias = "bool | int | float | str | None"

_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<text> [rR]'[^']*' | '(?:[^'\\]|\\.)*' )
    | (?P<quoted> "(?:[^"\\]|\\.)*" | `[^`]*` )
    | (?P<number> (?: \d+ (?:\.\d*)? | \.\d+ ) (?:[eE][+-]?\d+)? [A-Za-z]{0,2} \b )
    | (?P<word> [^\W\d]\w* )
    | (?P<cast> :: )
    | (?P<parameter> : [^\W\d]\w* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
#: A list of constants after IN; lists of different lengths belong to one family.
_LIST = re.compile(r"(?<=\bIN)( ?)\(\0(?:, ?\0)*\)", re.IGNORECASE)
#: Tokens after which a minus is the sign of a number.
_BEFORE_SIGN = frozenset("(,=<>+-*/%") | {"AND", "BETWEEN", "ELSE", "IN", "OR", "THEN", "WHEN"}
#: Characters of comparison operators, around which a template has spaces.
_COMPARING = frozenset("<>=!")
#: Escapes of characters that would end a text constant or have a special meaning in it.
_ESCAPED = str.maketrans({"\\": "\\\\", "'": "\\'"})
_SPARK = "spark"
#: Character for each constant while a template is made; no statement contains this character.
_PLACE = "\0"


@dataclass(frozen=True, slots=True)
class Template:
    """An SQL statement without its constants.

    Attributes:
        text: the statement with ``?`` for each constant, ``(?)`` for each list after IN;
            without comments.
        constants: the constants as the statement writes them; a list is one text.
    """

    text: str
    constants: tuple[str, ...]


def template(sql: str) -> Template:
    """Split an SQL statement into its template and its constants.

    >>> template("SELECT v FROM s WHERE k IN (1, 2) AND name = 'x'")
    Template(text='SELECT v FROM s WHERE k IN (?) AND name = ?', constants=('1, 2', "'x'"))
    """
    parts: list[str] = []
    constants: list[str] = []
    last = before = ""
    spaced = False
    for kind, token in _tokens(sql):
        if kind == "space":
            spaced = True
            continue
        constant = kind in ("text", "number")
        if kind == "number" and last == "-" and before.upper() in _BEFORE_SIGN:
            parts.pop()
            constants.append(f"-{token}")
        else:
            constants += [token] if constant else []
            if _has_space(last, token, spaced):
                parts.append(" ")
        parts.append(_PLACE if constant else token)
        before, last, spaced = last, token, False
    text, found = "".join(parts).strip(), iter(constants)
    grouped: list[str] = []
    begin = 0
    for one in _LIST.finditer(text):
        grouped += islice(found, text.count(_PLACE, begin, one.start()))
        grouped.append(", ".join(islice(found, one[0].count(_PLACE))))
        begin = one.end()
    shown = _LIST.sub(r"\1(?)", text).replace(_PLACE, "?")
    return Template(shown, (*grouped, *found))


def _has_space(last: str, token: str, spaced: bool) -> bool:
    """Whether a template has a space between two tokens; ``spaced``: the statement has one."""
    if last in ("", "(") or token in (")", ","):
        return False
    compares = last in _COMPARING, token in _COMPARING
    return last == "," or (compares[0] != compares[1]) or (spaced and not all(compares))


def parameters(sql: str) -> tuple[str, ...]:
    """Return the names of a statement's parameters (``:name``), each once, in order of appearance.

    >>> parameters("SELECT ':a' FROM s WHERE v::int > :least AND w > :least")
    ('least',)
    """
    return tuple(dict.fromkeys(t[1:] for kind, t in _tokens(sql) if kind == "parameter"))


def substituted(sql: str, values: Mapping[str, Constant], dialect: str = _SPARK) -> str:
    """Return the statement with values as constants in place of its parameters.

    Args:
        values: parameter -> value, for all parameters of the statement and no others.
        dialect: dialect of the statement.

    Raises:
        QueryError: ``missing-parameter``, ``unknown-parameter``, or ``bad-parameter``: a text that
            can't be a constant of the dialect; the field is the parameter.
    """
    wanted = parameters(sql)
    for name in wanted:
        if name not in values:
            raise QueryError(
                "missing-parameter",
                f"the statement has a parameter :{name}, which has no value",
                field=name,
                remedy="give it a value in parameters",
            )
    for name in values:
        if name not in wanted:
            raise QueryError(
                "unknown-parameter",
                f"the statement has no parameter :{name}",
                field=name,
                remedy=f"leave it out, or write :{name} in the statement",
            )
    return "".join(
        _constant(token[1:], values[token[1:]], dialect) if kind == "parameter" else token
        for kind, token in _tokens(sql)
    )


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each token of an SQL statement, spaces and comments included."""
    for found in _TOKEN.finditer(sql):
        yield found.lastgroup or "", found[0]


def _constant(name: str, value: Constant, dialect: str) -> str:
    """Return a parameter's ``value`` as a constant of SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        # Put a space before a minus, since ``--`` would begin a comment.
        return f" {value}" if str(value).startswith("-") else str(value)
    if dialect != _SPARK and ("'" in value or "\\" in value):
        raise QueryError(
            "bad-parameter",
            f"a text with a quote or a backslash is written in another way in {dialect!r}",
            field=name,
            remedy="write the statement in Spark SQL, or this query by itself",
        )
    return f"'{value.translate(_ESCAPED)}'"
