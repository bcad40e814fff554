"""The error for a statement that the parser can't read: message, place and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.clauses.foreign import known_construct
from anabranch_planner.sql.mistakes.accepted import misplaced_clause, unfinished_between
from anabranch_planner.sql.mistakes.brackets import unbalanced, unfinished_case
from anabranch_planner.sql.mistakes.operands import missing_between, missing_on, missing_operand
from anabranch_planner.sql.mistakes.words import misspelt, named_key
from anabranch_planner.sql.places import place_of

if TYPE_CHECKING:
    from sqlglot import Token

#: Beginning of a quoted part -> its name, and its remedy.
_UNCLOSED = {
    "'": ("text", "write ' at its end; within the text a quote is doubled: ''"),
    '"': ("text", 'write " at its end'),
    "`": ("name", "write ` at its end"),
    "/": ("comment", "write */ at its end"),
}
#: Characters that the parser can't read, or reads otherwise than meant -> the remedy.
_FOREIGN = {
    "#": "write -- before a comment",
    "=>": "write >= for greater or equal; => stands between the name and value of an argument",
}


def too_deep() -> QueryError:
    """Return the error for a statement that recursion can't follow."""
    return QueryError(
        "malformed-sql",
        "the statement is nested too deeply",
        remedy="use IN (...) or fewer parentheses",
    )


def malformed(
    sql: str, tokens: Sequence[Token], message: str, place: tuple[int, int], near: str
) -> QueryError:
    """Return the error for a statement that the parser can't read.

    Args:
        tokens: of ``sql``; empty if it can't be divided into tokens.
        message: the parser's, if nothing else is known; ``place``: where it failed.
        near: the remedy if nothing else is known.
    """
    if not tokens:
        return _unclosed(sql, message, place, near)
    index = next((i for i, token in enumerate(tokens) if place_of(token) >= place), len(tokens))
    last = min(index, len(tokens) - 1)
    found = unbalanced(tokens, last) or known_construct(tokens, place)
    if found is not None:
        return found
    found = unfinished_case(tokens, last)
    meant = misspelt(tokens, index) or named_key(sql, tokens, index)
    if found is None and meant is None:
        found = (
            _foreign(tokens, last)
            or misplaced_clause(tokens)
            or unfinished_between(tokens, last)
            or missing_operand(tokens, last)
            or missing_on(sql, tokens, last)
            or missing_between(sql, tokens, last)
            or _with_query(tokens, last)
        )
    return found or QueryError("malformed-sql", message, remedy=meant or near, position=place)


def _unclosed(sql: str, message: str, place: tuple[int, int], near: str) -> QueryError:
    line, column = place
    lines = sql.split("\n")
    opening = lines[line - 1][column - 1 : column] if line <= len(lines) else ""
    if opening not in _UNCLOSED:
        return QueryError("malformed-sql", message, remedy=near, position=place)
    what, remedy = _UNCLOSED[opening]
    return QueryError("malformed-sql", f"an unclosed {what}", remedy=remedy, position=place)


def _foreign(tokens: Sequence[Token], near: int) -> QueryError | None:
    """The error of two slashes, a # or a => at ``near``; None if there are none."""
    token = tokens[near]
    remedy = _FOREIGN.get(token.text)
    if token.token_type is TokenType.SLASH and tokens[near - 1].token_type is TokenType.SLASH:
        token, remedy = tokens[near - 1], _FOREIGN["#"]
        text = "//"
    else:
        text = token.text
    if remedy is None:
        return None
    return QueryError(
        "malformed-sql", f"syntax error near {text!r}", remedy=remedy, position=place_of(token)
    )


def _with_query(tokens: Sequence[Token], near: int) -> QueryError | None:
    """The error of a query of WITH without parentheses, or of WITH alone; None of others."""
    if tokens[0].token_type is not TokenType.WITH:
        return None
    token, before = tokens[near], tokens[near - 1]
    if token.token_type is TokenType.SELECT and before.token_type is TokenType.ALIAS:
        name = tokens[near - 2].text
        return QueryError(
            "malformed-sql",
            f"the query {name!r} of WITH is not in parentheses",
            remedy=f"write {name} AS (SELECT ...)",
            position=place_of(token),
        )
    if near == len(tokens) - 1 and token.token_type is TokenType.R_PAREN:
        return QueryError(
            "malformed-sql",
            "there is no SELECT after the queries of WITH",
            remedy="write the SELECT that reads them at the end",
            position=place_of(token),
        )
    return None
