"""``/v1/profile``: CPU time of the pipeline by use."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated
from uuid import uuid4

import psutil
from fastapi import Query, Response
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from anabranch_contract.protocol.profile import CpuGroup, CpuUse
from anabranch_contract.rest.planning.plans import Detail
from anabranch_contract.rest.profile import ProfileOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx

router = guarded_router("/v1", tag="state")

#: Id of this process.
_SERVICE = uuid4().hex


@router.get("/profile")
@needs(Need.READ)
async def get_profile(
    ctx: Ctx,
    response: Response,
    detail: Annotated[
        Detail, Query(description="`summary`: one use per kind of work, for all its queries.")
    ] = "full",
) -> ProfileOut:
    """CPU seconds of runtime, service and Redis by use since their start: subtract two answers."""
    response.headers["Cache-Control"] = "no-store"
    report = await ctx.store.cpu_report()
    uses = [] if report is None else list(report.uses)
    uses += [CpuUse(CpuGroup.SERVICE, name, (), seconds) for name, seconds in _own().items()]
    with contextlib.suppress(ResponseError):
        # On a shared Redis server the user may not be allowed to call INFO.
        uses.append(CpuUse(CpuGroup.REDIS, "server", (), await _redis(ctx.store.redis)))
    if detail == "summary":
        uses = _by_group(uses)
    return ProfileOut(
        run="" if report is None else report.run,
        at=None if report is None else datetime.fromtimestamp(report.at, UTC),
        service=_SERVICE,
        service_at=ctx.clock(),
        uses=sorted(uses),
    )


def _by_group(uses: Iterable[CpuUse]) -> list[CpuUse]:
    """Return the sums of the uses of each group."""
    seconds = defaultdict[CpuGroup, float](float)
    for use in uses:
        seconds[use.group] += use.seconds
    return [CpuUse(group, "", (), total) for group, total in seconds.items()]


def _own() -> dict[str, float]:
    """Return the CPU seconds of the service and of its children, ended ones included."""
    spent, planner = os.times(), 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            planner += times.user + times.system
            planner += getattr(times, "children_user", 0) + getattr(times, "children_system", 0)
    planner += spent.children_user + spent.children_system
    return {"REST and registry": spent.user + spent.system, "planner": planner}


async def _redis(redis: Redis) -> float:
    """Return the CPU seconds of the Redis server, with its children."""
    found = await redis.info("cpu")
    sides = ("sys", "user", "sys_children", "user_children")
    return float(sum(float(found.get(f"used_cpu_{side}", 0.0)) for side in sides))
