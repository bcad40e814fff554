"""The Python client of the REST API, blocking and asynchronous.

>>> Client("http://127.0.0.1:1").base_url
'http://127.0.0.1:1'
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

import httpx

from anabranch_client import calls
from anabranch_client.answers import (
    CurrentEpoch,
    DryRun,
    EpochInfo,
    EpochSummary,
    PlanningSettings,
    QueryInfo,
    StreamInfo,
)
from anabranch_client.calls import Call, JsonObject

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"


class Client:
    """Talks to one service; usable from several threads; close it, or use it in a ``with``."""

    def __init__(self, base_url: str = DEFAULT_URL, *, timeout: float = 60.0) -> None:
        self.base_url = base_url
        self._http = httpx.Client(base_url=base_url, timeout=timeout)

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
    ) -> StreamInfo:
        """Register a stream with (name, type) columns; ``lateness`` may be ``unbounded``."""
        return self._send(calls.create_stream(name, columns, event_time, lateness, source))

    def streams(self) -> list[StreamInfo]:
        """All streams, by name."""
        return self._send(calls.list_streams())

    def stream(self, name: str) -> StreamInfo:
        """One stream."""
        return self._send(calls.get_stream(name))

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
        sink: str | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> QueryInfo:
        """Register a query: SQL, or a structured ``query``."""
        body = calls.query_body(sql, query, name, window, ttl, expires_at, sink, priority)
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

    def update_query(self, name: str, **changes: Any) -> QueryInfo:
        """Change ``ttl``, ``expires_at`` (None: lives for ever) or ``priority``."""
        return self._send(calls.patch_query(name, changes))

    def delete_query(self, name: str) -> None:
        """Let a query end with the current epoch."""
        self._send(calls.delete_query(name))

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

    def current_epoch(self) -> CurrentEpoch:
        """The epoch that the runtime is in."""
        return self._send(calls.current_epoch())

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
        formulation: str | None = None,
        solver: str | None = None,
        deadline: float | None = None,
        detail: str | None = None,
    ) -> DryRun:
        """The plan that would be made with ``add`` and without ``drop``; nothing changes.

        ``statistics``, ``distinct``, ``selectivity`` and ``widths`` are assumed in place of
        what was measured; ``deadline`` is in seconds; ``detail`` is ``full`` or ``summary``.
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
        }
        return self._send(calls.put_settings(given))

    def ready(self) -> None:
        """Return if the service serves requests and plans epochs; raise otherwise."""
        self._send(calls.ready())


class AsyncClient:
    """:class:`Client` for ``asyncio``: the same methods, awaited."""

    def __init__(self, base_url: str = DEFAULT_URL, *, timeout: float = 60.0) -> None:
        self.base_url = base_url
        self._http = httpx.AsyncClient(base_url=base_url, timeout=timeout)

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
    ) -> StreamInfo:
        """Register a stream with (name, type) columns; ``lateness`` may be ``unbounded``."""
        return await self._send(calls.create_stream(name, columns, event_time, lateness, source))

    async def streams(self) -> list[StreamInfo]:
        """All streams, by name."""
        return await self._send(calls.list_streams())

    async def stream(self, name: str) -> StreamInfo:
        """One stream."""
        return await self._send(calls.get_stream(name))

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
        sink: str | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> QueryInfo:
        """Register a query: SQL, or a structured ``query``."""
        body = calls.query_body(sql, query, name, window, ttl, expires_at, sink, priority)
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

    async def update_query(self, name: str, **changes: Any) -> QueryInfo:
        """Change ``ttl``, ``expires_at`` (None: lives for ever) or ``priority``."""
        return await self._send(calls.patch_query(name, changes))

    async def delete_query(self, name: str) -> None:
        """Let a query end with the current epoch."""
        await self._send(calls.delete_query(name))

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

    async def current_epoch(self) -> CurrentEpoch:
        """The epoch that the runtime is in."""
        return await self._send(calls.current_epoch())

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
        formulation: str | None = None,
        solver: str | None = None,
        deadline: float | None = None,
        detail: str | None = None,
    ) -> DryRun:
        """The plan that would be made with ``add`` and without ``drop``; nothing changes.

        ``statistics``, ``distinct``, ``selectivity`` and ``widths`` are assumed in place of
        what was measured; ``deadline`` is in seconds; ``detail`` is ``full`` or ``summary``.
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
        }
        return await self._send(calls.put_settings(given))

    async def ready(self) -> None:
        """Return if the service serves requests and plans epochs; raise otherwise."""
        await self._send(calls.ready())
