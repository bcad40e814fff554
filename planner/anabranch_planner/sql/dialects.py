"""Statements in other dialects, in Spark's words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, Dialects
from sqlglot.errors import SqlglotError

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.beginnings import check_beginning
from anabranch_planner.sql.misspellings import misspelt
from anabranch_planner.sql.scope import nearest
from anabranch_planner.sql.syntax import SparkDialect, what_is_wrong
from anabranch_planner.sql.unresolved import located, position_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import Token

SPARK = "spark"
_SHOWN = 200


def reader_of(dialect: str) -> Dialect:
    """The reader of ``dialect``, by sqlglot's name.

    Raises:
        QueryError: ``unknown-dialect``.

    >>> type(reader_of("postgres")).__name__
    'Postgres'
    """
    if dialect == SPARK:
        return SparkDialect()
    try:
        return Dialect.get_or_raise(dialect)
    except ValueError as cause:
        raise QueryError(
            "unknown-dialect",
            f"there is no dialect {dialect[:40]!r}",
            field="dialect",
            remedy=nearest(dialect, [d.value for d in Dialects if d.value]),
        ) from cause


def to_spark(sql: str, dialect: str = SPARK) -> str:
    """``sql``, one query written in ``dialect``, as Spark would have it.

    Raises:
        QueryError: ``unknown-dialect``, ``malformed-sql``, or no single query.

    >>> to_spark('SELECT "o".id::bigint FROM orders AS "o"', "postgres")
    'SELECT CAST(`o`.id AS BIGINT) FROM orders AS `o`'
    """
    reader = reader_of(dialect)
    if dialect == SPARK:
        return sql
    tokens: list[Token] = []
    try:
        tokens = reader.tokenize(sql)
        with located("sql"):
            check_beginning(tokens)
        found = [s for s in reader.parser().parse(tokens, sql) if s is not None]
    except SqlglotError as cause:
        message, position = what_is_wrong(cause)
        meant = None if position is None else misspelt(tokens, position)
        raise QueryError(
            "malformed-sql",
            message,
            field="sql",
            remedy=meant or f"check the statement near that place, it is read as {dialect}",
            position=position,
        ) from cause
    except RecursionError as cause:
        raise QueryError(
            "malformed-sql",
            "the statement is nested too deeply",
            field="sql",
            remedy="use fewer parentheses",
        ) from cause
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise QueryError(
            "unsupported-sql",
            "what is no single query is not supported",
            field="sql",
            remedy="register each SELECT by itself",
        )
    for division in found[0].find_all(exp.Div):
        # What it means depends on types, which are not known here.
        if reader.TYPED_DIVISION and not any(map(_is_cast, (division.this, division.expression))):
            raise QueryError(
                "unsupported-sql",
                f"a division is not supported in {dialect}, where it is another for integers",
                field="sql",
                remedy="cast one side, e.g. CAST(x AS DOUBLE)",
                position=position_of(division),
            )
    return str(found[0].sql(SPARK))


def _is_cast(node: exp.Expr) -> bool:
    while isinstance(node, exp.Paren):
        node = node.this
    whole = (exp.DataType.Type.INT, exp.DataType.Type.BIGINT, exp.DataType.Type.SMALLINT)
    return isinstance(node, exp.Cast) and not node.to.is_type(*whole)


@contextmanager
def spoken_of(spark: str, dialect: str) -> Iterator[None]:
    """Let errors about ``spark``, made of a statement in ``dialect``, say so: their line and column
    would point into a text that nobody has written.
    """
    try:
        yield
    except QueryError as error:
        if dialect == SPARK or error.position is None:
            raise
        text = spark if len(spark) <= _SHOWN else spark[: _SHOWN - 3] + "..."
        raise QueryError(
            error.code,
            f"{error.message} (in Spark's words: {text})",
            field=error.field,
            remedy=error.remedy,
        ) from error
