"""``/v1/settings``: settings of the next epoch's plan."""

from __future__ import annotations

from fastapi import Response

from anabranch_contract.rest.planning.settings import PlanningSettings, SettingsIn, SettingsOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.planning.options import changed, default_planning
from anabranch_service.versions import IfMatch, check_version, etag

router = guarded_router("/v1/settings", tag="settings")


@router.get("")
@needs(Need.READ)
async def get_settings(ctx: Ctx, response: Response) -> SettingsOut:
    """The settings of the next epoch's plan."""
    record = await ctx.store.planning() or default_planning(ctx.settings)
    return _out(ctx, record, response)


@router.put("", deprecated=True)
@needs(Need.ADMIN)
async def put_settings(
    body: SettingsIn, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> SettingsOut:
    """Change settings; the same as PATCH."""
    return await patch_settings(body, ctx, response, if_match)


@router.patch("")
@needs(Need.ADMIN)
async def patch_settings(
    body: SettingsIn, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> SettingsOut:
    """Change settings; omitted fields keep their value, and null lifts a limit.

    Takes effect at the next planned epoch.
    """

    def change(record: PlanningSettings | None) -> PlanningSettings:
        current = record or default_planning(ctx.settings)
        check_version(current, if_match)
        return changed(current, body)

    return _out(ctx, await ctx.store.update_planning(change), response)


def _out(ctx: Context, record: PlanningSettings, response: Response) -> SettingsOut:
    response.headers["ETag"] = etag(record)
    mode, batches = ctx.settings.mode.value, ctx.settings.planning.epoch_batches
    return SettingsOut.of(record, mode=mode, epoch_batches=batches)
