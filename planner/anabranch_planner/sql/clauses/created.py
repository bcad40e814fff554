"""Reading of ``CREATE VIEW name AS SELECT ...`` and ``INSERT INTO name ...`` as name and SELECT."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.dialects import SPARK, reader_of
from anabranch_planner.sql.places import place_of
from anabranch_planner.sql.unresolved import unsupported

if TYPE_CHECKING:
    from sqlglot import Token

#: Words that are accepted between CREATE and the name.
_FORMS = frozenset({
    ("VIEW",), ("MATERIALIZED", "VIEW"), ("TABLE",),
    ("OR", "REPLACE", "VIEW"), ("OR", "REPLACE", "MATERIALIZED", "VIEW"),
    ("OR", "REPLACE", "TABLE"),
})  # fmt: skip
_ABSENT = ("IF", "NOT", "EXISTS")
_OBJECTS = ("VIEW", "TABLE")
_INSERT = ("INSERT", "INTO")
#: Pattern of the permitted names of queries.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class Created:
    """A view or table that a statement creates or inserts into.

    Attributes:
        name: the view's or table's name, without catalog and database.
        select: the statement with spaces in place of everything before the SELECT, so that
            positions in errors refer to the statement.
        inserts: whether it is INSERT INTO, where the query's name may differ from the table's.
    """

    name: str
    select: str
    inserts: bool = False


def read_created(sql: str, dialect: str = SPARK) -> Created | None:
    """The view or table that ``sql`` creates from a SELECT, or inserts the rows of a SELECT into;
    None for any other statement.

    Raises:
        QueryError: ``unknown-dialect``; ``unsupported-sql``: a clause between the name and AS;
            ``bad-name``: a name that no query may have.

    >>> read_created("CREATE OR REPLACE VIEW shop.late AS SELECT o.id FROM orders o").name
    'late'
    """
    reader = reader_of(dialect)
    begun = sql[:10_000].lower()
    if "create" not in begun and "insert" not in begun:
        return None
    try:
        tokens: list[Token] = reader.tokenize(sql)
    except SqlglotError:
        return None
    words = [token.text.upper() for token in tokens[:12]]
    inserts = tuple(words[:2]) == _INSERT
    if inserts:
        first = 2 + (words[2:3] == ["TABLE"])
    elif words[:1] == ["CREATE"]:
        kind = next((n for n, word in enumerate(words) if word in _OBJECTS), 0)
        if tuple(words[1 : kind + 1]) not in _FORMS:
            return None
        first = kind + 1
        if tuple(words[first : first + 3]) == _ABSENT:
            first += 3
    else:
        return None
    last = first
    while last + 2 < len(tokens) and tokens[last + 1].token_type is TokenType.DOT:
        last += 2
    begin = _inserted(tokens, last) if inserts else _body(tokens, last)
    if begin is None:
        return None
    if begin != last + (1 if inserts else 2):
        raise _clause(tokens, last + 1, "the SELECT" if inserts else "AS")
    name = tokens[last]
    if not _NAME.fullmatch(name.text):
        raise QueryError(
            "bad-name",
            f"{name.text[:60]!r} can't be the name of a query",
            field="sql",
            remedy="use letters, digits, '_', '.' and '-'",
            position=place_of(name),
        )
    before = sql[: tokens[begin].start]
    select = re.sub(r"\S", " ", before) + sql[tokens[begin].start :]
    return Created(name.text, select, inserts)


def _inserted(tokens: Sequence[Token], last: int) -> int | None:
    """Index of the first token of the SELECT in INSERT INTO; None if there is none."""
    words = (token.text.upper() for token in tokens[last + 1 :])
    return next((n for n, word in enumerate(words, last + 1) if word in ("SELECT", "WITH")), None)


def _body(tokens: Sequence[Token], last: int) -> int | None:
    """Index of the first token of the SELECT after AS in CREATE; None if there is none."""
    for index in range(last + 1, len(tokens) - 1):
        if tokens[index].token_type is TokenType.SELECT:
            return None
        if tokens[index].token_type is TokenType.ALIAS:
            body = index + 1
            while tokens[body].token_type is TokenType.L_PAREN and body + 1 < len(tokens):
                body += 1
            is_query = tokens[body].text.upper() in ("SELECT", "WITH")
            return index + 1 if is_query else None
    return None


def _clause(tokens: Sequence[Token], at: int, before: str) -> QueryError:
    token = tokens[at]
    if token.token_type is TokenType.L_PAREN:
        what, remedy = "a list of columns", "name the columns with AS in the SELECT list"
    else:
        what, remedy = token.text.upper()[:60], "leave it out; the query's sink has such properties"
    error = unsupported(f"{what} between the name and {before}", remedy)
    return error.moved(field="sql", position=place_of(token))
