"""Names in double quotes, as standard SQL writes them.

In Spark's SQL a token in double quotes is a text. Where a text would be a syntax error, but a name
is allowed, it is read as a name: next to a dot, in FROM, after JOIN, AS and WITH. The tokens are
searched before the parser reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.places import place_of

if TYPE_CHECKING:
    from sqlglot import Token

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_CASTS = ("CAST", "TRY_CAST")
#: Tokens that end the list of FROM.
_AFTER_FROM = frozenset({
    TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY, TokenType.ORDER_BY,
    TokenType.LIMIT, TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT, TokenType.SELECT,
})  # fmt: skip


def read_names(sql: str, tokens: Sequence[Token]) -> None:
    """Turn texts in double quotes into names where only a name can stand.

    Args:
        tokens: the tokens of ``sql``, which are changed.

    Raises:
        QueryError: ``ambiguous-quotes``: a statement with such names also has double quotes around
            a word that may be either a text or a column.
    """
    quoted = [n for n, token in enumerate(tokens) if _is_quoted(sql, token)]
    if not quoted:
        return
    names = {n for n in quoted if _beside_dot(tokens, n)} | _in_clauses(sql, tokens)
    for index in names:
        tokens[index].token_type = TokenType.IDENTIFIER
    others = [n for n in quoted if n not in names]
    if names and others:
        raise _ambiguous(sql, tokens[others[0]], tokens[min(names)])


def _is_quoted(sql: str, token: Token) -> bool:
    return token.token_type is TokenType.STRING and sql[token.start] == '"'


def _beside_dot(tokens: Sequence[Token], index: int) -> bool:
    before = tokens[index - 1].token_type if index else None
    after = tokens[index + 1].token_type if index + 1 < len(tokens) else None
    return TokenType.DOT in (before, after)


def _in_clauses(sql: str, tokens: Sequence[Token]) -> set[int]:
    """Indices of the tokens that name an entry of FROM or WITH, its alias, or a column after AS."""
    names: set[int] = set()
    #: Per open parenthesis: whether a FROM list is open in it, and a SELECT before its FROM.
    listed, selecting = [False], [False]
    #: For each open parenthesis: the word before it.
    words = [""]
    for index, token in enumerate(tokens):
        kind = token.token_type
        before = tokens[index - 1].token_type if index else None
        if kind is TokenType.L_PAREN:
            listed.append(False)
            selecting.append(False)
            words.append(tokens[index - 1].text.upper() if index else "")
        elif kind is TokenType.R_PAREN and len(listed) > 1:
            listed.pop()
            selecting.pop()
            words.pop()
        elif kind is TokenType.SELECT:
            listed[-1], selecting[-1] = False, True
        elif kind is TokenType.FROM and selecting[-1] and not _compares(tokens, index):
            listed[-1], selecting[-1] = True, False
        elif kind in _AFTER_FROM:
            listed[-1] = False
        elif _is_quoted(sql, token):
            named = (
                before is TokenType.JOIN
                or (before is TokenType.ALIAS and words[-1] not in _CASTS)
                or before is TokenType.WITH
                or words[-1] == "USING"
                or (listed[-1] and before in (TokenType.FROM, TokenType.COMMA))
                or (listed[-1] and _names_entry(tokens, index - 1, names))
            )
            if named:
                names.add(index)
    return names


def _compares(tokens: Sequence[Token], index: int) -> bool:
    """Whether the FROM at ``index`` belongs to ``IS DISTINCT FROM``."""
    before = [token.token_type for token in tokens[max(index - 3, 0) : index]]
    return before[-1:] == [TokenType.DISTINCT] and TokenType.IS in before


def _names_entry(tokens: Sequence[Token], index: int, names: set[int]) -> bool:
    """Whether a table's name, perhaps qualified, ends at ``index``, so that an alias may follow."""
    while tokens[index].token_type in _NAMES or index in names:
        before = tokens[index - 1].token_type
        if before is not TokenType.DOT:
            return before in (TokenType.FROM, TokenType.JOIN, TokenType.COMMA)
        index -= 2
    return False


def _ambiguous(sql: str, token: Token, name: Token) -> QueryError:
    written = sql[token.start : token.end + 1]
    text = token.text.replace("\\", "\\\\").replace("'", "\\'")
    column = token.text.replace("`", "``")
    return QueryError(
        "ambiguous-quotes",
        f"{written} is a text in Spark's SQL, but the statement has names in double quotes, such "
        f"as {sql[name.start : name.end + 1]}",
        remedy=f"write '{text}' for the text, `{column}` for the column",
        position=place_of(token),
    )
