"""Checks of a PostgreSQL table after it was altered, of a publication and of a replication slot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch_contract.connectors.postgres.catalog import check_columns, column_type, quoted
from anabranch_contract.connectors.postgres.options import PostgresOptions
from anabranch_contract.errors import StreamError
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.types import DataType, parse_type, widens
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.postgres.client import lsn


def columns_there(names: Collection[str], record: StreamRecord) -> list[tuple[str, DataType]]:
    """Return name and type of the columns that a stream reads from a PostgreSQL table with columns
    ``names``; the table may lack columns that were added to the stream."""
    added = {name for name, _ in record.added}
    return [(n, kind) for n, kind in record.tuple_columns if n in names or n not in added]


def check_layout(columns: Mapping[str, tuple[str, int]], record: StreamRecord, place: str) -> None:
    """Check the columns of a PostgreSQL table after it was altered.

    Raises:
        SourceError: ``table-altered``: the table's changes no longer have the stream's columns.
    """
    try:
        check_columns(columns_there(columns, record), columns)
    except StreamError as cause:
        raise SourceError(
            "table-altered",
            f"the table was altered: {cause.message}",
            field=place,
            remedy=_remedy((cause.field or "").removeprefix("columns."), columns, record),
        ) from cause


def _remedy(name: str, columns: Mapping[str, tuple[str, int]], record: StreamRecord) -> str:
    """Return how to make a stream fit its PostgreSQL table again after ``name`` was changed."""
    if name not in columns:
        return (
            f"run: anabranch stream drop-column {record.name} {name}, once no query reads it; or"
            " add the column to the table again"
        )
    wanted = column_type(*columns[name])
    if widens(dict(record.tuple_columns)[name], parse_type(wanted)):
        return f"run: anabranch stream widen-column {record.name} {name} '{wanted}'"
    return "delete the stream with its queries, and register it with the new columns"


def ensure_publication(
    cursor: Any, options: PostgresOptions, name: str, columns: Collection[str]
) -> None:
    """Create the PostgreSQL publication if there is none, and check that it publishes all changes
    of the table, with ``columns``.

    Raises:
        SourceError: the publication lacks some of these.
        psycopg2.Error: the publication can't be created.
    """
    place = f"{options.schema}.{options.table}"
    cursor.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication"
        " WHERE pubname = %s",
        (name,),
    )
    found = cursor.fetchone()
    if found is None:
        table = f"{quoted(options.schema)}.{quoted(options.table)}"
        cursor.execute(f"CREATE PUBLICATION {quoted(name)} FOR TABLE {table}")
        return
    cursor.execute(
        "SELECT to_jsonb(t) FROM pg_publication_tables t"
        " WHERE pubname = %s AND schemaname = %s AND tablename = %s",
        (name, options.schema, options.table),
    )
    listed = cursor.fetchone()
    given = {} if listed is None else listed[0]
    whole = given.get("rowfilter") is None and {*columns} <= {*(given.get("attnames") or columns)}
    if not (given and found[0] and whole):
        raise SourceError(
            "bad-publication",
            f"the publication {name!r} does not publish all changes of the table",
            field=place,
            remedy=f"ALTER PUBLICATION {quoted(name)} ADD TABLE {place}, without a row filter, with"
            " all columns and kinds of changes; or leave the option publication out",
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot.

    Attributes:
        confirmed: position from which on the server keeps its log for the slot.
        is_lost: whether the server has removed a part of the log that the slot needs.
    """

    confirmed: int
    is_lost: bool


def read_slot(cursor: Any, name: str) -> Slot | None:
    """Return the PostgreSQL replication slot ``name``; None: there is none.

    Raises:
        SourceError: the slot is not for changes of this database's tables.
    """
    cursor.execute(
        "SELECT plugin, database = current_database(), confirmed_flush_lsn::text,"
        " coalesce(to_jsonb(s) ->> 'wal_status', '') = 'lost'"
        " FROM pg_replication_slots s WHERE slot_name = %s",
        (name,),
    )
    found = cursor.fetchone()
    if found is None:
        return None
    plugin, is_here, confirmed, is_lost = found
    if plugin != "pgoutput" or not is_here:
        raise SourceError(
            "bad-slot",
            "the slot is another database's, or not for the plugin pgoutput",
            field=name,
            remedy="name another slot by the option slot",
        )
    return Slot(lsn(confirmed), is_lost)
