"""Further errors of a rejected SQL statement, besides its first error.

The faulty part of the text (an item of a SELECT list, an operand of AND, a key of GROUP BY or ORDER
BY) is overwritten by a neutral text of the same length, so that all positions stay the same, and
the statement is read again. An error of the whole statement (a join without an equality, a column
that is not grouped) may be a consequence of the overwriting, so it ends the search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from anabranch_contract.errors import MOST_ERRORS, QueryError, StructuredError
from anabranch_planner.sql.syntax import JoinDialect

T = TypeVar("T")
#: Maximum length in characters of a statement that is searched for further errors.
LONGEST = 20_000
_CODES = frozenset({
    "ambiguous-column", "bad-arguments", "bad-literal", "type-mismatch", "unknown-alias",
    "unknown-column", "unknown-function", "unknown-type",
})  # fmt: skip
#: Error code of a SELECT item without a type, such as the neutral text in place of an item.
_UNTYPED = "unsupported-output"
_LISTS = frozenset({TokenType.SELECT, TokenType.GROUP_BY, TokenType.ORDER_BY})
_CONDITIONS = frozenset({
    TokenType.WHERE, TokenType.ON, TokenType.HAVING, TokenType.QUALIFY,
})  # fmt: skip
_JOINS = frozenset({
    TokenType.JOIN, TokenType.LEFT, TokenType.RIGHT, TokenType.FULL, TokenType.INNER,
    TokenType.CROSS, TokenType.NATURAL, TokenType.OUTER,
})  # fmt: skip
_CLAUSES = _LISTS | _CONDITIONS | _JOINS | {
    TokenType.FROM, TokenType.USING, TokenType.LATERAL, TokenType.WINDOW, TokenType.LIMIT,
    TokenType.OFFSET, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.SEMICOLON,
    TokenType.WITH,
}  # fmt: skip
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})


def read_whole(sql: str | None, read: Callable[[str | None], T]) -> T:
    """The result of ``read`` for the statement ``sql`` (None: the document has no SQL text).

    Raises:
        QueryError: the error of ``read``, to which further errors of the statement are added.
    """
    try:
        return read(sql)
    except QueryError as error:
        others = () if sql is None else further(sql, error, read)
        raise (error.beside(others) if others else error) from error.__cause__


def further(sql: str, first: QueryError, read: Callable[[str], object]) -> tuple[QueryError, ...]:
    """The errors of ``sql`` in addition to ``first``, in the order of their positions.

    Args:
        read: reads a statement, and raises its first error.
    """
    found, text, error = list[QueryError](), sql, first
    lost = set[str]()
    while first.code in _CODES and len(sql) <= LONGEST and len(found) + 1 < MOST_ERRORS:
        given = error.position
        if given is None or error.field not in ("", "sql"):
            break
        changed = _without(text, given, lost)
        if changed is None or changed == text:
            break
        text = changed
        try:
            read(text)
            break
        except QueryError as other:
            error = other
        except StructuredError:
            break
        if error.code not in _CODES | {_UNTYPED}:
            break
        name = _name_at(sql, error.position)
        if name not in lost and error.code != _UNTYPED:
            found.append(error)
    return tuple(sorted(found, key=lambda one: one.position or (0, 0)))


def _name_at(sql: str, position: tuple[int, int] | None) -> str:
    """The unqualified column name at ``position`` of a statement, in lower case; else empty."""
    tokens = _tokens(sql)
    at = None if position is None else _index(sql, tokens, position)
    if at is None:
        return ""
    while at + 2 < len(tokens) and tokens[at + 1].token_type is TokenType.DOT:
        at += 2
    return tokens[at].text.lower()


def _tokens(sql: str) -> list[Token]:
    try:
        return JoinDialect().tokenize(sql)
    except SqlglotError:
        return []


def _index(sql: str, tokens: Sequence[Token], position: tuple[int, int]) -> int | None:
    """The index of the token that begins at ``position``; None if none does."""
    lines = sql.split("\n")
    offset = sum(len(line) + 1 for line in lines[: position[0] - 1]) + position[1] - 1
    return next((n for n, token in enumerate(tokens) if token.start == offset), None)


def _without(sql: str, position: tuple[int, int], lost: set[str]) -> str | None:
    """``sql`` with the part that has the error at ``position`` overwritten; None if it can't be.

    Args:
        lost: set to which the names are added that the overwritten part would have defined.
    """
    tokens = _tokens(sql)
    at = _index(sql, tokens, position)
    if at is None:
        return None
    begin, end = _block(tokens, at)
    own = [n for n, depth in _depths(tokens, begin, end) if depth == 0]
    clause = max((n for n in own if n <= at and tokens[n].token_type in _CLAUSES), default=None)
    if clause is None or clause == at:
        return None
    kind = tokens[clause].token_type
    stop = min((n for n in own if n > at and tokens[n].token_type in _CLAUSES), default=end)
    inside = [n for n in own if clause < n < stop]
    if kind in _LISTS:
        cuts = [n for n in inside if tokens[n].token_type is TokenType.COMMA]
    elif kind in _CONDITIONS:
        cuts = _ands(tokens, inside)
    else:
        return None
    start = max((n + 1 for n in cuts if n < at), default=clause + 1)
    stop = min((n for n in cuts if n > at), default=stop)
    if kind is TokenType.ON and not cuts:
        return _crossed(sql, tokens, clause, stop)
    if kind is TokenType.SELECT:
        if tokens[start].token_type is TokenType.DISTINCT:
            start += 1
        named = [n for n in inside if start < n < stop and tokens[n].token_type is TokenType.ALIAS]
        lost.add(tokens[stop - 1].text.lower())
        if begin and cuts and not named:
            return _dropped(sql, tokens, start, stop, clause)
        stop = named[-1] if named else stop
        return _written(sql, tokens, start, stop, "NULL" if begin else "1")
    if kind in _CONDITIONS:
        return _written(sql, tokens, start, stop, "TRUE")
    return _dropped(sql, tokens, start, stop, clause)


def _dropped(sql: str, tokens: Sequence[Token], start: int, stop: int, clause: int) -> str | None:
    """``sql`` without one entry of a clause's list and its comma, or without the whole clause."""
    listed = stop < len(tokens) and tokens[stop].token_type is TokenType.COMMA
    if listed and start == clause + 1:
        return _written(sql, tokens, start, stop + 1, "")
    return _written(sql, tokens, start - 1, stop, "")


