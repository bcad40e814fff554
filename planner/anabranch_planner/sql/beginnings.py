"""Check of a statement's first word, which has to be SELECT or WITH. Others are rejected here,
because the parser would read them as an expression, or as a statement that is not a query."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.places import place_of
from anabranch_planner.sql.unresolved import unsupported

if TYPE_CHECKING:
    from sqlglot import Token

_QUERY = ("SELECT", "WITH")
#: First words that the parser accepts for a query, besides SELECT and WITH.
_OTHERS = frozenset({"FROM", "VALUES", "TABLE"})
SHAPE = "write SELECT ... FROM a JOIN b ON ... [WHERE ...]"
_ONLY_SELECT = "register only its SELECT; the query's sink says where the results go"
_APPEND_ONLY = "streams only gain rows: leave rows out with WHERE, or limit how long a stream keeps"
_REMEDIES = {
    "INSERT": "send the rows to the stream's source; a query only reads streams",
    "CREATE": "register a stream for a table; for a view register its SELECT as a query",
    "UPDATE": f"{_APPEND_ONLY} them",
    "DELETE": f"{_APPEND_ONLY} them",
    "MERGE": f"{_APPEND_ONLY} them",
    "TRUNCATE": f"{_APPEND_ONLY} them",
    "DROP": "delete the query or the stream by its name, not by SQL",
    "ALTER": "change the query or the stream by its name, not by SQL",
    "EXPLAIN": "ask for an explanation of the SELECT after it",
    "DESCRIBE": "streams are listed with their columns, not by SQL",
    "DESC": "streams are listed with their columns, not by SQL",
    "SHOW": "streams and queries are listed by name, not by SQL",
    "SET": "settings are changed by name, not by SQL",
    "USE": "name registered streams; they belong to no database",
}


def check_beginning(tokens: Sequence[Token]) -> None:
    """Reject a statement whose first words do not begin a query.

    Raises:
        QueryError: ``unsupported-sql``: it is another kind of statement, which the error names;
            ``malformed-sql``: it is none.
    """
    if not tokens or tokens[0].token_type in (TokenType.L_PAREN, TokenType.SEMICOLON):
        return
    first = tokens[0]
    word = first.text.upper()
    if word in _QUERY or word in _OTHERS:
        return
    place = place_of(first)
    if word in _REMEDIES:
        reads = any(token.token_type is TokenType.SELECT for token in tokens)
        raise no_query(word, reads=reads).moved(position=place)
    close = difflib.get_close_matches(word, _QUERY, n=1)
    raise QueryError(
        "malformed-sql",
        f"the statement begins with {first.text[:60]!r}",
        remedy=f"did you mean {close[0]!r}?" if close else "a query begins with SELECT or WITH",
        position=place,
    )


def no_query(word: str, *, reads: bool) -> QueryError:
    """The error for a statement that is not a query.

    Args:
        word: the statement's first word in upper case.
        reads: whether the statement contains a SELECT.
    """
    article = "an" if word[0] in "AEIOU" else "a"
    remedy = _ONLY_SELECT if reads and word in ("INSERT", "CREATE") else _REMEDIES.get(word, SHAPE)
    return unsupported(f"{article} {word} statement", remedy)
