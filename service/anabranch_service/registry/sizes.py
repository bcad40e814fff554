"""Limits of registrations: aliases, columns, streams, queries.

They are checked before planning, whose time grows faster than linearly with these sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.families import Constant, substituted
from anabranch_contract.queries.joins import Stream
from anabranch_contract.rest.documents import MAX_TEXT
from anabranch_planner.sql.clauses.created import read_created
from anabranch_planner.sql.dialects import SPARK, to_spark
from anabranch_service.errors import Conflict, InvalidInput
from anabranch_service.registry.statements import Statement, read_statement
from anabranch_service.settings import ServiceSettings


def read_checked(
    settings: ServiceSettings,
    sql: str | None,
    query: Mapping[str, Any] | None = None,
    window: str | Mapping[str, str] | None = None,
    dialect: str = SPARK,
    streams: Mapping[str, Stream] | None = None,
    *,
    parameters: Mapping[str, Constant] | None = None,
    name: str = "",
) -> Statement:
    """Parse a query of a request, and refuse too many explicit aliases or columns.

    Args:
        sql: SQL in ``dialect``; it is translated to Spark's with the column types of ``streams``.
            A SELECT, or the creation of a view from one.
        parameters: values of the statement's parameters; None: it has none.
        name: id of the query, which the created view must have; empty: any.

    Raises:
        InvalidInput: ``too-many-aliases``, ``too-many-columns`` or ``other-name``, or as
            :func:`~anabranch_service.registry.statements.read_statement` does.
        QueryError: the SQL can't be parsed.
    """
    text, written = None, ""
    if sql is not None:
        written = _select(filled(sql, parameters, dialect), dialect, name)
        text = to_spark(written, dialect, streams)
    statement = read_statement(text, query, window, dialect, written)
    if statement.sql is not None and sql != text:
        # Spaces replace CREATE, so that positions in errors are those in the request.
        statement = replace(statement, sql=statement.sql.lstrip())
    if statement.parsed is not None:
        count, selected = statement.parsed.aliases, len(statement.parsed.items)
        aliases, columns = "sql", "sql"
    else:
        count, selected = (_length(statement.query.get(part)) for part in ("from", "select"))
        aliases, columns = "query.from", "query.select"
    if count > settings.sizes.max_aliases:
        raise InvalidInput(
            "too-many-aliases",
            f"the query reads {count} aliases once its subqueries are written out",
            field=aliases,
            remedy=f"{settings.sizes.max_aliases} are allowed; --max-aliases "
            "(ANABRANCH_MAX_ALIASES) allows more",
        )
    check_columns(selected, settings, "the query selects", columns)
    return statement


def filled(sql: str, parameters: Mapping[str, Constant] | None, dialect: str) -> str:
    """Return ``sql`` with the values of ``parameters`` inserted.

    Raises:
        InvalidInput: ``missing-parameter``, ``unknown-parameter`` or ``bad-parameter``;
            ``too-long``.
    """
    if parameters is None:
        return sql
    try:
        found = substituted(sql, parameters, dialect)
    except QueryError as cause:
        field = f"parameters.{cause.field}"
        raise InvalidInput(cause.code, cause.message, field=field, remedy=cause.remedy) from None
    if len(found) > MAX_TEXT:
        raise InvalidInput(
            "too-long",
            f"the statement has {len(found)} characters with its parameters, {MAX_TEXT} at most",
            field="parameters",
            remedy="register a table of the constants, and join it",
        )
    return found


def _select(sql: str, dialect: str, name: str) -> str:
    """Return the SELECT of a statement that creates view ``name``; other statements unchanged."""
    created = read_created(sql, dialect)
    if created is None:
        return sql
    if name and not created.inserts and created.name.lower() != name.lower():
        raise InvalidInput(
            "other-name",
            f"the statement creates {created.name!r}, but the name of the query is {name!r}",
            field="name",
            remedy=f"leave the name out, name it {created.name!r}, or register only the SELECT",
        )
    return created.select


def _length(part: object) -> int:
    return len(part) if isinstance(part, list | dict) else 0


def check_columns(
    count: int, settings: ServiceSettings, what: str = "the stream has", field: str = "columns"
) -> None:
    """Refuse a stream or query results with too many columns.

    Raises:
        InvalidInput: ``too-many-columns``.
    """
    if count > settings.sizes.max_columns:
        raise InvalidInput(
            "too-many-columns",
            f"{what} {count} columns",
            field=field,
            remedy=f"{settings.sizes.max_columns} are allowed; --max-columns "
            "(ANABRANCH_MAX_COLUMNS) allows more",
        )


def check_room(kind: str, count: int, most: int, new: int = 1) -> None:
    """Refuse ``new`` objects of ``kind`` (``streams`` or ``queries``) beyond ``most``.

    Raises:
        Conflict: ``too-many-streams`` or ``too-many-queries``.
    """
    if count + new > most:
        more = "" if count >= most else f", and {new} more would exceed the maximum of {most}"
        raise Conflict(
            f"too-many-{kind}",
            f"{count} {kind} are registered{more or ', the maximum'}",
            remedy=f"delete some; --max-{kind} (ANABRANCH_MAX_{kind.upper()}) allows more",
        )
