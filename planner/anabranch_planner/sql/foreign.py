"""Rejection of constructs that only other SQL engines have: "quoted" names, window functions.

The search is over tokens, because the parser misreads some of these constructs and fails at others.
Remedies quote the statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.places import arguments, closing, place_of

if TYPE_CHECKING:
    from sqlglot import Token

#: Window function -> positions of length and slide among its durations; None: no slide.
_WINDOWS: dict[str, tuple[int, int | None]] = {
    "TUMBLE": (0, None),
    "HOP": (1, 0),
    "CUMULATE": (1, None),
    "SESSION": (0, None),
    "SESSION_WINDOW": (0, None),
}
#: Functions without an equivalent in Spark.
_WITHOUT_EQUAL = {
    "CUMULATE": "windows do not grow here",
    "SESSION": "windows have a fixed length here",
    "SESSION_WINDOW": "windows have a fixed length here",
}
_EDGES = {"_START": "window.start", "_END": "window.end"}
#: Tokens after which ``name(...)`` is not a call, but an alias with column names.
_BEFORE_ALIASES = frozenset({
    TokenType.ALIAS, TokenType.DOT, TokenType.IDENTIFIER, TokenType.RECURSIVE, TokenType.R_PAREN,
    TokenType.VAR, TokenType.WITH,
})  # fmt: skip
_NAMED = re.compile(r"(\w+)\s*=>\s*(.+)")
_TABLE = re.compile(r"TABLE\s+(`[^`]+`|[\w.]+)", re.IGNORECASE)
_DESCRIPTOR = re.compile(r"DESCRIPTOR\s*\(\s*(.+?)\s*\)", re.IGNORECASE)


def refuse_foreign(sql: str, tokens: Sequence[Token]) -> None:
    """Reject the first construct in ``sql`` that only other engines have.

    Raises:
        QueryError: ``malformed-sql`` for a name in double quotes, ``unsupported-sql`` for a window.
    """
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.STRING and sql[token.start] == '"':
            _refuse_quoted(sql, tokens, index)
        elif token.text.upper().removesuffix("_START").removesuffix("_END") in _WINDOWS:
            _refuse_window(sql, tokens, index)


# --- names in double quotes ----------------------------------------------------------------------


def _refuse_quoted(sql: str, tokens: Sequence[Token], index: int) -> None:
    """Reject double quotes around a name: in Spark they delimit a text."""
    before = tokens[index - 1].token_type if index else None
    after = tokens[index + 1].token_type if index + 1 < len(tokens) else None
    names = (TokenType.DOT, TokenType.FROM, TokenType.JOIN)
    if before not in names and after is not TokenType.DOT:
        return
    first = last = index
    while first > 1 and tokens[first - 1].token_type is TokenType.DOT:
        first -= 2
    while last + 2 < len(tokens) and tokens[last + 1].token_type is TokenType.DOT:
        last += 2
    name = ".".join(_as_name(sql, token) for token in tokens[first : last + 1 : 2])
    raise QueryError(
        "malformed-sql",
        f"{sql[tokens[index].start : tokens[index].end + 1]} is a text, not a name: Spark's SQL "
        "has texts in double quotes",
        remedy=f"write {name}, or give the dialect of the statement, such as postgres",
        position=place_of(tokens[index]),
    )


def _as_name(sql: str, token: Token) -> str:
    written = sql[token.start : token.end + 1]
    return "`" + token.text.replace("`", "``") + "`" if written.startswith('"') else written


# --- windows -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Window:
    """A call of a window function.

    Attributes:
        table: the windowed table, for a table function in FROM.
        time: the time column; None: not recognised.
    """

    table: str | None
    time: str | None
    durations: tuple[str, ...]


def _refuse_window(sql: str, tokens: Sequence[Token], index: int) -> None:
    token = tokens[index]
    if index + 1 >= len(tokens) or tokens[index + 1].token_type is not TokenType.L_PAREN:
        return
    if index and tokens[index - 1].token_type in _BEFORE_ALIASES:
        return
    end = closing(tokens, index + 1)
    if end is None:
        return
    following = [t.token_type for t in tokens[end + 1 : end + 3]]
    if following == [TokenType.ALIAS, TokenType.L_PAREN]:
        # Not a call: the name of a query in WITH, with names of its columns.
        return
    name = token.text.upper()
    edge = next((suffix for suffix in _EDGES if name.endswith(suffix)), "")
    kind = name.removesuffix(edge)
    window = _window(arguments(sql, tokens, index + 1, end))
    raise QueryError(
        "unsupported-sql",
        f"{token.text}() is not supported",
        remedy=_remedy(kind, edge, window),
        position=place_of(token),
    )


def _window(given: Sequence[str]) -> _Window:
    """Parse a window function's call, with positional or named (``SIZE => ...``) arguments."""
    table = time = None
    durations: list[str] = []
    named: dict[str, str] = {}
    for text in given:
        called = _NAMED.fullmatch(text)
        value = text if called is None else called[2]
        over, by = _TABLE.match(value), _DESCRIPTOR.fullmatch(value)
        if over is not None:
            table = over[1]
        elif by is not None:
            time = by[1]
        elif called is not None:
            named[called[1].upper()] = value
        elif time is None:
            time = value
        else:
            durations.append(value)
    if "SIZE" in named:
        slide = named.get("SLIDE", named.get("STEP"))
        durations = [named["SIZE"]] if slide is None else [slide, named["SIZE"]]
    return _Window(table, time, tuple(durations))


def _remedy(kind: str, edge: str, window: _Window) -> str:
    length, slide = _WINDOWS[kind]
    durations = window.durations
    if window.time is None or len(durations) <= max(length, slide or 0):
        text = (
            "window(ts, '10 minutes')" if slide is None else "window(ts, '10 minutes', '5 minutes')"
        )
    else:
        parts = [window.time, durations[length]]
        parts += [] if slide is None else [durations[slide]]
        text = f"window({', '.join(parts)})"
    grouped = f"GROUP BY {text}"
    if kind in _WITHOUT_EQUAL:
        return f"{_WITHOUT_EQUAL[kind]}: write {grouped}"
    if edge:
        return f"write {_EDGES[edge]}, and {grouped}"
    if window.table is not None:
        return f"write FROM {window.table}, and {grouped}"
    return f"write {text}"
