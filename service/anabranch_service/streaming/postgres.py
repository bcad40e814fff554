"""Queries to a PostgreSQL database for a registration: columns and key of a table, some rows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2

from anabranch_contract.connectors.check import check_source_access
from anabranch_contract.connectors.postgres.catalog import (
    DatabaseTable,
    check_table,
    column_type,
    quoted,
    read_table,
)
from anabranch_contract.connectors.postgres.options import (
    POSTGRES,
    PostgresOptions,
    postgres_options,
    session_settings,
)
from anabranch_contract.connectors.secrets import resolved, without_secrets
from anabranch_contract.protocol.registered import SourceRecord, StreamRecord
from anabranch_contract.queries.changes import OPERATION
from anabranch_contract.rest.streams import ChangesIn, StreamIn
from anabranch_service.errors import InvalidInput
from anabranch_service.registry.permitted import policy_of
from anabranch_service.settings import ServiceSettings
from anabranch_service.streaming.samples.fit import Form
from anabranch_service.streaming.samples.sample import SECONDS, Sample


def with_catalog(body: StreamIn, settings: ServiceSettings) -> StreamIn:
    """Return the request completed by its table's columns and, if it is of kind upsert, key; given
    columns and keys stay.

    Raises:
        InvalidInput: the database can't be read.
        PlannerError: it has no such table, or the address is not allowed.
    """
    if body.columns or body.source.format != POSTGRES:
        return body
    with _opened(body.source, settings) as (_, _, table):
        columns = {name: column_type(*kind) for name, kind in table.columns.items()}
    keyed = body.kind == "upsert" and not body.key and table.keys
    key = list(table.keys[0]) if keyed else body.key
    return body.model_copy(update={"columns": columns, "key": key})


def with_proposal(
    body: StreamIn, settings: ServiceSettings
) -> tuple[StreamIn, list[list[str]], list[str]]:
    """Complete a request from the catalog: its kind, key, missing columns, and another name for the
    operation column if the table has a column of the default name.

    Returns:
        The request, the table's keys, and notes.

    Raises:
        InvalidInput, PlannerError: as :func:`with_catalog`.
    """
    with _opened(body.source, settings) as (_, _, table):
        columns = {name: column_type(*kind) for name, kind in table.columns.items()}
    changed: dict[str, Any] = {"columns": columns | dict(body.declared)}
    notes = list[str]()
    if "kind" not in body.model_fields_set:
        changed["kind"] = "upsert" if table.keys else "changes"
        notes.append(
            f"kind upsert: the table has the key {', '.join(table.keys[0])}"
            if table.keys
            else "kind changes: the table has no key"
        )
    if body.changes is None and OPERATION in columns:
        name = next(n for n in (f"{OPERATION}{'_' * i}" for i in itertools.count(1))
                    if n not in columns)  # fmt: skip
        changed["changes"] = ChangesIn(operation=name)
    if changed.get("kind", body.kind) == "upsert" and not body.key and table.keys:
        changed["key"] = list(table.keys[0])
    return body.model_copy(update=changed), [list(key) for key in table.keys], notes


def sample_table(record: StreamRecord, most: int, settings: ServiceSettings) -> Sample:
    """Read at most ``most`` rows of a stream's table, and check the stream against it.

    Raises:
        InvalidInput, PlannerError: the table can't be read, or the stream does not fit it.
    """
    assert record.changes is not None
    columns = record.tuple_columns
    names = [name for name, _ in columns]
    with _opened(record.source, settings) as (cursor, options, table):
        place = f"{quoted(options.schema)}.{quoted(options.table)}"
        check_table(table, columns, record.changes, place)
        texts = ", ".join(f"{quoted(name)}::text" for name in names)
        cursor.execute(f"SELECT {texts} FROM {place} LIMIT %s", (most,))
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return Sample(Form.TEXT, list(rows), limits=["replication was not tried"])


@contextmanager
def _opened(
    source: SourceRecord, settings: ServiceSettings
) -> Iterator[tuple[Any, PostgresOptions, DatabaseTable]]:
    """Yield a cursor of the source's database, the source's options, and the table."""
    policy, given = policy_of(settings), source.options
    check_source_access(source.format, source.path, given, policy, os.path.realpath)
    options = postgres_options(given)
    found = session_settings(resolved("source", POSTGRES, given, os.environ), int(SECONDS))
    found["options"] += f" -c statement_timeout={int(SECONDS * 1000)}"
    try:
        with closing(psycopg2.connect(**found)) as connection:
            cursor = connection.cursor()
            yield cursor, options, read_table(cursor, options.schema, options.table)
    except psycopg2.Error as cause:
        raise InvalidInput(
            "no-database",
            without_secrets(f"PostgreSQL: {' '.join(str(cause).split())}", os.environ),
            field="source.options.url",
            remedy="check that the server runs, and the url and the login",
        ) from None
