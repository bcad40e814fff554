"""``/v1/settings``: how the next epoch is planned."""

from __future__ import annotations

from anabranch_contract.rest.settings import SettingsIn, SettingsOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.planning.options import changed, default_planning
from anabranch_service.registry.records import PlanningRecord

router = guarded_router("/v1/settings", tag="settings")


@router.get("")
@needs(Need.READ)
async def get_settings(ctx: Ctx) -> SettingsOut:
    """The settings of the next epoch's plan."""
    return _out(ctx, await ctx.store.planning() or default_planning(ctx.settings))


@router.put("")
@needs(Need.ADMIN)
async def put_settings(body: SettingsIn, ctx: Ctx) -> SettingsOut:
    """Change it; what is left out stays, and null lifts a limit.

    Takes effect at the next planned epoch.
    """
    current = await ctx.store.planning() or default_planning(ctx.settings)
    record = changed(current, body)
    await ctx.store.put_planning(record)
    return _out(ctx, record)


def _out(ctx: Context, record: PlanningRecord) -> SettingsOut:
    mode, batches = ctx.settings.mode.value, ctx.settings.epoch_batches
    return SettingsOut.of(record, mode=mode, epoch_batches=batches)
