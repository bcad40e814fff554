"""Liveness, readiness, metrics, the OpenAPI document, and the leading service."""

from __future__ import annotations

import contextlib

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from redis.exceptions import RedisError

from anabranch_contract.rest.system import Health, LeaderOut, Ready
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import ServiceError
from anabranch_service.presenters.pipeline_metrics import exposition
from anabranch_service.registry.publishing.lease import leader_of
from anabranch_service.registry.runtime_check import runtime_check
from anabranch_service.registry.source_status import summary

router = guarded_router(tag="system")


class NotReady(ServiceError):
    """The service is running but not ready to serve requests."""

    status = 503


@router.get("/healthz")
@needs(Need.NOTHING)
async def healthz() -> Health:
    """Liveness: the process serves requests."""
    return Health()


@router.get("/readyz")
@needs(Need.TOKEN)
async def readyz(ctx: Ctx) -> Ready:
    """Readiness: Redis answers, the epoch loop works, the runtime (if it has work) is alive, and it
    can read the source of every stream."""
    checks = {"epoch_loop": ctx.loop.check()}
    try:
        await ctx.store.ping()
        checks["redis"] = "ok"
        checks["runtime"] = await runtime_check(ctx.store)
        checks["sources"] = summary((await ctx.store.sources()).failed())
    except RedisError as cause:
        checks["redis"] = repr(cause)
    broken = sorted(f"{name}: {state}" for name, state in checks.items() if state != "ok")
    if broken:
        raise NotReady(
            "not-ready", "; ".join(broken), remedy="running queries continue; see the log"
        )
    return Ready(status="ready", checks=checks)


@router.get("/metrics", response_class=Response)
@needs(Need.TOKEN)
async def metrics(ctx: Ctx) -> Response:
    """Prometheus metrics of this process, and of the pipeline (equal in all services)."""
    found = generate_latest(ctx.metrics.registry)
    with contextlib.suppress(RedisError):
        seen = await ctx.observer.look(ctx.clock(), leads=ctx.lease.term is not None)
        found += exposition(seen)
    return Response(found, media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", include_in_schema=False)
@needs(Need.NOTHING)
async def openapi(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/v1/leader")
@needs(Need.TOKEN)
async def get_leader(ctx: Ctx, response: Response) -> LeaderOut:
    """The leading service, its term, and whether it is the answering service."""
    response.headers["Cache-Control"] = "no-store"
    found = await leader_of(ctx.store.redis, ctx.store.keys)
    if found is None:
        return LeaderOut(lease_seconds=ctx.lease.seconds)
    return LeaderOut(
        leads=found.seconds is not None,
        address=found.address,
        since=found.since,
        token=found.term.token,
        is_this=found.term == ctx.lease.term,
        lease_seconds=ctx.lease.seconds,
    )
