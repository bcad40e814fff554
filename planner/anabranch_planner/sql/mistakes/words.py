"""Misspelt keywords, and words that stand where none may be."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_planner.sql.places import text_of

if TYPE_CHECKING:
    from sqlglot import Token

_WORDS = (
    "AND", "BETWEEN", "CASE", "CROSS", "DISTINCT", "ELSE", "EXCEPT", "EXISTS", "FROM", "FULL",
    "GROUP", "GROUP BY", "HAVING", "INNER", "INTERSECT", "INTERVAL", "JOIN", "LEFT", "LIKE",
    "LIMIT", "NATURAL", "OFFSET", "ORDER", "ORDER BY", "OUTER", "OVER", "PARTITION BY", "QUALIFY",
    "RIGHT", "SELECT", "THEN", "UNION", "USING", "WHEN", "WHERE",
)  # fmt: skip
#: Minimum similarity of a misspelt keyword: FORM and FROM share three of four letters.
_CLOSE = 0.75
#: Words that BY has to follow.
_BY = frozenset({"GROUP", "ORDER", "PARTITION"})


def misspelt(tokens: Sequence[Token], near: int) -> str | None:
    """Remedy for a syntax error at token ``near``: the keyword that it, or the word before or
    after it, probably misspells.

    None if none of them resembles a keyword.
    """
    for index in (near - 1, near, near + 1):
        if not 0 <= index < len(tokens) or tokens[index].token_type is not TokenType.VAR:
            continue
        text = tokens[index].text
        word = text.upper()
        if word in _BY:
            return f"write {word} BY in place of {text!r}"
        meant = meant_by(word)
        if meant is not None and meant != word:
            return f"did you mean {meant!r} in place of {text!r}?"
    return None


def meant_by(word: str) -> str | None:
    """The keyword that ``word``, in capitals, resembles or is; None if there is none.

    >>> meant_by("WEHRE"), meant_by("ADN"), meant_by("ID")
    ('WHERE', 'AND', None)
    """
    close = difflib.get_close_matches(word, _WORDS, n=1, cutoff=_CLOSE)
    if close:
        return close[0]
    # In a word of three letters, two in the other order are less similar than that.
    return next((one for one in _WORDS if sorted(one) == sorted(word)), None)


#: Tokens that end GROUP BY.
_AFTER_GROUPS = frozenset({
    TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.QUALIFY, TokenType.FROM,
})  # fmt: skip


def named_key(sql: str, tokens: Sequence[Token], near: int) -> str | None:
    """Remedy for a syntax error at token ``near``: an alias after a key of GROUP BY, where none may
    be.

    None if there is no such alias.
    """
    depth, first = 0, None
    for index in range(near - 1, 0, -1):
        kind = tokens[index].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth < 0 or kind in _AFTER_GROUPS:
            return None
        if not depth and first is None and kind in (TokenType.COMMA, TokenType.GROUP_BY):
            first = index + 1
        if not depth and kind is TokenType.GROUP_BY:
            break
    else:
        return None
    named = near + (near < len(tokens) and tokens[near].token_type is TokenType.ALIAS)
    if first is None or first >= near or named >= len(tokens):
        return None
    key, name = text_of(sql, tokens[first], tokens[near - 1]), tokens[named].text
    return f"write {key} AS {name} in the SELECT list, and GROUP BY {name}"
