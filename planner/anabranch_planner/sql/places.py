"""Tokens of a statement: where each stands, and what was written between two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token


def place_of(token: Token) -> tuple[int, int]:
    """Line and column, from 1, of the first character of ``token``."""
    # The tokenizer counts to the end of the token.
    return token.line, max(token.col - (token.end - token.start), 1)


def text_of(sql: str, first: Token, last: Token) -> str:
    """What was written from ``first`` to ``last``, on one line."""
    return " ".join(sql[first.start : last.end + 1].split())


def closing(tokens: Sequence[Token], opening: int) -> int | None:
    """The index of the parenthesis that closes the one at ``opening``; None: none does."""
    depth = 0
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if not depth:
            return index
    return None


def arguments(sql: str, tokens: Sequence[Token], opening: int, end: int) -> tuple[str, ...]:
    """What was written between the commas within the parentheses from ``opening`` to ``end``."""
    found, depth, first = [], 0, opening + 1
    for index in range(opening + 1, end + 1):
        kind = tokens[index].token_type
        if (not depth and kind is TokenType.COMMA) or index == end:
            if first < index:
                found.append(text_of(sql, tokens[first], tokens[index - 1]))
            first = index + 1
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
    return tuple(found)
