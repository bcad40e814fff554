"""Rejection of names in double quotes, as other SQL engines write them.

The search is over tokens, as the parser reads such a name as a text. Remedies quote the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.places import place_of

if TYPE_CHECKING:
    from sqlglot import Token


def refuse_foreign(sql: str, tokens: Sequence[Token]) -> None:
    """Reject the first name in double quotes in ``sql``.

    Raises:
        QueryError: ``malformed-sql``.
    """
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.STRING and sql[token.start] == '"':
            _refuse_quoted(sql, tokens, index)


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
