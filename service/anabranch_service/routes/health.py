"""``/v1/health``: the state of every component, and since when."""

from __future__ import annotations

import asyncio

import structlog
from fastapi import Response
from redis.exceptions import RedisError

from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.queries import MissedOut
from anabranch_contract.rest.system import ComponentOut, HealthOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.presenters.health import (
    Component,
    approval_component,
    checked,
    missed_components,
    plan_component,
    sink_components,
    stream_components,
    worst_first,
)
from anabranch_service.presenters.missed import missed_rows, parts_now, with_parts
from anabranch_service.registry.lifecycle import Status, status_of
from anabranch_service.registry.runtime_check import runtime_check

_LOG = structlog.get_logger(__name__)

#: Seconds between two observations of all components.
LOOK_SECONDS = 5.0

router = guarded_router("/v1/health", tag="system")


@router.get("")
@needs(Need.READ)
async def get_health(ctx: Ctx, response: Response) -> HealthOut:
    """The state of every component, the most urgent first."""
    response.headers["Cache-Control"] = "no-store"
    return HealthOut(components=[ComponentOut.of(one) for one in worst_first(await look(ctx))])


async def watch(ctx: Context) -> None:
    """Observe the components periodically, to record when each of them enters a state."""
    while True:
        try:
            await look(ctx)
        except Exception as cause:  # noqa: BLE001 - logged; the next observation may succeed
            _LOG.warning("health is not known", error=repr(cause))
        await asyncio.sleep(LOOK_SECONDS)


async def look(ctx: Context) -> list[Component]:
    """Return the state of every component, and the time when it entered this state."""
    try:
        found = await _health_components(ctx)
    except RedisError as cause:
        remedy = "see that the server runs and that its address is right (ANABRANCH_REDIS_URL)"
        found = [checked("redis", "Redis", repr(cause), remedy)]
    loop = checked("epoch loop", "epoch loop", ctx.loop.check(), "see the service's log")
    return ctx.health.dated([Component("service", "this service"), loop, *found], ctx.clock())


async def _health_components(ctx: Context) -> list[Component]:
    store = ctx.store
    await store.ping()
    progress = await store.progress()
    newest = await store.summaries((await store.published())[-1:])
    streams = sorted((await store.streams()).values(), key=lambda record: record.name)
    return [
        Component("redis", "Redis"),
        plan_component(newest[0][0] if newest else None),
        *approval_component(await store.approvals()),
        checked("runtime", "runtime", await runtime_check(store), "start it: anabranch up"),
        *stream_components(streams, await store.sources(), progress),
        *sink_components({} if progress is None else progress.sinks),
        *missed_components(await _missed(ctx, progress)),
    ]


async def _missed(ctx: Context, progress: Progress | None) -> dict[str, list[MissedOut]]:
    """Return active query -> earlier rows, without which its results stay incomplete."""
    activations, now = await ctx.store.activations(), ctx.clock()
    found, parts_of = {}, parts_now(await ctx.store.queries(), activations)
    for listed in await ctx.store.newest_queries():
        record, parts = listed.record, parts_of.get(listed.record.id, ())
        own = activations.get(record.id)
        whole = with_parts(own, parts)
        if whole is None or whole.complete != "never":
            continue
        if status_of(record, own, progress, now) is Status.ACTIVE:
            found[query_of(record.id)] = missed_rows(record.normalised, own, progress, parts)
    return {name: rows for name, rows in found.items() if rows}
