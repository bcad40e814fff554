"""``/v1/settings``: how the next epoch is planned."""

from __future__ import annotations

from fastapi import APIRouter

from anabranch_service.context import Context, Ctx
from anabranch_service.loop import default_planning
from anabranch_service.records import PlanningRecord
from anabranch_service.wire import SettingsIn, SettingsOut

router = APIRouter(prefix="/v1/settings", tags=["settings"])


@router.get("")
async def get_settings(ctx: Ctx) -> SettingsOut:
    """What the next epoch is planned by."""
    return _out(ctx, await ctx.store.planning() or default_planning(ctx.settings))


@router.put("")
async def put_settings(body: SettingsIn, ctx: Ctx) -> SettingsOut:
    """Change it; what is left out stays. Takes effect at the next planned epoch."""
    current = await ctx.store.planning() or default_planning(ctx.settings)
    changes = body.model_dump(exclude_none=True)
    record = PlanningRecord.model_validate({**current.model_dump(), **changes})
    await ctx.store.put_planning(record)
    return _out(ctx, record)


def _out(ctx: Context, record: PlanningRecord) -> SettingsOut:
    return SettingsOut(
        optimizer=record.optimizer,
        objective=record.objective,
        parallelism=record.parallelism,
        mode=ctx.settings.mode.value,
        epoch_batches=ctx.settings.epoch_batches,
    )
