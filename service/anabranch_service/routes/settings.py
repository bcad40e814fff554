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
    """What the next epoch is planned by."""
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
    return SettingsOut(
        optimizer=record.optimizer,
        objective=record.objective,
        parallelism=record.parallelism,
        switching=record.switching,
        memory=record.memory,
        copies=record.copies,
        solver=record.solver,
        backfill=record.backfill,
        backfill_horizon=record.backfill_horizon,
        mode=ctx.settings.mode.value,
        epoch_batches=ctx.settings.epoch_batches,
    )
