"""Translation of statements in other SQL dialects to Spark's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, Dialects
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream
from anabranch_planner.sql.clauses.everyday import keep_commas
from anabranch_planner.sql.mistakes.accepted import check_parsed
from anabranch_planner.sql.mistakes.beginnings import check_beginning
from anabranch_planner.sql.mistakes.malformed import malformed, too_deep
from anabranch_planner.sql.places import SourceText, check_intervals, corresponding
from anabranch_planner.sql.scope import nearest
from anabranch_planner.sql.syntax import SparkDialect, unclosed_at, what_is_wrong
from anabranch_planner.sql.translation.translation import translate
from anabranch_planner.sql.unresolved import located

if TYPE_CHECKING:
    from sqlglot import Token

SPARK = "spark"
#: Dialects read without translation; Databricks' is Spark's with extensions (rejected).
_SPARKS_OWN = frozenset({SPARK, "databricks"})
_SHOWN = 200


def reader_of(dialect: str) -> Dialect:
    """sqlglot's parser class for ``dialect``, which is named as in sqlglot.

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


def to_spark(sql: str, dialect: str = SPARK, streams: Mapping[str, Stream] | None = None) -> str:
    """Translate ``sql``, a single query written in ``dialect``, to Spark's dialect.

    Args:
        streams: the registered streams by name, for the types of columns; without them, statements
            that depend on types are rejected.

    Raises:
        QueryError: ``unknown-dialect``, ``malformed-sql``, or ``unsupported-sql``: ``sql`` is not a
            single query, or has no certain equivalent in Spark.

    >>> to_spark('SELECT o.n || o.s AS i FROM orders AS "o" LIMIT 3', "postgres")
    'SELECT o.n || o.s AS i FROM orders AS `o` LIMIT 3'
    """
    reader = reader_of(dialect)
    if dialect in _SPARKS_OWN:
        return sql
    tokens: list[Token] = []
    try:
        tokens = reader.tokenize(sql)
        with located("sql"):
            check_beginning(tokens)
            check_intervals(tokens)
        found = [s for s in reader.parser().parse(tokens, sql) if s is not None]
        with located("sql"):
            check_parsed(found, tokens)
    except SqlglotError as cause:
        message, position = what_is_wrong(cause)
        place = position or unclosed_at(sql, reader) or (1, 1)
        near = f"check the statement near that place, it is read as {dialect}"
        raise malformed(sql, tokens, message, place, near).moved(field="sql") from cause
    except RecursionError as cause:
        raise too_deep().moved(field="sql") from cause
    except (AttributeError, LookupError, TypeError, ValueError, re.error) as cause:
        # The parser of this dialect fails on arguments that it expects in another form.
        raise QueryError(
            "malformed-sql",
            f"the statement can't be read as {dialect}",
            field="sql",
            remedy="check the numbers and kinds of arguments, or write it in Spark's dialect",
        ) from cause
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise QueryError(
            "unsupported-sql",
            "a statement other than a single query is not supported",
            field="sql",
            remedy="register each SELECT by itself",
        )
    keep_commas(found[0], tokens)
    try:
        with located("sql"):
            tree = translate(found[0], dialect, streams or {}, SourceText(sql, tokens))
        return str(tree.sql(SparkDialect, unsupported_level=ErrorLevel.RAISE))
    except UnsupportedError as cause:
        raise QueryError(
            "unsupported-sql",
            f"a part of it has no equivalent in Spark: {cause}"[:200],
            field="sql",
            remedy="write the statement in Spark's dialect",
        ) from cause
    except RecursionError as cause:
        raise too_deep().moved(field="sql") from cause


@contextmanager
def spoken_of(spark: str, dialect: str, written: str = "") -> Iterator[None]:
    """Move errors about ``spark``, a translation from ``dialect``, to their places in ``written``,
    the statement in its author's words. If no place is found, the error shows the translated text.
    """
    try:
        yield
    except QueryError as error:
        if dialect == SPARK:
            raise
        places = _Places(spark, dialect, written)
        others = [places.moved(one) for one in error.others if isinstance(one, QueryError)]
        raise places.moved(error).beside(others) from error


class _Places:
    """Maps places in the translation ``spark`` to places in ``written``, in ``dialect``."""

    def __init__(self, spark: str, dialect: str, written: str) -> None:
        self._spark = spark
        try:
            self._tokens = SparkDialect().tokenize(spark)
            self._written = reader_of(dialect).tokenize(written)
        except SqlglotError:
            self._tokens, self._written = [], []

    def moved(self, error: QueryError) -> QueryError:
        """``error`` with its place in the written statement, or else with the translation."""
        if error.position is None:
            return error
        place = corresponding(error.position, self._tokens, self._written)
        if place is not None:
            return error.moved(position=place)
        shown = self._spark if len(self._spark) <= _SHOWN else f"{self._spark[: _SHOWN - 3]}..."
        return QueryError(
            error.code,
            f"{error.message} (in Spark's words: {shown})",
            field=error.field,
            remedy=error.remedy,
        )
