"""The Python client of the REST API, blocking and asynchronous.

>>> Client("http://127.0.0.1:1").base_url
'http://127.0.0.1:1'
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

import httpx

from anabranch_client.rest import calls
from anabranch_client.rest import token as access
from anabranch_client.rest.answers import (
    AuditEntry,
    CurrentEpoch,
    DryRun,
    EpochInfo,
    EpochStatistics,
    EpochSummary,
    Explained,
    NewToken,
    PlanningSettings,
    QueryInfo,
    StoreDetail,
    StoredState,
    StreamInfo,
    StreamSample,
    TokenInfo,
    ViewRows,
    Who,
)
from anabranch_client.rest.calls import Call, JsonObject
from anabranch_client.rest.tail import Follower, TailEvent

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"


class Client:
    """Talks to one service; usable from several threads; close it, or use it in a ``with``.

    ``token`` goes with every request; None: what ``ANABRANCH_TOKEN`` or the file that
    ``ANABRANCH_TOKEN_FILE`` names holds, if any; empty: none.
    """

    def __init__(
        self, base_url: str = DEFAULT_URL, *, timeout: float = 60.0, token: str | None = None
    ) -> None:
        self.base_url = base_url
        self._http = httpx.Client(base_url=base_url, timeout=timeout, headers=access.headers(token))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _send(self, call: Call[T]) -> T:
        try:
            response = self._http.send(call.request(self._http))
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            raise calls.unreachable(self.base_url, cause) from cause
        return call.answer(response)

    def create_stream(
        self,
        name: str,
        columns: Sequence[tuple[str, str]],
        *,
        event_time: str | None = None,
        lateness: str | None = None,
        source: JsonObject | None = None,
        idle_timeout: str | None = None,
        keep_late: bool | None = None,
        ttl: str | None = None,
        latest: Sequence[str] | None = None,
        ahead_of_clock: str | None = None,
        ahead_of_stream: str | None = None,
    ) -> StreamInfo:
        """Register a stream with (name, type) columns; ``lateness`` may be ``unbounded``, ``ttl``
        is a window on every alias over it, ``latest`` the key of which only the latest count.
        """
        retention = calls.retention(ttl, latest)
        return self._send(
            calls.create_stream(
                name,
                columns,
                event_time,
                lateness,
                source,
                idle_timeout,
                keep_late,
                retention,
                ahead_of_clock,
                ahead_of_stream,
            )
        )

    def streams(self) -> list[StreamInfo]:
        """All streams, by name."""
        return self._send(calls.list_streams())

    def stream(self, name: str) -> StreamInfo:
        """One stream."""
        return self._send(calls.get_stream(name))

    def update_stream(self, name: str, **changes: Any) -> StreamInfo:
        """Change ``idle_timeout`` (None: never idle), ``keep_late``, ``ahead_of_clock``,
        ``ahead_of_stream``, or ``retention`` (``{"ttl": "7 days", "latest": ["k"]}``; None:
        neither).
        """
        return self._send(calls.patch_stream(name, changes))

    def push(self, name: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Send rows (at most 10,000) to a stream of format ``redis-stream``: all or none."""
        return self._send(calls.push_rows(name, rows))

    def delete_stream(self, name: str) -> None:
        """Forget a stream that no query reads."""
        self._send(calls.delete_stream(name))

    def create_query(
        self,
        sql: str | None = None,
        *,
        query: JsonObject | None = None,
        name: str | None = None,
        window: str | Mapping[str, str] | None = None,
        ttl: str | None = None,
        expires_at: str | None = None,
        sink: str | Mapping[str, Any] | None = None,
        priority: int | None = None,
        dialect: str | None = None,
        idempotency_key: str | None = None,
    ) -> QueryInfo:
        """Register a query: SQL, or a structured ``query``.

        ``sink`` is a format, or a document with ``format``, ``options`` and ``path``; ``dialect``
        is what the SQL is written in, Spark's unless told.
        """
        body = calls.query_body(sql, query, name, window, ttl, expires_at, sink, priority, dialect)
        return self._send(calls.create_query(body, idempotency_key))

    def queries(self) -> Iterator[QueryInfo]:
        """All queries in order of registration, page by page."""
        cursor: str | None = None
        while True:
            page, cursor = self._send(calls.list_queries(cursor))
            yield from page
            if cursor is None:
                return

    def query(self, name: str) -> QueryInfo:
        """One query."""
        return self._send(calls.get_query(name))

    def rows(self, name: str, limit: int = 100) -> ViewRows:
        """The rows of a query's view as they are, in its order; 1000 at most."""
        return self._send(calls.view_rows(name, limit))

    def update_query(self, name: str, **changes: Any) -> QueryInfo:
        """Change ``ttl``, ``expires_at`` (None: lives for ever) or ``priority``."""
        return self._send(calls.patch_query(name, changes))

    def delete_query(self, name: str) -> None:
        """Let a query end with the current epoch."""
        self._send(calls.delete_query(name))

    def tail(
        self, name: str, *, from_start: bool = False, limit: int | None = None
    ) -> Iterator[TailEvent]:
        """Follow a query's committed results, until ``limit`` rows or the query's end.

        A lost connection is made again, and what has come meanwhile is sent first; a ``gap`` says
        how many rows are missing.
        """
        follower = Follower(name, from_start, limit)
        while not follower.over:
            try:
                response = self._http.send(follower.request(self._http), stream=True)
                try:
                    if not response.is_success:
                        response.read()
                    follower.connected(response)
                    for part in response.iter_bytes():
                        yield from follower.feed(part)
                finally:
                    response.close()
            except (httpx.HTTPError, httpx.InvalidURL) as cause:
                time.sleep(follower.pause(self.base_url, cause))
            else:
                time.sleep(follower.rest())

    def epochs(self) -> Iterator[EpochSummary]:
        """All published epochs, newest first, page by page."""
        cursor: str | None = None
        while True:
            page, cursor = self._send(calls.list_epochs(cursor))
            yield from page
            if cursor is None:
                return

    def epoch(self, number: int) -> EpochInfo:
        """One published epoch, plan and all."""
        return self._send(calls.get_epoch(number))

    def epoch_statistics(self, number: int) -> EpochStatistics:
        """What was measured in an epoch that has ended."""
        return self._send(calls.epoch_statistics(number))

    def state(self) -> StoredState:
        """What the stores hold, as of the newest batch that the runtime has told of."""
        return self._send(calls.state())

    def stored(self, store: str, epochs: int = 30) -> StoreDetail:
        """One store with its segments, the probes that read it, and its last ``epochs``.

        Raises:
            ApiError: there is no such store.
        """
        return self._send(calls.stored(store, epochs))

    def stream_sample(self, name: str) -> StreamSample:
        """What a sample of a stream tells about its columns."""
        return self._send(calls.stream_sample(name))

    def current_epoch(self) -> CurrentEpoch:
        """The epoch that the runtime is in."""
        return self._send(calls.current_epoch())

    def explain(
        self,
        sql: str,
        *,
        dialect: str | None = None,
        window: str | Mapping[str, str] | None = None,
    ) -> Explained:
        """What a statement's joins become, and what it would cost as a query; nothing changes."""
        return self._send(calls.explain(sql, dialect, window))

    def dry_run(
        self,
        add: Sequence[JsonObject] = (),
        *,
        drop: Sequence[str] = (),
        optimizer: str | None = None,
        objective: str | None = None,
        parallelism: int | None = None,
        statistics: Mapping[str, float] | None = None,
        distinct: Mapping[str, float] | None = None,
        selectivity: Mapping[str, float] | None = None,
        widths: Mapping[str, float] | None = None,
        retention: Mapping[str, JsonObject | None] | None = None,
        formulation: str | None = None,
        solver: str | None = None,
        deadline: float | None = None,
        detail: str | None = None,
    ) -> DryRun:
        """The plan that would be made with ``add`` and without ``drop``; nothing changes.

        ``statistics``, ``distinct``, ``selectivity`` and ``widths`` are assumed in place of
        what was measured, ``retention`` (stream -> ``{"ttl": "7 days"}`` or None) in place of what
        streams have; ``deadline`` is in seconds; ``detail`` is ``full`` or ``summary``.
        """
        return self._send(
            calls.dry_run(
                add,
                drop,
                optimizer,
                objective,
                parallelism,
                statistics,
                distinct=distinct,
                selectivity=selectivity,
                widths=widths,
                retention=retention,
                formulation=formulation,
                solver=solver,
                deadline=deadline,
                detail=detail,
            )
        )

    def settings(self) -> PlanningSettings:
        """The planning settings."""
        return self._send(calls.get_settings())

    def update_settings(
        self,
        *,
        optimizer: str | None = None,
        objective: str | None = None,
        parallelism: int | None = None,
        switching: float | None = None,
        memory: float | Literal["none"] | None = None,
        copies: int | Literal["none"] | None = None,
        solver: str | None = None,
        backfill: str | None = None,
        backfill_horizon: float | None = None,
    ) -> PlanningSettings:
        """Switch planning settings from the next planned epoch on; ``"none"`` lifts a limit."""
        given = {
            "optimizer": optimizer,
            "objective": objective,
            "parallelism": parallelism,
            "switching": switching,
            "memory": memory,
            "copies": copies,
            "solver": solver,
            "backfill": backfill,
            "backfill_horizon": backfill_horizon,
        }
        return self._send(calls.put_settings(given))

    def whoami(self) -> Who:
        """Who the caller is, and what role they have."""
        return self._send(calls.whoami())

    def create_token(self, name: str, role: str, *, ttl: str | None = None) -> NewToken:
        """Create a token; its secret is in this answer and nowhere else."""
        return self._send(calls.create_token(name, role, ttl))

    def tokens(self) -> list[TokenInfo]:
        """All tokens, oldest first."""
        return self._send(calls.list_tokens())

    def revoke_token(self, ident: str) -> TokenInfo:
        """Refuse a token from now on."""
        return self._send(calls.revoke_token(ident))

    def audit(self, kind: str = "change", *, limit: int = 100) -> list[AuditEntry]:
        """Who did what, newest first: ``change``, ``push`` or ``refusal``."""
        return self._send(calls.audit(kind, limit))

    def ready(self) -> None:
        """Return if the service serves requests and plans epochs; raise otherwise."""
        self._send(calls.ready())


