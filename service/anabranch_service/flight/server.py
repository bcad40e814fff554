"""The server of Arrow Flight SQL: statements over tables of queries, and lists of these tables.

gRPC makes each call in a thread; the call reads the service's data in the service's event loop. The
server keeps no state between calls: the handle of a prepared statement consists of its text and the
schema of its rows, and a ticket is a command.
"""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyarrow import flight

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.errors import StructuredError
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.access import AuditKind
from anabranch_service.access.gate import Identity, TooManyFailures
from anabranch_service.access.roles import Need
from anabranch_service.context import Context
from anabranch_service.errors import SettingsError
from anabranch_service.flight.catalog import LISTINGS, Tables
from anabranch_service.flight.errors import as_flight
from anabranch_service.flight.messages import BadMessage, Command, wrapped
from anabranch_service.flight.stream import PartFile, batches
from anabranch_service.tables.current import NO_ROWS, schema_of
from anabranch_service.tables.described import spec_of
from anabranch_service.tables.named import home_of

T = TypeVar("T")
#: Seconds between two checks whether a waiting call was cancelled.
_LOOK = 0.2
_STATEMENT, _PREPARED = "CommandStatementQuery", "CommandPreparedStatementQuery"
_TICKET = "TicketStatementQuery"
_PREPARE, _CLOSE = "CreatePreparedStatement", "ClosePreparedStatement"


