"""Tokens of an SQL statement: their places, and the text of a syntax node."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from anabranch_contract.errors import QueryError

if TYPE_CHECKING:
    from sqlglot import Token

    from anabranch_planner.sql.unresolved import Node


def place_of(token: Token) -> tuple[int, int]:
    """Line and column, both from 1, of the first character of an SQL token."""
    # The tokenizer reports the last column of the token.
    return token.line, max(token.col - (token.end - token.start), 1)


def text_of(sql: str, first: Token, last: Token) -> str:
    """The SQL text from ``first`` to ``last``, as one line."""
    return " ".join(sql[first.start : last.end + 1].split())


def closing(tokens: Sequence[Token], opening: int) -> int | None:
    """The index of the parenthesis that closes the one at index ``opening``, or None."""
    depth = 0
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if not depth:
            return index
    return None


def corresponding(
    place: tuple[int, int], tokens: Sequence[Token], others: Sequence[Token]
) -> tuple[int, int] | None:
    """Return the place of a word in ``others``, another spelling of the statement ``tokens``, in
    which it is at ``place``. If both contain the word equally often, the same occurrence is taken,
    else the result is None."""
    words = [token.text.lower() for token in tokens]
    index = next((i for i, token in enumerate(tokens) if place_of(token) == place), None)
    if index is None or not words[index][:1].isidentifier():
        return None
    found = [token for token in others if token.text.lower() == words[index]]
    if len(found) != words.count(words[index]):
        return None
    return place_of(found[words[: index + 1].count(words[index]) - 1])


#: Operators whose right operand has no recorded position: paths of ``->``, types of ``::``.
_UNPLACED = frozenset({
    TokenType.ARROW, TokenType.DARROW, TokenType.HASH_ARROW, TokenType.DHASH_ARROW,
    TokenType.DCOLON,
})  # fmt: skip
#: Maximum number of characters of a node's text in a message.
_SHOWN = 60


def malformed_at(message: str, remedy: str, token: Token) -> QueryError:
    """Return the error ``malformed-sql`` with the place of ``token``."""
    return QueryError("malformed-sql", message, remedy=remedy, position=place_of(token))


class SourceText:
    """A statement as its author wrote it, with the positions that the parser recorded in nodes."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        self._sql, self._tokens = sql, tokens
        self._at = {token.start: index for index, token in enumerate(tokens)}

    def call(self, node: Node) -> Sequence[Token]:
        """The tokens of a call, from name to closing parenthesis; empty for other nodes."""
        first = self._at.get(node.meta.get("start", -1))
        return () if first is None else self._called(first)

    def named(self, node: Node, dialect: str) -> str:
        """``node`` in its author's words: a function's name, an operator's text, or a clause."""
        call, inner = self.call(node), node.this
        if call:
            return f"{call[0].text}()"
        if isinstance(node, exp.Cast | exp.JSONExtract | exp.JSONExtractScalar):
            text = self._text(node)
        elif isinstance(node, exp.Binary | exp.Bracket | exp.Array | exp.Struct):
            sides = [self._text(side) for side in (inner, node.expression) if side]
            is_placed = isinstance(node, exp.Binary) and all(sides)
            text = self._text(node) if is_placed else node.sql(dialect)
        elif isinstance(node, exp.Func):
            text = self._text(node)
            wraps = text and isinstance(inner, exp.Expr) and text == self._text(inner)
            if wraps:
                # The parser recorded no name, or added ``node`` around an argument of a call.
                name = self._around(inner)
                if name is None and node.parent:
                    return self.named(node.parent, dialect)
                text = f"{name.text}()" if name is not None else None
            text = text or f"{node.sql_name().lower()}()"
        else:
            text = None
        text = text or type(node).__name__.upper()
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."

    def _around(self, inner: Node) -> Token | None:
        """The name of the function whose first argument is ``inner``, as a token; else None."""
        places = (self._at.get(part.meta.get("start", -1)) for part in inner.walk())
        first = min((place for place in places if place is not None), default=0)
        call = self._called(first - 2) if first > 1 else ()
        return call[0] if call and call[0].token_type is TokenType.VAR else None

    def place(self, node: Node) -> tuple[int, int] | None:
        """The place of a function for whose name the parser recorded none; None for other nodes."""
        inner = node.this
        if not isinstance(node, exp.Func) or not isinstance(inner, exp.Expr) or self.call(node):
            return None
        name = self._around(inner) if self._text(node) == self._text(inner) else None
        return None if name is None else place_of(name)

    def _text(self, node: Node) -> str | None:
        """The text of ``node`` on one line; None if the parser recorded no position for it."""
        recorded = (self._at.get(part.meta.get("start", -1)) for part in node.walk())
        found = [index for index in recorded if index is not None]
        if not found:
            return None
        first, last, tokens = min(found), max(found), self._tokens
        if isinstance(node, exp.Cast) and first > 1:
            # The recorded position of CAST(x AS t) is that of x.
            cast = self._called(first - 2)
            if cast and cast[0].end + 1 == cast[1].start:
                return f"{cast[0].text}()"
        kinds = [token.token_type for token in tokens]
        depth, index = 0, first
        while index < len(kinds):
            depth += (kinds[index] is TokenType.L_PAREN) - (kinds[index] is TokenType.R_PAREN)
            after = kinds[index + 1 : index + 3]
            if after and after[0] in _UNPLACED:
                last = max(last, index + 2)
            elif index >= last and not depth:
                opened = first and kinds[first - 1] is TokenType.L_PAREN
                closed = len(after) == 2 and after[0] is TokenType.R_PAREN
                if opened and closed and after[1] in _UNPLACED:
                    first, depth = first - 1, depth + 1
                elif after[:1] != [TokenType.L_PAREN]:
                    break
            index += 1
        return text_of(self._sql, tokens[first], tokens[min(index, len(tokens) - 1)])

    def _called(self, first: int) -> Sequence[Token]:
        if first + 1 >= len(self._tokens):
            return ()
        if self._tokens[first + 1].token_type is not TokenType.L_PAREN:
            return ()
        last = closing(self._tokens, first + 1)
        return () if last is None else self._tokens[first : last + 1]


#: Maximum length of the text of an interval, in characters.
_LONGEST_INTERVAL = 200


def check_intervals(tokens: Sequence[Token]) -> None:
    """Reject long texts of intervals, which take the parser quadratic time.

    Raises:
        QueryError: ``bad-interval``.
    """
    for before, token in itertools.pairwise(tokens):
        if before.token_type is TokenType.INTERVAL and len(token.text) > _LONGEST_INTERVAL:
            raise QueryError(
                "bad-interval",
                f"the text of an interval has {len(token.text)} characters",
                remedy=f"write {_LONGEST_INTERVAL} at most",
                position=place_of(token),
            )
