"""Words and operators that lack an operand, and values side by side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.places import closing, malformed_at, text_of

if TYPE_CHECKING:
    from sqlglot import Token

#: Tokens in front of the parser's failure, and behind it, that are examined.
_BEFORE, _BEHIND = 4, 1
_OPERATORS = frozenset({
    TokenType.EQ, TokenType.NEQ, TokenType.NULLSAFE_EQ, TokenType.LT, TokenType.LTE, TokenType.GT,
    TokenType.GTE, TokenType.DPIPE, TokenType.SLASH, TokenType.MOD, TokenType.DIV, TokenType.LIKE,
    TokenType.ILIKE, TokenType.RLIKE, TokenType.BETWEEN, TokenType.IN, TokenType.IS,
})  # fmt: skip
_LOGICAL = frozenset({TokenType.AND, TokenType.OR})
#: Operators that NOT precedes: x NOT IN (1).
_AFTER_NOT = frozenset({
    TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE, TokenType.BETWEEN, TokenType.IN,
})  # fmt: skip
#: Token -> its operand, on the right.
_NEEDS = {
    **dict.fromkeys(_OPERATORS, "value"),
    **dict.fromkeys(
        (*_LOGICAL, TokenType.NOT, TokenType.WHERE, TokenType.ON, TokenType.HAVING, TokenType.WHEN),
        "condition",
    ),
    **dict.fromkeys((TokenType.PLUS, TokenType.DASH, TokenType.THEN, TokenType.ELSE), "value"),
    **dict.fromkeys(
        (TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.PARTITION_BY, TokenType.SELECT),
        "column or expression",
    ),
    TokenType.FROM: "stream",
    TokenType.JOIN: "stream",
    TokenType.LIMIT: "number",
    TokenType.OFFSET: "number",
    TokenType.ALIAS: "name",
    TokenType.DOT: "name",
    TokenType.UNION: "query",
    TokenType.EXCEPT: "query",
    TokenType.INTERSECT: "query",
    TokenType.ALL: "query",
}
#: Tokens before which a word is complete.
_ENDS = frozenset({
    TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.SEMICOLON, TokenType.COMMA, TokenType.FROM,
    TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT,
    TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.JOIN, TokenType.ON,
    TokenType.USING, TokenType.DOT, TokenType.THEN, TokenType.ELSE, TokenType.END, TokenType.WHEN,
    *_LOGICAL,
})  # fmt: skip
#: Tokens that the parser reads without an operand, and tokens that are no names after these.
_OVERLOOKED = frozenset({TokenType.ON, TokenType.GROUP_BY, TokenType.ALIAS, TokenType.SELECT})
_NEVER_NAMES = frozenset({
    TokenType.R_PAREN, TokenType.SEMICOLON, TokenType.COMMA, TokenType.WHERE, TokenType.GROUP_BY,
    TokenType.HAVING, TokenType.ORDER_BY,
})  # fmt: skip
#: Two operators side by side -> the one that was probably meant.
_MEANT = {"=<": "<=", "=>": ">=", "><": "<>"}
_NAMES = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
_LITERALS = frozenset({TokenType.NUMBER, TokenType.STRING})
#: Last tokens of a value.
_LAST = _NAMES | _LITERALS | {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
_LISTS = frozenset({TokenType.SELECT, TokenType.GROUP_BY, TokenType.ORDER_BY})
_CONDITIONS = frozenset({TokenType.WHERE, TokenType.ON, TokenType.HAVING, TokenType.WHEN})


def overlooked(tokens: Sequence[Token]) -> QueryError | None:
    """The error of a word without its operand, if the parser reads it all the same."""
    for token, after in itertools.zip_longest(tokens, tokens[1:]):
        if token.token_type in _OVERLOOKED and (after is None or after.token_type in _NEVER_NAMES):
            return _missing(token, after)
    return None


def missing_operand(tokens: Sequence[Token], near: int) -> QueryError | None:
    """The error of the word or operator nearest to ``near`` that lacks an operand; None if none
    does."""
    places = range(max(near - _BEFORE, 0), min(near + _BEHIND, len(tokens) - 1) + 1)
    for index in sorted(places, key=lambda place: abs(place - near)):
        token = tokens[index]
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        if index and tokens[index - 1].token_type is TokenType.DOT:
            continue
        if found := _between(token, after):
            return found
    return None


def _between(token: Token, after: Token | None) -> QueryError | None:
    kind = token.token_type
    if after is None or after.token_type in _ENDS:
        return _missing(token, after) if kind in _NEEDS else None
    if after.token_type not in _OPERATORS or (
        kind is TokenType.NOT and after.token_type in _AFTER_NOT
    ):
        return None
    if kind in _OPERATORS:
        meant = _MEANT.get(token.text + after.text, "one operator, with a value on either side")
        message = f"syntax error near {after.text!r}: it follows {token.text!r}"
        return malformed_at(message, f"write {meant}", after)
    if kind in _NEEDS or kind in (TokenType.COMMA, TokenType.L_PAREN):
        return malformed_at(
            f"there is no value before {after.text!r}",
            f"write one between {token.text!r} and {after.text!r}",
            after,
        )
    return None


def _missing(token: Token, after: Token | None) -> QueryError:
    before = "" if after is None else f" before {after.text!r}"
    what = _NEEDS[token.token_type]
    return malformed_at(
        f"there is no {what} after {token.text!r}",
        f"write one{before}, or leave {token.text!r} out",
        token,
    )


def missing_on(sql: str, tokens: Sequence[Token], near: int) -> QueryError | None:
    """The error of a join whose condition follows the joined stream without ON; None if no join
    before ``near`` is like that."""
    first = min(near, len(tokens) - 1)
    if first and tokens[first].token_type in (TokenType.DOT, *_OPERATORS):
        first -= 1
    names = 0
    for index in range(first - 1, max(first - 6, -1), -1):
        kind = tokens[index].token_type
        if kind is TokenType.JOIN:
            break
        names += kind in _NAMES
        if kind not in (*_NAMES, TokenType.DOT, TokenType.ALIAS):
            return None
    else:
        return None
    if not names or tokens[first].token_type not in _NAMES:
        return None
    condition = _operand(sql, tokens, first)
    word, stream = tokens[first - 1].text, text_of(sql, tokens[index], tokens[first - 1])
    if names > 1 and len(word) == len("ON") and set(word.upper()) & set("ON"):
        return malformed_at(
            f"the join has no ON before {condition!r}",
            f"did you mean 'ON' in place of {word!r}?",
            tokens[first - 1],
        )
    return malformed_at(
        f"the join has no ON before {condition!r}",
        f"write {stream} ON {condition} ...",
        tokens[first],
    )


def missing_between(sql: str, tokens: Sequence[Token], near: int) -> QueryError | None:
    """The error of two values side by side at ``near``, with neither comma nor operator; None if
    there are none."""
    first = near
    if tokens[near].token_type in (TokenType.DOT, TokenType.L_PAREN) and near:
        first -= 1
    value = tokens[first].token_type in _NAMES | _LITERALS | {TokenType.CASE}
    if not first or not value or tokens[first - 1].token_type not in _LAST:
        return None
    depth, begin = 0, 0
    for index in range(first - 1, -1, -1):
        kind = tokens[index].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth < 0 or (not depth and kind in _LISTS):
            listed = depth == 0 or _begins_list(tokens[index - 1] if index else None)
            return _side_by_side(sql, tokens, begin or index + 1, first, listed=listed)
        if not depth and (kind in _CONDITIONS or kind in _LOGICAL):
            return _side_by_side(sql, tokens, first - 1, first, listed=False)
        if not depth and kind in (TokenType.FROM, TokenType.JOIN):
            return _no_join(tokens[first - 1], tokens[first])
        if not depth and kind is TokenType.COMMA:
            begin = begin or index + 1
    return None


def _no_join(before: Token, token: Token) -> QueryError | None:
    if token.token_type not in _NAMES:
        return None
    return malformed_at(
        f"there is no JOIN between {before.text} and {token.text}",
        f"write JOIN {token.text} ON ..., or a single alias",
        token,
    )


def _begins_list(before: Token | None) -> bool:
    """Whether a parenthesis after ``before`` has a list, and no condition or value."""
    return before is not None and before.token_type in {*_NAMES, TokenType.IN}


def _side_by_side(
    sql: str, tokens: Sequence[Token], begin: int, first: int, *, listed: bool
) -> QueryError:
    one, other = text_of(sql, tokens[begin], tokens[first - 1]), _operand(sql, tokens, first)
    if listed:
        return malformed_at(
            f"there is no comma between {one} and {other}",
            f"write a comma between the items: {one}, {other}",
            tokens[first],
        )
    return malformed_at(
        f"there is no operator between {tokens[first - 1].text} and {other}",
        "write AND, OR or another operator between them",
        tokens[first],
    )


def _operand(sql: str, tokens: Sequence[Token], first: int) -> str:
    """The text of the value that begins at ``first``: a literal, a name with its dots, a call."""
    last = first
    while last + 2 < len(tokens) and tokens[last + 1].token_type is TokenType.DOT:
        last += 2
    if last + 1 < len(tokens) and tokens[last + 1].token_type is TokenType.L_PAREN:
        last = closing(tokens, last + 1) or last
    return text_of(sql, tokens[first], tokens[last])
