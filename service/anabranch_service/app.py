"""The application: routes, error handling, and background tasks such as the epoch loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from anabranch_service.access import first_token
from anabranch_service.access.audit import Audit
from anabranch_service.access.gate import Gate
from anabranch_service.access.tokens import Tokens
from anabranch_service.clock import Clock, utc_now
from anabranch_service.context import Context
from anabranch_service.lineage.emitter import Emitter
from anabranch_service.planning.forgetter import Forgetter
from anabranch_service.planning.loop import EpochLoop
from anabranch_service.planning.observer import Observer
from anabranch_service.planning.recorder import Recorder
from anabranch_service.planning.work import ThreadPools
from anabranch_service.presenters.health import HealthLog
from anabranch_service.presenters.metrics import Metrics
from anabranch_service.presenters.state import StoreHistory
from anabranch_service.registry.publishing.lease import Lease
from anabranch_service.registry.redis.connections import open_redis
from anabranch_service.registry.store import Store
from anabranch_service.routes import (
    access,
    approval,
    columns,
    epochs,
    functions,
    health,
    pages,
    plans,
    profile,
    series,
    settings,
    source_tests,
    state,
    streams,
    system,
)
from anabranch_service.routes.queries import batches as query_batches
from anabranch_service.routes.queries import (
    explain,
    families,
    preview,
    queries,
    results,
    runs,
    tables,
)
from anabranch_service.routes.queries import listing as query_list
from anabranch_service.settings import ServiceSettings, own_address
from anabranch_service.streaming.tail import ServedTails
from anabranch_service.tables.cutover import Cutovers
from anabranch_service.tables.named import TableNames
from anabranch_service.tables.reader import TableReader
from anabranch_service.tasks import cancel
from anabranch_service.transport import problems
from anabranch_service.transport.document import RESPONSES, Documented
from anabranch_service.transport.head import AnswerHead
from anabranch_service.transport.hosts import CheckHost
from anabranch_service.transport.limits import LimitRequests
from anabranch_service.transport.observe import Observe

if TYPE_CHECKING:
    from anabranch_service.flight.server import FlightSql

#: Seconds that the epoch loop has to finish its current turn when the service stops.
STOP_SECONDS = 5.0
#: Smallest response, in bytes, that is compressed for clients that accept compression.
COMPRESSED = 1024


def serve_flights(context: Context, loop: asyncio.AbstractEventLoop) -> FlightSql:
    """Serve Flight SQL beside REST. Its library (20 MB) is imported only here."""
    from anabranch_service.flight.server import FlightSql

    return FlightSql(context, loop)


def create_app(config: ServiceSettings, *, clock: Clock = utc_now) -> FastAPI:
    """Make the application with settings ``config``; the epoch loop runs during its lifespan."""
    redis = open_redis(config.redis_url)
    store, metrics = Store(redis, config.namespace), Metrics()
    lease = Lease(redis, store.keys, own_address(config), config.lease_seconds)
    loop = EpochLoop(store, lease, config, metrics, clock)
    emitter = Emitter(store, lease, config, metrics, clock)
    recorder = Recorder(store, lease)
    cutovers = Cutovers(store, lease, clock)
    forgetter = Forgetter(store, lease, config.retention.ended_days, clock)
    tokens, audit = Tokens(store), Audit(store, clock)
    work = ThreadPools(config.sizes.registration_seconds)
    gate = Gate(tokens, clock, required=config.requires_tokens)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if gate.required:
            await first_token.ensure(tokens, Path(config.admin_token_file), clock())
        leading = asyncio.create_task(lease.run(), name="lease")
        task = asyncio.create_task(loop.run(), name="epoch-loop")
        others = {
            asyncio.create_task(emitter.run(), name="lineage"),
            asyncio.create_task(recorder.run(), name="history"),
            asyncio.create_task(forgetter.run(), name="ended"),
            asyncio.create_task(cutovers.run(), name="cutovers"),
            asyncio.create_task(health.watch(app.state.context), name="health"),
        }
        running = asyncio.get_running_loop()
        flights = serve_flights(app.state.context, running) if config.tables.flight_port else None
        try:
            yield
        finally:
            if flights is not None:
                await asyncio.to_thread(flights.close)
            loop.stop()
            await asyncio.wait({task}, timeout=STOP_SECONDS)
            # The leader's lease is released last: the epoch loop, which needs it, has ended.
            # Redis is closed after all tasks, however slow: they would open connections again.
            await cancel({task, *others})
            await cancel({leading})
            await loop.stop_background()
            work.close()
            await asyncio.to_thread(loop.close)
            await redis.aclose()

    app = Documented(
        title="anabranch",
        version="1",
        summary="Continuous multi-way joins, planned together.",
        lifespan=lifespan,
        # The OpenAPI document has a route of ours, since every route must declare a role.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # No redirects for trailing slashes: their URL would repeat the client's Host header.
        redirect_slashes=False,
        responses=RESPONSES,
    )
    app.state.context = Context(
        config,
        store,
        lease,
        loop,
        metrics,
        Observer(store),
        clock,
        ServedTails(store, config.web.connections),
        StoreHistory(store),
        tokens,
        gate,
        audit,
        work,
        HealthLog(),
        TableReader(config.tables.sql_seconds, config.tables.sql_memory),
        TableNames(store, clock),
    )
    problems.install(app)
    app.state.routers = [
        module.router
        for module in (
            *(explain, source_tests, query_batches, families, streams, query_list, queries),
            *(columns, runs, results, tables, preview, epochs, state),
            *(functions, plans, approval, series, profile, settings, access),
            *(health, system, pages),
        )
    ]
    for router in app.state.routers:
        app.include_router(router)
    # Swagger UI comes from a package: no page loads anything from another server.
    swagger = StaticFiles(packages=[("fastapi_offline", "static")])
    app.mount("/dashboard/swagger", swagger, name="swagger")
    app.mount("/dashboard", StaticFiles(directory=pages.DASHBOARD), name="dashboard")
    # The middleware added last handles a request first. LimitRequests precedes CheckHost: it
    # reads the rest of a refused body, without which the sender would lose the answer.
    app.add_middleware(GZipMiddleware, minimum_size=COMPRESSED, compresslevel=5)
    app.add_middleware(AnswerHead)
    app.add_middleware(CheckHost, names=config.hostnames, origins=config.web.origins)
    app.add_middleware(
        LimitRequests, body_bytes=config.web.body_limit, seconds=config.web.request_seconds
    )
    if config.web.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.web.origins,
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-Match"],
            expose_headers=["ETag", "Location", "Retry-After", "X-Request-ID"],
        )
    app.add_middleware(Observe, metrics=metrics, audit=audit)
    return app
