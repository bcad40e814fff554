"""Connections: clients of the service's REST API, without transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import agate
from dbt.adapters.base import BaseConnectionManager
from dbt.adapters.contracts.connection import (
    AdapterResponse,
    Connection,
    ConnectionState,
    Credentials,
)
from dbt_common.clients.agate_helper import table_from_data
from dbt_common.exceptions import DbtRuntimeError

from anabranch_client.errors import ClientError
from anabranch_client.rest.api import Client
from anabranch_client.rest.calls import RestCall


@dataclass
class AnabranchCredentials(Credentials):
    """Target of a profile.

    Attributes:
        url: address of the service; its token is read from ``ANABRANCH_TOKEN``.
        lake: folder of the Delta tables of models materialized as ``table``.
    """

    database: str = "anabranch"
    schema: str = "pipeline"
    url: str = "http://127.0.0.1:8080"
    lake: str | None = None

    @property
    def type(self) -> str:
        """Name of the adapter in profiles."""
        return "anabranch"

    @property
    def unique_field(self) -> str:
        """Address of the service."""
        return self.url

    def _connection_keys(self) -> tuple[str, ...]:
        return ("database", "schema", "url", "lake")


class AnabranchConnectionManager(BaseConnectionManager):
    """Opens a client per thread, and runs the statements of tests."""

    TYPE = "anabranch"

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """Turn errors of the service into errors of dbt, with their remedies."""
        try:
            yield
        except ClientError as error:
            raise DbtRuntimeError(str(error)) from error

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Open the connection's client."""
        if connection.state != ConnectionState.OPEN:
            connection.handle = Client(connection.credentials.url)
            connection.state = ConnectionState.OPEN
        return connection

    def cancel_open(self) -> list[str]:
        """Do nothing: requests are short, so there is nothing to cancel."""
        return []

    def begin(self) -> None:
        """Do nothing: there are no transactions."""

    def commit(self) -> None:
        """Do nothing: there are no transactions."""

    def clear_transaction(self) -> None:
        """Do nothing: there are no transactions."""

    def execute(
        self, sql: str, auto_begin: bool = False, fetch: bool = False, limit: int | None = None
    ) -> tuple[AdapterResponse, agate.Table]:
        """Run a SELECT over the tables of queries (``POST /v1/queries:sql``)."""
        body: dict[str, Any] = {"sql": sql, **({} if limit is None else {"limit": limit})}
        with self.exception_handler(sql):
            client = self.get_thread_connection().handle
            found = client.send(RestCall("POST", "/v1/queries:sql", dict, body))
        rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
        table = table_from_data(rows, found["columns"])
        return AdapterResponse(_message="SELECT", rows_affected=len(rows)), table