def _block(tokens: Sequence[Token], at: int) -> tuple[int, int]:
    """Indices of the tokens from the innermost query around ``at`` to after its last token."""
    opened = list[int]()
    for n in range(at):
        if tokens[n].token_type is TokenType.L_PAREN:
            opened.append(n)
        elif tokens[n].token_type is TokenType.R_PAREN and opened:
            opened.pop()
    heads = (TokenType.SELECT, TokenType.WITH)
    queries = [n for n in opened if tokens[n + 1].token_type in heads]
    begin = queries[-1] + 1 if queries else 0
    depth = 0
    for n in range(begin, len(tokens)):
        kind = tokens[n].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth < 0:
            return begin, n
    return begin, len(tokens)


def _depths(tokens: Sequence[Token], begin: int, end: int) -> list[tuple[int, int]]:
    """Indices of a statement's tokens, each with its number of enclosing brackets."""
    found, depth = list[tuple[int, int]](), 0
    for n in range(begin, end):
        depth -= tokens[n].token_type in _CLOSING
        found.append((n, depth))
        depth += tokens[n].token_type in _OPENING
    return found


def _ands(tokens: Sequence[Token], inside: Sequence[int]) -> list[int]:
    """Indices of the tokens AND between operands of a condition; empty if it has an OR."""
    found, between = list[int](), False
    for n in inside:
        kind = tokens[n].token_type
        if kind is TokenType.OR:
            return []
        if kind is TokenType.BETWEEN:
            between = True
        elif kind is TokenType.AND:
            if not between:
                found.append(n)
            between = False
    return found


def _crossed(sql: str, tokens: Sequence[Token], on: int, stop: int) -> str | None:
    """``sql`` with the join whose condition spans ``on`` to ``stop`` turned into a CROSS JOIN."""
    join = max((n for n in range(on) if tokens[n].token_type is TokenType.JOIN), default=None)
    if join is None:
        return None
    first = join
    while tokens[first - 1].token_type in _JOINS:
        first -= 1
    table = sql[tokens[join].end + 1 : tokens[on].start]
    return _padded(sql, tokens[first].start, tokens[stop - 1].end + 1, f"CROSS JOIN{table}")


def _written(sql: str, tokens: Sequence[Token], start: int, stop: int, text: str) -> str | None:
    if not 0 <= start < stop <= len(tokens):
        return None
    return _padded(sql, tokens[start].start, tokens[stop - 1].end + 1, text)


def _padded(sql: str, begin: int, end: int, text: str) -> str | None:
    """``sql`` with ``text`` and spaces from ``begin`` to ``end``; None if ``text`` is too long."""
    old = sql[begin:end]
    if len(text) > len(old) or "\n" in old[: len(text)].replace("\n", "", text.count("\n")):
        return None
    rest = "".join(c if c == "\n" else " " for c in old[len(text) :])
    made = sql[:begin] + text + rest + sql[end:]
    lines = [len(line) for line in made.split("\n")]
    return made if lines == [len(line) for line in sql.split("\n")] else None
