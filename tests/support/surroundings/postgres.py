"""A real PostgreSQL server for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg2
import pytest

from scripts.postgres import NoPostgres, Server, running

#: Variable with which tests fail, instead of being skipped, if there is no server.
REQUIRED = "ANABRANCH_REQUIRE_POSTGRES"


def server(settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a server for a fixture; skip its tests if no server can be run."""
    try:
        with running(settings=settings) as found:
            yield found
    except NoPostgres as cause:
        if os.environ.get(REQUIRED):
            raise
        pytest.skip(f"no PostgreSQL: {cause}")


@contextmanager
def session(server: Server) -> Iterator[Any]:
    """Context with a cursor that commits each statement."""
    connection = psycopg2.connect(server.url)
    connection.autocommit = True
    try:
        yield connection.cursor()
    finally:
        connection.close()


def run(server: Server, *statements: str) -> None:
    """Execute statements, each in a separate transaction."""
    with session(server) as cursor:
        for statement in statements:
            cursor.execute(statement)


def rows(server: Server, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query, sorted."""
    with session(server) as cursor:
        cursor.execute(query)
        return sorted(cursor.fetchall(), key=repr)
