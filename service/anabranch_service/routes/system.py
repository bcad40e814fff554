"""Health, metrics, and the dashboard."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from redis.exceptions import RedisError

from anabranch_service.context import Ctx
from anabranch_service.errors import ServiceError
from anabranch_service.wire import Health, Ready

router = APIRouter(tags=["system"])

DASHBOARD = Path(__file__).parent.parent / "dashboard"

_SECURITY = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class NotReady(ServiceError):
    """Up, but not able to do its work."""

    status = 503


@router.get("/healthz")
async def healthz() -> Health:
    """The process is up."""
    return Health()


@router.get("/readyz")
async def readyz(ctx: Ctx) -> Ready:
    """Redis answers and the epoch loop is alive."""
    checks = {"epoch_loop": ctx.loop.check()}
    try:
        await ctx.store.ping()
        checks["redis"] = "ok"
    except RedisError as cause:
        checks["redis"] = repr(cause)
    broken = sorted(f"{name}: {state}" for name, state in checks.items() if state != "ok")
    if broken:
        raise NotReady(
            "not-ready", "; ".join(broken), remedy="what is running goes on; see the log"
        )
    return Ready(status="ready", checks=checks)


@router.get("/metrics", response_class=Response)
async def metrics(ctx: Ctx) -> Response:
    """Prometheus metrics of this process, and of the runtime's sources."""
    with contextlib.suppress(RedisError):
        ctx.metrics.show(await ctx.store.progress())
    return Response(generate_latest(ctx.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/", include_in_schema=False)
async def dashboard() -> FileResponse:
    """The dashboard's page."""
    return FileResponse(DASHBOARD / "index.html", headers=_SECURITY)


@router.get("/dashboard/explain", include_in_schema=False)
async def explained() -> FileResponse:
    """The page that explains a statement."""
    return FileResponse(DASHBOARD / "explain.html", headers=_SECURITY)


@router.get("/dashboard/state", include_in_schema=False)
async def stored_state() -> FileResponse:
    """The page of stored state."""
    return FileResponse(DASHBOARD / "state.html", headers=_SECURITY)
