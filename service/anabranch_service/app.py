"""The application: routes, error handling, and the epoch loop for as long as it is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from fastapi import FastAPI
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch_service import problems
from anabranch_service.clock import Clock, utc_now
from anabranch_service.context import Context
from anabranch_service.loop import EpochLoop
from anabranch_service.metrics import Metrics
from anabranch_service.routes import (
    epochs,
    explain,
    plans,
    queries,
    results,
    settings,
    state,
    streams,
    system,
)
from anabranch_service.settings import Settings
from anabranch_service.store import Store
from anabranch_service.stored import StoreHistory
from anabranch_service.tail import Tails

_LOG = structlog.get_logger(__name__)

#: How long the epoch loop may take to finish what it is at when the service is told to stop.
STOP_SECONDS = 5.0


def create_app(config: Settings, *, clock: Clock = utc_now) -> FastAPI:
    """The service under ``config``. The epoch loop runs while the application's lifespan does."""
    redis = Redis.from_url(
        config.redis_url,
        decode_responses=True,
        socket_timeout=5,
        # After a restart of Redis every pooled connection is stale, and says so only when used.
        retry=Retry(NoBackoff(), 1),
    )
    store, metrics = Store(redis, config.namespace), Metrics()
    loop = EpochLoop(store, config, metrics, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(loop.run(), name="epoch-loop")
        try:
            yield
        finally:
            loop.stop()
            if not (await asyncio.wait({task}, timeout=STOP_SECONDS))[0]:
                task.cancel()
                await asyncio.wait({task}, timeout=1)
            await redis.aclose()

    app = FastAPI(
        title="anabranch",
        version="1",
        summary="Continuous multi-way joins, planned together.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=problems.RESPONSES,
    )
    app.state.context = Context(
        config, store, loop, metrics, clock, Tails(store), StoreHistory(store)
    )
    problems.install(app)
    for module in (explain, streams, queries, results, epochs, state, plans, settings, system):
        app.include_router(module.router)
    app.mount("/dashboard", StaticFiles(directory=system.DASHBOARD), name="dashboard")
    app.add_middleware(Observe, metrics=metrics)
    return app


class Observe:
    """Measures every request by its route, and logs those that change or fail something."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, observe)
        finally:
            seconds = time.perf_counter() - started
            method, route = scope["method"], _route(scope)
            self.metrics.requests.labels(method, route, status).inc()
            self.metrics.latency.labels(method, route).observe(seconds)
            if method not in ("GET", "HEAD") or status >= 500:
                _LOG.info(
                    "request",
                    method=method,
                    path=scope["path"],
                    status=status,
                    ms=round(seconds * 1000, 1),
                )


def _route(scope: Scope) -> str:
    """The route's path template: a path as such would make endless label values."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "unmatched"