class FlightSql(flight.FlightServerBase):  # type: ignore[misc]
    """Serves Flight SQL beside the REST API, with the same tokens, roles, certificate and limits.

    The server listens from its construction on, until :meth:`close`.

    Raises:
        SettingsError: ``port-not-free``.
    """

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        web, host = context.settings.web, context.settings.host or "0.0.0.0"
        certificates = None
        if web.tls_cert:
            with open(web.tls_cert, "rb") as chain, open(web.tls_key, "rb") as key:
                certificates = [(chain.read(), key.read())]
        scheme = "grpc+tls" if certificates else "grpc"
        place = f"[{host}]" if ":" in host else host
        port = context.settings.tables.flight_port
        try:
            super().__init__(
                f"{scheme}://{place}:{port}",
                auth_handler=_NoHandshake(),
                tls_certificates=certificates,
                middleware={"access": _Access(context, loop)},
            )
        except (pa.ArrowException, OSError) as error:
            raise SettingsError(
                "port-not-free",
                f"Arrow Flight SQL can't listen on port {port} of {host}: {error}",
                field="flight_port",
                remedy="give another port, or 0 for none",
            ) from None
        self._context, self._loop = context, loop

    def close(self) -> None:
        """Cancel all calls and end the server. Blocks; not to be called in the event loop."""
        self.shutdown()
        self.wait()

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Return the schema and the ticket of a command's answer."""
        command, ticket = _command(descriptor.command), descriptor.command
        if command.kind == _STATEMENT:
            ticket = wrapped(_TICKET, {1: command.content(1)})
        endpoints = [flight.FlightEndpoint(ticket, [])]
        return flight.FlightInfo(self._schema(context, command), descriptor, endpoints, -1, -1)

    def get_schema(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        """Return the schema of a command's answer."""
        return flight.SchemaResult(self._schema(context, _command(descriptor.command)))

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        """Stream the rows of a command's answer; rows of statements are sent as they are found."""
        command = _command(ticket.ticket)
        listing = LISTINGS.get(command.kind)
        if listing is not None:
            tables = self._await(context, self._tables(command))
            rows = listing.rows(command, tables, version("anabranch"))
            return flight.RecordBatchStream(rows)
        if command.kind == _PREPARED:
            sql = _prepared(command)[0]
        elif command.kind == _TICKET:
            sql = command.text(1) or ""
        else:
            raise _unknown(command.kind)
        feed = PartFile(self._loop, self._await(context, self._rows(sql)))
        reader = pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(feed, 1 << 18), mode="r"))
        return flight.GeneratorStream(reader.schema, batches(context, feed, reader))

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        """Create a prepared statement, or close it."""
        if action.type == _CLOSE:
            return iter(())
        if action.type != _PREPARE:
            raise _unknown(action.type)
        sql = _command(action.body.to_pybytes()).text(1) or ""
        schema = self._await(context, self._described(sql)).serialize().to_pybytes()
        handle = wrapped("Prepared", {1: sql.encode(), 2: schema})
        answer = wrapped("ActionCreatePreparedStatementResult", {1: handle, 2: schema})
        return iter([flight.Result(answer)])

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """Return the actions of :meth:`do_action`."""
        return [(_PREPARE, "Prepare a statement"), (_CLOSE, "Forget a prepared statement")]

    def _schema(self, context: flight.ServerCallContext, command: Command) -> pa.Schema:
        listing = LISTINGS.get(command.kind)
        if listing is not None:
            return listing.schema(command)
        if command.kind == _PREPARED:
            return _prepared(command)[1]
        if command.kind != _STATEMENT:
            raise _unknown(command.kind)
        return self._await(context, self._described(command.text(1) or ""))

    async def _tables(self, command: Command) -> Tables:
        """Return the tables of all queries whose results are files."""
        if command.kind != "CommandGetTables":
            return ()
        return [
            (query_of(one.record.id), schema_of(spec_of(one.record).columns))
            for one in await self._context.store.newest_queries()
            if not one.record.part_of and one.record.sink.to_sink().kind is SinkKind.PARQUET
        ]

    async def _rows(self, sql: str) -> AsyncGenerator[bytes]:
        """Return a statement's rows as an Arrow IPC stream, as of the newest common batch."""
        resolve = partial(self._context.names.resolve, wanted=None)
        home = home_of(await self._context.store.progress())
        return await self._context.tables.statement_parts(home, sql, resolve)

    async def _described(self, sql: str) -> pa.Schema:
        """Return the schema of a statement's rows."""
        resolve = partial(self._context.names.resolve, wanted=None)
        home = home_of(await self._context.store.progress())
        _, _, content = await self._context.tables.statement(home, sql, NO_ROWS, resolve)
        return pa.ipc.open_stream(content).schema.remove_metadata()

    def _await(self, context: flight.ServerCallContext, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the event loop and return its result, unless the client cancels the call.

        Raises:
            flight.FlightError: the work has failed, or the call was cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return future.result(_LOOK)
            except TimeoutError as error:
                # Distinguish a TimeoutError of the work from one of this wait for its result.
                if future.done() and future.exception() is error:
                    raise flight.FlightTimedOutError(str(error) or "timed out") from None
                if context.is_cancelled():
                    future.cancel()
                    raise flight.FlightCancelledError("cancelled by the client") from None
            except StructuredError as error:
                raise as_flight(error) from None


class _NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Answers handshakes, whose headers :class:`_Access` has checked."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """Exchange nothing."""

    def is_valid(self, token: object) -> str:
        """Accept every token: :class:`_Access` has checked the headers."""
        return ""


class _Access(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Checks the caller of each call: a bearer token, or a token as the password of any user."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._context, self._loop = context, loop

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str]]) -> _Admitted:
        """Check the caller's token.

        Raises:
            flight.FlightError: there is no valid token, or its role may not read.
        """
        # Clients repeat the header of a handshake's answer in addition to their own.
        given = list(dict.fromkeys(_as_bearer(one) for one in headers.get("authorization", ())))
        method = info.method.name
        try:
            asyncio.run_coroutine_threadsafe(self._admit(given, method), self._loop).result()
        except StructuredError as error:
            raise as_flight(error) from None
        shakes = info.method == flight.FlightMethod.HANDSHAKE
        return _Admitted(given[0] if given and shakes else "")

    async def _admit(self, given: list[str], method: str) -> None:
        caller: list[Identity] = []
        try:
            await self._context.gate.identify(given, "flight-sql", Need.READ, caller.append)
        except TooManyFailures:
            raise
        except StructuredError as error:
            await self._context.audit.record(
                AuditKind.REFUSAL,
                caller[-1] if caller else None,
                client="flight-sql",
                method=method,
                route="flight-sql",
                path="flight-sql",
                status=getattr(error, "status", 401),
                request=uuid4().hex,
            )
            raise


class _Admitted(flight.ServerMiddleware):  # type: ignore[misc]
    """Answers a handshake with the caller's token, which the client sends with later calls."""

    def __init__(self, authorization: str) -> None:
        super().__init__()
        self._headers = {"authorization": authorization} if authorization else {}

    def sending_headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        return self._headers


def _as_bearer(header: str) -> str:
    """Return an Authorization header; basic ones are converted: the password is the bearer token.

    >>> _as_bearer("Basic " + base64.b64encode(b"me:secret").decode())
    'Bearer secret'
    """
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return header
    try:
        pair = base64.b64decode(text.strip(), validate=True).decode()
    except ValueError:
        return header
    return f"Bearer {pair.partition(':')[2]}"


def _command(content: bytes) -> Command:
    try:
        return Command.read(content)
    except BadMessage as error:
        raise flight.FlightServerError(f"not a command of Flight SQL: {error}") from None


def _prepared(command: Command) -> tuple[str, pa.Schema]:
    """Return the text and schema in the handle of a prepared statement."""
    handle = _command(command.content(1))
    if handle.kind != "Prepared":
        raise flight.FlightServerError(
            "this is no handle of a prepared statement; prepare it again"
        )
    return handle.text(1) or "", pa.ipc.read_schema(pa.py_buffer(handle.content(2)))


def _unknown(kind: str) -> NotImplementedError:
    return NotImplementedError(
        f"{kind[:100]} is not available: tables of queries are read by SELECT statements only"
    )
