"""Mistakes that the parser reads as if they were none."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.mistakes.brackets import unbalanced
from anabranch_planner.sql.mistakes.operands import overlooked
from anabranch_planner.sql.places import malformed_at
from anabranch_planner.sql.unresolved import as_written, at

if TYPE_CHECKING:
    from sqlglot import Token

    from anabranch_planner.sql.unresolved import Node

#: Tokens that end a list, and that begin one.
_ENDS = frozenset({
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY,
    TokenType.UNION, TokenType.R_PAREN, TokenType.SEMICOLON, TokenType.SELECT,
})  # fmt: skip
_BEGINNINGS = frozenset({
    TokenType.SELECT, TokenType.L_PAREN, TokenType.COMMA, TokenType.GROUP_BY, TokenType.ORDER_BY,
    TokenType.FROM,
})  # fmt: skip
#: Clauses in their order; none stands twice in a SELECT.
_ORDER = (
    TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT,
)  # fmt: skip
_ANEW = frozenset({
    TokenType.SELECT, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.SEMICOLON,
})  # fmt: skip
_SHAPES = {
    TokenType.WHEN: "WHEN condition THEN value",
    TokenType.BETWEEN: "BETWEEN least AND greatest",
}
_TYPOGRAPHIC = {"‘": "'", "’": "'", "“": '"', "”": '"'}


def check_tokens(tokens: Sequence[Token]) -> None:
    """Reject commas beside nothing, words that need something after them, typographic quotes.

    Raises:
        QueryError: ``malformed-sql``.
    """
    for found in (*_commas(tokens), overlooked(tokens), *_quotes(tokens)):
        if found is not None:
            raise found


def check_parsed(statements: Iterable[Node | None], tokens: Sequence[Token]) -> None:
    """Reject unclosed brackets, clauses in another order, WHEN without THEN, BETWEEN without AND,
    and IN without parentheses in ``statements``, which the parser has read from ``tokens``.

    Raises:
        QueryError: ``malformed-sql``.
    """
    parsed = [one for one in statements if one is not None]
    for found in (
        unbalanced(tokens),
        misplaced_clause(tokens),
        _without(parsed, tokens, TokenType.WHEN, TokenType.THEN),
        _without(parsed, tokens, TokenType.BETWEEN, TokenType.AND),
    ):
        if found is not None:
            raise found
    for statement in parsed:
        for node in statement.find_all(exp.In):
            _check_list(node)


def _check_list(node: exp.In) -> None:
    listed, call = node.args.get("field"), node.parent
    is_search = isinstance(call, exp.Anonymous) and str(call.this).lower() == "position"
    if listed is None or is_search or isinstance(call, exp.StrPosition):
        return
    text, other = as_written(listed), ""
    if not isinstance(listed, exp.Literal):
        other = f", or array_contains({text}, {as_written(node.this)}) of an array"
    with at(node):
        raise QueryError(
            "malformed-sql",
            f"IN has no parentheses around {text}",
            remedy=f"write IN ({text}){other}",
        )


def _commas(tokens: Sequence[Token]) -> Iterator[QueryError]:
    before: Token | None = None
    for token, after, last in itertools.zip_longest(tokens, tokens[1:], tokens[2:]):
        if token.token_type is not TokenType.COMMA:
            before = token
            continue
        counts = last is not None and last.token_type is TokenType.NUMBER
        ends = after is None or after.token_type in _ENDS
        if ends or (after.token_type is TokenType.LIMIT and counts):
            yield malformed_at(
                "a comma before " + ("the end" if after is None else repr(after.text)),
                "leave the comma out, or write another entry after it",
                token,
            )
        elif before is not None and before.token_type in _BEGINNINGS:
            yield malformed_at(
                f"a comma after {before.text!r}",
                "leave the comma out, or write another entry before it",
                token,
            )
        before = token


def _quotes(tokens: Sequence[Token]) -> Iterator[QueryError]:
    for token in tokens:
        if token.token_type is TokenType.VAR and token.text[:1] in _TYPOGRAPHIC:
            text = token.text.strip("".join(_TYPOGRAPHIC))
            name = f", or `{text}` for a name" if token.text[0] in "“”" else ""
            yield malformed_at(
                f"{token.text} has typographic quotes", f"write '{text}' for a text{name}", token
            )


def misplaced_clause(tokens: Sequence[Token]) -> QueryError | None:
    """The error of the first clause that stands twice in a SELECT, or after a later one; None if
    all are in order."""
    if any(token.token_type is TokenType.PIPE_GT for token in tokens):
        # Steps of |> are in any order.
        return None
    last: list[Token | None] = [None]
    for token, after in itertools.zip_longest(tokens, tokens[1:]):
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            last.append(None)
        elif kind is TokenType.R_PAREN:
            last[1:] = last[1:-1]
        elif kind in _ANEW:
            last[-1] = None
        elif kind in _ORDER and (kind is not TokenType.LIMIT or _is_number(after)):
            before, last[-1] = last[-1], token
            if before is not None and _ORDER.index(kind) <= _ORDER.index(before.token_type):
                return _misplaced(token, before)
        elif kind is TokenType.JOIN and last[-1] is not None:
            return _misplaced(token, last[-1])
    return None


def _is_number(token: Token | None) -> bool:
    return token is not None and token.token_type is TokenType.NUMBER


def _misplaced(token: Token, before: Token) -> QueryError:
    if token.token_type is not before.token_type:
        return malformed_at(
            f"{token.text!r} stands after {before.text!r}", f"move it before {before.text!r}", token
        )
    conditions = token.token_type in (TokenType.WHERE, TokenType.HAVING)
    joined = "AND between the conditions" if conditions else "one list with a comma"
    return malformed_at(f"a second {token.text!r}", f"write {joined} in place of it", token)


def unfinished_between(tokens: Sequence[Token], near: int) -> QueryError | None:
    """The error of a BETWEEN in front of ``near`` that no AND follows; None if there is none."""
    for index in range(min(near, len(tokens) - 1), -1, -1):
        if tokens[index].token_type is TokenType.BETWEEN:
            found = _reaches(tokens, index, TokenType.AND, TokenType.BETWEEN)
            return None if found else _lacks(tokens[index], TokenType.AND)
    return None


def _without(
    parsed: Sequence[Node], tokens: Sequence[Token], word: TokenType, second: TokenType
) -> QueryError | None:
    """The error of a ``word`` without its ``second`` word, if there are too few of the latter."""
    needed = 0
    for statement in parsed:
        if word is TokenType.WHEN:
            needed += sum(len(case.args["ifs"]) for case in statement.find_all(exp.Case))
        else:
            needed += sum(1 for _ in statement.find_all(exp.Between, exp.And))
    if needed <= sum(token.token_type is second for token in tokens):
        return None
    places = [index for index, token in enumerate(tokens) if token.token_type is word]
    first = next((i for i in places if not _reaches(tokens, i, second, word)), None)
    # Other spellings of AND, such as &&, are no tokens of ``second``.
    return None if first is None else _lacks(tokens[first], second)


def _lacks(token: Token, second: TokenType) -> QueryError:
    return malformed_at(
        f"{token.text.upper()} has no {second.name}", f"write {_SHAPES[token.token_type]}", token
    )


def _reaches(tokens: Sequence[Token], index: int, second: TokenType, word: TokenType) -> bool:
    depth = 0
    for token in tokens[index + 1 :]:
        kind = token.token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth < 0 or (not depth and (kind is word or kind in _ENDS or kind is TokenType.ELSE)):
            return False
        if not depth and kind is second:
            return True
    return False
