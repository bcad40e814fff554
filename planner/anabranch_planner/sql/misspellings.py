"""SQL words that a statement misspells: the parser takes them for names and stops after them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_planner.sql.places import place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

_WORDS = (
    "AND", "BETWEEN", "CROSS", "DISTINCT", "FROM", "GROUP", "HAVING", "INNER", "INTERVAL", "JOIN",
    "LEFT", "LIMIT", "NATURAL", "OFFSET", "ORDER", "SELECT", "USING", "WHERE",
)  # fmt: skip
#: FORM for FROM has three of four letters in order.
_CLOSE = 0.75


def misspelt(tokens: Sequence[Token], place: tuple[int, int]) -> str | None:
    """A remedy for a syntax error at ``place``: which word there, or beside it, was meant.

    None: none is like a word of SQL.
    """
    near = next((i for i, token in enumerate(tokens) if place_of(token) >= place), len(tokens))
    for index in (near - 1, near, near + 1):
        if not 0 <= index < len(tokens) or tokens[index].token_type is not TokenType.VAR:
            continue
        text = tokens[index].text
        close = difflib.get_close_matches(text.upper(), _WORDS, n=1, cutoff=_CLOSE)
        if close and close[0] != text.upper():
            return f"did you mean {close[0]!r} in place of {text!r}?"
    return None
