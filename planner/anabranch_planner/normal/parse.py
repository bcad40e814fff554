"""SQL queries: Spark's dialect, restricted to inner equi-joins."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from anabranch_contract.errors import QueryError
from anabranch_planner.normal.normalise import normalise
from anabranch_planner.sql.syntax import parse_statement
from anabranch_planner.sql.unresolved import Unresolved, located

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anabranch_contract.queries.expressions import Expr
    from anabranch_contract.queries.joins import JoinQuery, Stream


def parse_sql(
    query_id: str,
    sql: str | Unresolved,
    streams: Mapping[str, Stream],
    window: int | Mapping[str, int] | None = None,
    relaxed: Mapping[str, tuple[Expr, ...]] | None = None,
) -> JoinQuery:
    """The join query that ``sql`` asks for.

    Args:
        query_id: the query's id.
        sql: one SELECT statement, or what :func:`read_sql` has made of it.
        streams: the registered streams by name.
        window: microseconds for every alias, or alias -> microseconds (others unbounded).
        relaxed: alias -> the filter that its relation is to have, which the statement's implies;
            what it lacks is checked after joining.

    Raises:
        QueryError: with ``field`` ``"sql"`` (or ``"window..."``), saying what to change.

    >>> from anabranch_contract.queries.joins import Stream, StreamName
    >>> from anabranch_contract.queries.types import parse_type
    >>> b = ("b", parse_type("int"))
    >>> s = {n: Stream(StreamName(n), (b,)) for n in "RST"}
    >>> q = parse_sql("q", "SELECT R.b FROM R JOIN S USING (b) JOIN T ON T.b = S.b", s)
    >>> [str(m) for m in q.classes[0].members]
    ['R.b', 'S.b', 'T.b']
    """
    with _malformed():
        statement = sql if isinstance(sql, Unresolved) else parse_statement(sql)
        return normalise(query_id, statement, streams, window, relaxed)


def read_sql(sql: str) -> Unresolved:
    """One SELECT statement, parsed; its names are not looked up.

    Raises:
        QueryError: with ``field`` ``"sql"``, saying what to change.
    """
    with _malformed():
        return parse_statement(sql)


@contextmanager
def _malformed() -> Iterator[None]:
    """Let errors raised inside name the statement."""
    with located("sql"):
        try:
            yield
        except RecursionError as cause:
            raise QueryError(
                "malformed-sql",
                "the statement is nested too deeply",
                remedy="use IN (...) or fewer parentheses",
            ) from cause