class AsyncClient:
    """:class:`Client` for ``asyncio``: the same methods, awaited."""

    def __init__(
        self, base_url: str = DEFAULT_URL, *, timeout: float = 60.0, token: str | None = None
    ) -> None:
        self.base_url = base_url
        self._http = httpx.AsyncClient(
            base_url=base_url, timeout=timeout, headers=access.headers(token)
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _send(self, call: Call[T]) -> T:
        try:
            response = await self._http.send(call.request(self._http))
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            raise calls.unreachable(self.base_url, cause) from cause
        return call.answer(response)

    async def create_stream(
        self,
        name: str,
        columns: Sequence[tuple[str, str]],
        *,
        event_time: str | None = None,
        lateness: str | None = None,
        source: JsonObject | None = None,
        idle_timeout: str | None = None,
        keep_late: bool | None = None,
        ttl: str | None = None,
        latest: Sequence[str] | None = None,
        ahead_of_clock: str | None = None,
        ahead_of_stream: str | None = None,
    ) -> StreamInfo:
        """Register a stream with (name, type) columns; ``lateness`` may be ``unbounded``, ``ttl``
        is a window on every alias over it, ``latest`` the key of which only the latest count.
        """
        retention = calls.retention(ttl, latest)
        return await self._send(
            calls.create_stream(
                name,
                columns,
                event_time,
                lateness,
                source,
                idle_timeout,
                keep_late,
                retention,
                ahead_of_clock,
                ahead_of_stream,
            )
        )

    async def streams(self) -> list[StreamInfo]:
        """All streams, by name."""
        return await self._send(calls.list_streams())

    async def stream(self, name: str) -> StreamInfo:
        """One stream."""
        return await self._send(calls.get_stream(name))

    async def update_stream(self, name: str, **changes: Any) -> StreamInfo:
        """Change ``idle_timeout`` (None: never idle), ``keep_late``, ``ahead_of_clock``,
        ``ahead_of_stream``, or ``retention`` (``{"ttl": "7 days", "latest": ["k"]}``; None:
        neither).
        """
        return await self._send(calls.patch_stream(name, changes))

    async def push(self, name: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Send rows (at most 10,000) to a stream of format ``redis-stream``: all or none."""
        return await self._send(calls.push_rows(name, rows))

    async def delete_stream(self, name: str) -> None:
        """Forget a stream that no query reads."""
        await self._send(calls.delete_stream(name))

    async def create_query(
        self,
        sql: str | None = None,
        *,
        query: JsonObject | None = None,
        name: str | None = None,
        window: str | Mapping[str, str] | None = None,
        ttl: str | None = None,
        expires_at: str | None = None,
        sink: str | Mapping[str, Any] | None = None,
        priority: int | None = None,
        dialect: str | None = None,
        idempotency_key: str | None = None,
    ) -> QueryInfo:
        """Register a query: SQL, or a structured ``query``.

        ``sink`` is a format, or a document with ``format``, ``options`` and ``path``; ``dialect``
        is what the SQL is written in, Spark's unless told.
        """
        body = calls.query_body(sql, query, name, window, ttl, expires_at, sink, priority, dialect)
        return await self._send(calls.create_query(body, idempotency_key))

    async def queries(self) -> AsyncIterator[QueryInfo]:
        """All queries in order of registration, page by page."""
        cursor: str | None = None
        while True:
            page, cursor = await self._send(calls.list_queries(cursor))
            for info in page:
                yield info
            if cursor is None:
                return

    async def query(self, name: str) -> QueryInfo:
        """One query."""
        return await self._send(calls.get_query(name))

    async def rows(self, name: str, limit: int = 100) -> ViewRows:
        """The rows of a query's view as they are, in its order; 1000 at most."""
        return await self._send(calls.view_rows(name, limit))

    async def update_query(self, name: str, **changes: Any) -> QueryInfo:
        """Change ``ttl``, ``expires_at`` (None: lives for ever) or ``priority``."""
        return await self._send(calls.patch_query(name, changes))

    async def delete_query(self, name: str) -> None:
        """Let a query end with the current epoch."""
        await self._send(calls.delete_query(name))

    async def tail(
        self, name: str, *, from_start: bool = False, limit: int | None = None
    ) -> AsyncIterator[TailEvent]:
        """Follow a query's committed results, until ``limit`` rows or the query's end.

        A lost connection is made again, and what has come meanwhile is sent first; a ``gap`` says
        how many rows are missing.
        """
        follower = Follower(name, from_start, limit)
        while not follower.over:
            try:
                response = await self._http.send(follower.request(self._http), stream=True)
                try:
                    if not response.is_success:
                        await response.aread()
                    follower.connected(response)
                    async for part in response.aiter_bytes():
                        for event in follower.feed(part):
                            yield event
                finally:
                    await response.aclose()
            except (httpx.HTTPError, httpx.InvalidURL) as cause:
                await asyncio.sleep(follower.pause(self.base_url, cause))
            else:
                await asyncio.sleep(follower.rest())

    async def epochs(self) -> AsyncIterator[EpochSummary]:
        """All published epochs, newest first, page by page."""
        cursor: str | None = None
        while True:
            page, cursor = await self._send(calls.list_epochs(cursor))
            for summary in page:
                yield summary
            if cursor is None:
                return

    async def epoch(self, number: int) -> EpochInfo:
        """One published epoch, plan and all."""
        return await self._send(calls.get_epoch(number))

    async def epoch_statistics(self, number: int) -> EpochStatistics:
        """What was measured in an epoch that has ended."""
        return await self._send(calls.epoch_statistics(number))

    async def state(self) -> StoredState:
        """What the stores hold, as of the newest batch that the runtime has told of."""
        return await self._send(calls.state())

    async def stored(self, store: str, epochs: int = 30) -> StoreDetail:
        """One store with its segments, the probes that read it, and its last ``epochs``.

        Raises:
            ApiError: there is no such store.
        """
        return await self._send(calls.stored(store, epochs))

    async def stream_sample(self, name: str) -> StreamSample:
        """What a sample of a stream tells about its columns."""
        return await self._send(calls.stream_sample(name))

    async def current_epoch(self) -> CurrentEpoch:
        """The epoch that the runtime is in."""
        return await self._send(calls.current_epoch())

    async def explain(
        self,
        sql: str,
        *,
        dialect: str | None = None,
        window: str | Mapping[str, str] | None = None,
    ) -> Explained:
        """What a statement's joins become, and what it would cost as a query; nothing changes."""
        return await self._send(calls.explain(sql, dialect, window))

    async def dry_run(
        self,
        add: Sequence[JsonObject] = (),
        *,
        drop: Sequence[str] = (),
        optimizer: str | None = None,
        objective: str | None = None,
        parallelism: int | None = None,
        statistics: Mapping[str, float] | None = None,
        distinct: Mapping[str, float] | None = None,
        selectivity: Mapping[str, float] | None = None,
        widths: Mapping[str, float] | None = None,
        retention: Mapping[str, JsonObject | None] | None = None,
        formulation: str | None = None,
        solver: str | None = None,
        deadline: float | None = None,
        detail: str | None = None,
    ) -> DryRun:
        """The plan that would be made with ``add`` and without ``drop``; nothing changes.

        ``statistics``, ``distinct``, ``selectivity`` and ``widths`` are assumed in place of
        what was measured, ``retention`` (stream -> ``{"ttl": "7 days"}`` or None) in place of what
        streams have; ``deadline`` is in seconds; ``detail`` is ``full`` or ``summary``.
        """
        return await self._send(
            calls.dry_run(
                add,
                drop,
                optimizer,
                objective,
                parallelism,
                statistics,
                distinct=distinct,
                selectivity=selectivity,
                widths=widths,
                retention=retention,
                formulation=formulation,
                solver=solver,
                deadline=deadline,
                detail=detail,
            )
        )

    async def settings(self) -> PlanningSettings:
        """The planning settings."""
        return await self._send(calls.get_settings())

    async def update_settings(
        self,
        *,
        optimizer: str | None = None,
        objective: str | None = None,
        parallelism: int | None = None,
        switching: float | None = None,
        memory: float | Literal["none"] | None = None,
        copies: int | Literal["none"] | None = None,
        solver: str | None = None,
        backfill: str | None = None,
        backfill_horizon: float | None = None,
    ) -> PlanningSettings:
        """Switch planning settings from the next planned epoch on; ``"none"`` lifts a limit."""
        given = {
            "optimizer": optimizer,
            "objective": objective,
            "parallelism": parallelism,
            "switching": switching,
            "memory": memory,
            "copies": copies,
            "solver": solver,
            "backfill": backfill,
            "backfill_horizon": backfill_horizon,
        }
        return await self._send(calls.put_settings(given))

    async def whoami(self) -> Who:
        """Who the caller is, and what role they have."""
        return await self._send(calls.whoami())

    async def create_token(self, name: str, role: str, *, ttl: str | None = None) -> NewToken:
        """Create a token; its secret is in this answer and nowhere else."""
        return await self._send(calls.create_token(name, role, ttl))

    async def tokens(self) -> list[TokenInfo]:
        """All tokens, oldest first."""
        return await self._send(calls.list_tokens())

    async def revoke_token(self, ident: str) -> TokenInfo:
        """Refuse a token from now on."""
        return await self._send(calls.revoke_token(ident))

    async def audit(self, kind: str = "change", *, limit: int = 100) -> list[AuditEntry]:
        """Who did what, newest first: ``change``, ``push`` or ``refusal``."""
        return await self._send(calls.audit(kind, limit))

    async def ready(self) -> None:
        """Return if the service serves requests and plans epochs; raise otherwise."""
        await self._send(calls.ready())
