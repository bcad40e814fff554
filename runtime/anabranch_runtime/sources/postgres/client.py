"""Connections to PostgreSQL, and sources' errors for errors of the server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2 import errorcodes
from psycopg2.extras import LogicalReplicationConnection

from anabranch_contract.connectors.postgres.options import POSTGRES, session_settings
from anabranch_contract.connectors.secrets import resolved
from anabranch_runtime.errors import SourceError

#: Seconds to wait for a connection.
PATIENCE = 5
#: SQLSTATE -> code and remedy.
_KNOWN = {
    errorcodes.INSUFFICIENT_PRIVILEGE: (
        "no-permission",
        "grant the user REPLICATION, and SELECT on the table; let the table's owner create the"
        " publication, and name it by the option publication",
    ),
    errorcodes.OBJECT_NOT_IN_PREREQUISITE_STATE: (
        "no-logical-replication",
        "set the server's wal_level to logical, and restart it",
    ),
    errorcodes.CONFIGURATION_LIMIT_EXCEEDED: (
        "too-many-slots",
        "raise the server's max_replication_slots and max_wal_senders, or drop slots without use",
    ),
    errorcodes.OBJECT_IN_USE: ("slot-in-use", "end the other reader of the slot, or wait for it"),
}


def connect(options: Mapping[str, str], *, replication: bool = False) -> Any:
    """Open a connection to the database of a source.

    Raises:
        AccessError: a variable of a secret is not set.
        psycopg2.Error: the database can't be reached, or refuses the login.
    """
    found = resolved("source", POSTGRES, options, os.environ)
    given = session_settings(found, PATIENCE)
    if replication:
        given["connection_factory"] = LogicalReplicationConnection
    connection = psycopg2.connect(**given)
    if not replication:
        connection.autocommit = True
    return connection


@contextmanager
def connected(options: Mapping[str, str]) -> Iterator[Any]:
    """Yield a cursor of a PostgreSQL connection that commits each statement; close it later."""
    connection = connect(options)
    try:
        yield connection.cursor()
    finally:
        connection.close()


def failure(cause: psycopg2.Error, field: str) -> SourceError:
    """Return the source's error for an error of the PostgreSQL client."""
    text = " ".join(str(cause).split()) or repr(cause)
    # Whether it is libpq's message about a connection that was closed while waiting for messages.
    is_closed = "no message from the libpq" in text
    text = "the connection was closed" if is_closed else text
    if cause.pgcode in _KNOWN:
        code, remedy = _KNOWN[cause.pgcode]
        return SourceError(code, f"PostgreSQL: {text}", field=field, remedy=remedy)
    away = is_closed or isinstance(cause, psycopg2.OperationalError | psycopg2.InterfaceError)
    return SourceError(
        "no-server" if away else "bad-source",
        f"PostgreSQL: {text}",
        field=field,
        remedy="check that the server runs, and the source's url and login; the source is tried"
        " again by itself",
    )


def lsn(text: str) -> int:
    """Parse PostgreSQL's text of a position in its log; return the position as a number.

    >>> lsn("1/A0")
    4294967456
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(position: int) -> str:
    """Return PostgreSQL's text of a position in its log.

    >>> lsn_text(4294967456)
    '1/A0'
    """
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
