"""``/v1/queries:explain``: what a statement's joins become, and what the query would cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX
from anabranch_planner.logical.nodes import Node
from anabranch_planner.logical.render import name_of, to_document, to_dot, to_text
from anabranch_planner.logical.statements import Catalog
from anabranch_planner.logical.translate import translate
from anabranch_planner.logical.tsc import convert, multi_joins
from anabranch_planner.sql.dialects import to_spark
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.planning.dry_run import plan_dry_run
from anabranch_service.planning.epoch import problem_of
from anabranch_service.registry.normalise import describe, parse, usable_streams
from anabranch_service.registry.sizes import check_query
from anabranch_service.settings import Settings
from anabranch_service.wire.plans import (
    DryRunIn,
    DryRunOut,
    ExplainIn,
    ExplainOut,
    LogicalPlanOut,
    MultiJoinOut,
)
from anabranch_service.wire.queries import ProblemOut, QueryIn

router = guarded_router("/v1", tag="queries")

#: What the query is called while it is planned.
_NAME = "explained"


@router.post("/queries:explain")
@needs(Need.PLAN)
async def explain(body: ExplainIn, ctx: Ctx) -> ExplainOut:
    """The plan of a statement with binary joins and with multi-way joins; and if it can run
    continuously, its stores and probe orders beside what is registered. Stores nothing.
    """
    async with ctx.work.limited():
        streams = usable_streams(await ctx.store.streams())
        found, meant = await ctx.work.call(_understand, body, streams, ctx.settings)
    if not meant:
        return found
    query = QueryIn(id=await _free_name(ctx), sql=found.sql, window=body.window)
    parts = ctx.store, ctx.work, ctx.settings, ctx.clock()
    without = await plan_dry_run(DryRunIn(detail="summary"), *parts)
    planned = await plan_dry_run(DryRunIn(add=[query]), *parts)
    return found.model_copy(
        update={**_own(planned, str(query.id)), "added_cost": planned.cost - without.cost}
    )


def _understand(
    body: ExplainIn, streams: Mapping[str, Stream], settings: Settings
) -> tuple[ExplainOut, bool]:
    """The answer but for the plan, and whether the query can run continuously."""
    sql = to_spark(body.sql, body.dialect)
    check_query(sql, None, settings)
    meaning, refused = None, None
    try:
        meaning = parse(
            _NAME, streams, sql=sql, query=None, window=body.window, dialect=body.dialect
        )
    except PlannerError as cause:
        refused = cause
        if cause.code == "malformed-sql" or cause.field.startswith("window"):
            raise
    before = None
    try:
        before = translate(body.sql, catalog_of(streams), body.dialect)
    except PlannerError:
        # What can be run but not be converted is explained as far as it goes.
        if refused is not None:
            raise refused from None
    after = None if before is None else convert(before)
    answer = ExplainOut(
        sql=sql,
        before=_plan_out(before),
        after=_plan_out(after),
        multijoins=[] if after is None else _joins(after),
        refused=None if refused is None else ProblemOut(**problem_of(refused).model_dump()),
        normalised=None if meaning is None else describe(meaning, streams),
        orders=[],
        stores=[],
        shared_with=[],
        added_cost=None,
        plan=None,
    )
    return answer, meaning is not None


def catalog_of(streams: Mapping[str, Stream]) -> Catalog:
    """The registered streams as tables."""
    return {name: {c: str(kind) for c, kind in s.columns} for name, s in streams.items()}


async def _free_name(ctx: Ctx) -> str:
    taken = {query.id for query in await ctx.store.queries()}
    name, number = _NAME, 1
    while name in taken:
        number += 1
        name = f"{_NAME}-{number}"
    return name


def _plan_out(root: Node | None) -> LogicalPlanOut | None:
    if root is None:
        return None
    return LogicalPlanOut(text=to_text(root), data=to_document(root), dot=to_dot(root))


def _joins(root: Node) -> list[MultiJoinOut]:
    return [
        MultiJoinOut(
            inputs=[name_of(node) for node in join.inputs],
            predicates=[c.text for c in join.predicates],
            residual=[c.text for c in join.residual],
        )
        for join in multi_joins(root)
    ]


def _own(planned: DryRunOut, name: str) -> dict[str, Any]:
    """What of a plan is the query's: its orders, the stores that these ask, who else uses them."""
    document: Any = planned.explain
    parts = {name, name + LEFT_SUFFIX}
    orders = [order for q in document["queries"] if q["id"] in parts for order in q["orders"]]
    asked = {step["store"] for order in orders for step in order["steps"]}
    stores = [s for s in document["stores"] if s["label"] in asked]
    users = {user for store in stores for user in store["used_by"]}
    return {
        "orders": orders,
        "stores": stores,
        "shared_with": sorted((users & set(planned.queries)) - parts),
        "plan": planned,
    }
