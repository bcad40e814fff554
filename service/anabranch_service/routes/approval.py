"""``/v1/plan/held``: the plan that waits for an operator's approval."""

from __future__ import annotations

from fastapi import Response

from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.planning.epochs import HeldPlanOut, HeldState
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.errors import Conflict, NotFound
from anabranch_service.planning.what_if.epoch_diff import compare_epochs
from anabranch_service.registry.publishing.approvals import Approvals, HeldPlan
from anabranch_service.registry.records import EpochRecord
from anabranch_service.versions import IfMatch, Outdated, check_tag, tag

router = guarded_router("/v1/plan/held", tag="plans")


@router.get("")
@needs(Need.READ)
async def get_held_plan(ctx: Ctx, response: Response) -> HeldPlanOut:
    """The held plan, which waits for approval or, once approved, for the next epoch boundary."""
    seen, held, record = await _held(ctx)
    state: HeldState = "approved" if seen.is_approved else "waiting"
    return await _held_plan_answer(ctx, held, record, state, response)


@router.post(":approve")
@needs(Need.ADMIN)
async def approve_plan(ctx: Ctx, response: Response, if_match: IfMatch = None) -> HeldPlanOut:
    """Approve the held plan: it is published unchanged at the next epoch boundary. Idempotent."""
    _, held, record = await _held(ctx)
    check_tag(tag(held.digest), if_match)
    if not await ctx.store.approve(held):
        raise _changed()
    return await _held_plan_answer(ctx, held, record, "approved", response)


@router.post(":refuse")
@needs(Need.ADMIN)
async def refuse_plan(ctx: Ctx, response: Response, if_match: IfMatch = None) -> HeldPlanOut:
    """Refuse the held plan: it is not proposed again until queries, streams or settings change."""
    seen, held, record = await _held(ctx)
    check_tag(tag(held.digest), if_match)
    if seen.is_approved:
        raise Conflict(
            "already-approved",
            "the plan has been approved, and is published at the next epoch boundary",
            remedy="wait for the next plan, or change a query or a setting, so that a new plan is "
            "proposed",
        )
    answer = await _held_plan_answer(ctx, held, record, "refused", response)
    if not await ctx.store.refuse(seen, held):
        raise _changed()
    return answer


async def _held(ctx: Context) -> tuple[Approvals, HeldPlan, EpochRecord]:
    seen, plan = await ctx.store.approvals(), await ctx.store.held_plan()
    if seen.held is None or plan is None:
        raise NotFound(
            "no-held-plan",
            "no plan waits for approval",
            remedy="a plan waits where the setting approval is manual and it would change what "
            "runs; plans are made when an epoch ends",
        )
    return seen, seen.held, plan[0]


async def _held_plan_answer(
    ctx: Context, held: HeldPlan, record: EpochRecord, state: HeldState, response: Response
) -> HeldPlanOut:
    newest = await ctx.store.newest_epoch() or record
    change = await compare_epochs(newest, record, ctx.store, ctx.work, ctx.settings, ctx.clock())
    response.headers["ETag"] = tag(held.digest)
    return HeldPlanOut.of(
        held,
        state=state,
        version=tag(held.digest),
        waiting=[query_of(run) for run in held.waiting],
        cost_before=None if change.diff is None else change.diff.cost_before,
        cost_after=record.cost if change.diff is None else change.diff.cost_after,
        change=change,
    )


def _changed() -> Outdated:
    return Outdated(
        "changed-meanwhile",
        "another plan waits by now, or none",
        field="If-Match",
        remedy="send GET /v1/plan/held again, and use the ETag of its answer",
    )
