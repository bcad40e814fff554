"""Brackets and CASE without their ends, and ends without a beginning."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.places import place_of

if TYPE_CHECKING:
    from sqlglot import Token

_OPENING = {
    TokenType.R_PAREN: TokenType.L_PAREN,
    TokenType.R_BRACKET: TokenType.L_BRACKET,
    TokenType.R_BRACE: TokenType.L_BRACE,
}
_CALLED = {"(": "parenthesis", "[": "bracket", "{": "brace"}
_CLOSES = {"(": ")", "[": "]", "{": "}", ")": "(", "]": "[", "}": "{"}
#: Tokens that only a query in parentheses may have inside them, as FILTER and OVER apart.
_CLAUSES = frozenset({
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY,
})  # fmt: skip
_WITH_NAMES = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.JOIN})
_CALLS_WITH_NAMES = frozenset({"CAST", "TRY_CAST", "STRUCT"})


def unbalanced(tokens: Sequence[Token], near: int | None = None) -> QueryError | None:
    """The error of the first bracket that is not closed, or that closes none; None: all match.

    Args:
        near: index of the token at which the parser failed; None: it read the statement.
    """
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.token_type in _OPENING.values():
            opened.append(index)
        elif token.token_type in _OPENING:
            kinds = [tokens[one].token_type for one in opened]
            if _OPENING[token.token_type] not in kinds:
                return _closes_nothing(token)
            if opened[-1:] and kinds[-1] is not _OPENING[token.token_type]:
                return _not_closed(tokens, opened[-1], index)
            opened.pop()
    return _not_closed(tokens, opened[-1], near) if opened else None


def _closes_nothing(token: Token) -> QueryError:
    return QueryError(
        "malformed-sql",
        f"{token.text!r} closes no {_CALLED[_CLOSES[token.text]]}",
        remedy=f"leave it out, or write {_CLOSES[token.text]!r} where it should open",
        position=place_of(token),
    )


def _not_closed(tokens: Sequence[Token], opening: int, near: int | None) -> QueryError:
    text = tokens[opening].text
    line, column = place_of(tokens[opening])
    if near is None:
        near = _first_after(tokens, opening, _CLAUSES)
    elif not _may_name(tokens, opening):
        near = min(near, _first_after(tokens, opening, {TokenType.ALIAS}) or near)
    remedy = f"close the {_CALLED[text]} that opens at line {line}, column {column}"
    if near is not None and opening < near < len(tokens) - 1:
        remedy += f", with {_CLOSES[text]!r} before {tokens[near].text!r}"
    return QueryError(
        "malformed-sql",
        f"the {_CALLED[text]} {text!r} is not closed",
        remedy=remedy,
        position=(line, column),
    )


def _may_name(tokens: Sequence[Token], opening: int) -> bool:
    """Whether AS may stand in a bracket: in a query, a cast, a struct, or joined streams."""
    around = tokens[max(opening - 1, 0) : opening + 2]
    return any(
        token.token_type in _WITH_NAMES or token.text.upper() in _CALLS_WITH_NAMES
        for token in around
    )


def _first_after(tokens: Sequence[Token], opening: int, kinds: Set[TokenType]) -> int | None:
    """The first token of ``kinds`` after a bracket, outside of further brackets; None: there is
    none."""
    depth = 0
    for index in range(opening + 1, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind in _OPENING.values()) - (kind in _OPENING)
        if not depth and kind in kinds:
            return index
    return None


def unfinished_case(tokens: Sequence[Token], near: int) -> QueryError | None:
    """The error of a CASE without END; None if all have one.

    Args:
        near: index of the last token that the parser read.
    """
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if index and tokens[index - 1].token_type is TokenType.DOT:
            continue
        if token.token_type is TokenType.CASE:
            opened.append(index)
        elif token.token_type is TokenType.END:
            opened[-1:] = []
    if not opened or near <= opened[-1]:
        return None
    line, column = place_of(tokens[near])
    return QueryError(
        "malformed-sql",
        "CASE has no END",
        remedy=f"write END after {tokens[near].text!r} at line {line}, column {column}",
        position=place_of(tokens[opened[-1]]),
    )
