"""``/v1/queries:explain``: the join plan and the estimated cost of a statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.planning.plans import (
    Detail,
    DryRunOut,
    ExplainIn,
    ExplainOut,
    LogicalPlanOut,
    MultiJoinOut,
)
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_planner.logical.nodes import Node, to_document, to_dot, to_text
from anabranch_planner.logical.tsc import multi_joins
from anabranch_planner.passes import convert_query, parse_joins
from anabranch_planner.sql.mistakes.further import read_whole
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.planning.epoch import plan_epoch, plan_jointly, problem_of
from anabranch_service.planning.request import plan_task, read_registered
from anabranch_service.planning.task import FULL, SUMMARY, PlanTask
from anabranch_service.planning.what_if.dry_run import dry_run_out
from anabranch_service.planning.what_if.explanation import explained
from anabranch_service.presenters.missed import PartNow, missed_rows
from anabranch_service.registry.derived import Queries, Reading, with_queries
from anabranch_service.registry.describe import describe
from anabranch_service.registry.sizes import read_checked
from anabranch_service.registry.statements import usable_streams
from anabranch_service.routes.queries.registration import default_past
from anabranch_service.settings import ServiceSettings

router = guarded_router("/v1", tag="queries")

#: Time limit in seconds of all plan searches for one explanation, for which a user waits.
SECONDS = 0.24
#: Codes of errors in statements that can't be explained even as plain SQL.
_MISTAKES = frozenset({
    "ambiguous-column", "malformed-sql", "unknown-alias", "unknown-column", "unknown-stream",
})  # fmt: skip
#: Temporary id of the query during planning.
_NAME = "explained"


@router.post("/queries:explain")
@needs(Need.PLAN)
async def explain(body: ExplainIn, ctx: Ctx) -> ExplainOut:
    """Explain a statement: its plans with binary and with multi-way joins and, if it can run
    continuously, its probe orders and stores in a joint plan with the registered queries. Stores
    nothing."""
    snapshot = await ctx.store.last_snapshot()
    found = await read_registered(ctx.store, ctx.settings, ctx.clock(), snapshot)
    taken = {q.id for q in found.queries}
    names = (_NAME, *(f"{_NAME}-{number}" for number in range(2, len(taken) + 3)))
    name = next(name for name in names if name not in taken)
    async with ctx.work.limited():
        queries = await ctx.store.known_queries(ctx.clock(), ctx.settings.mode)
        answer, query, reading = await ctx.work.read(
            _understand, name, body, usable_streams(found.streams.values()), ctx.settings, queries
        )
    if query is None or answer.normalised is None:
        return answer
    progress = await ctx.store.progress()
    missed = missed_rows(answer.normalised, None, progress, _parts(query, reading))
    # One plan search if no other query is registered; else three: joint, standalone, without it.
    seconds = min(SECONDS / (3 if found.wanted else 1), ctx.settings.planning.solve_seconds)
    task = await ctx.work.read(plan_task, found, ctx.store.forms, seconds)
    task = replace(task, streams={**task.streams, **reading.all_streams})
    added_queries = [one for part in reading.parts for one in part.query.planned]
    new = [*added_queries, *query.planned]
    planned = await ctx.work.plan(_plan_beside, task, new, name, body.detail)
    return answer.model_copy(update={**planned, "missed": missed})


def _parts(query: JoinQuery, reading: Reading) -> list[PartNow]:
    """Return the parts of a statement that is not registered, with their default of ``past``."""
    begins = default_past(query, reading.streams) == "none"
    return [
        PartNow(
            part.name,
            part.meaning,
            begins or default_past(part.query, part.reading.streams, part=True) == "stored",
        )
        for part in reading.parts
    ]


def _plan_beside(
    task: PlanTask, new: Sequence[JoinQuery], name: str, detail: Detail
) -> dict[str, Any]:
    """Plan the task's queries and the ``new`` ones of query ``name`` jointly; returns fields of the
    answer."""
    queries, limits = (*task.queries, *new), FULL if detail == "full" else SUMMARY
    planned = explained(plan_epoch(replace(task, queries=queries, limits=limits)))
    without = plan_jointly(task.queries, planned.task).plan.cost
    shown = planned.shown()
    out = dry_run_out(planned, shown, detail)
    return {**_own(shown, out, name), "added_cost": planned.plan.cost - without}


def _understand(
    name: str,
    body: ExplainIn,
    streams: Mapping[str, Stream],
    settings: ServiceSettings,
    queries: Queries,
) -> tuple[ExplainOut, JoinQuery | None, Reading]:
    """Parse and convert a statement; returns the answer without the plan, its normal form if it
    can run continuously, and the statement with the queries that it reads."""

    def read(sql: str | None) -> tuple[ExplainOut, JoinQuery | None, Reading]:
        given = body if sql == body.sql else body.model_copy(update={"sql": sql})
        return _understand_once(name, given, streams, settings, queries)

    return read_whole(body.sql, read)


def _understand_once(
    name: str,
    body: ExplainIn,
    streams: Mapping[str, Stream],
    settings: ServiceSettings,
    queries: Queries,
) -> tuple[ExplainOut, JoinQuery | None, Reading]:
    """Do the same as :func:`_understand`, and raise only the first error."""
    statement = read_checked(
        settings, body.sql, None, body.window, body.dialect, streams, parameters=body.parameters
    )
    reading = with_queries(statement, streams, queries, name)
    statement, streams = reading.statement, reading.streams
    meaning = refused = None
    try:
        meaning = joins = statement.normalise(name, streams)
    except PlannerError as cause:
        refused = cause
        mistaken = cause.code in _MISTAKES or cause.field.startswith("window")
        if mistaken or statement.parsed is None:
            raise
        try:
            joins = parse_joins(statement.tree(), streams)
        except PlannerError:
            raise refused from None
    before, after = convert_query(joins, streams)
    answer = ExplainOut(
        sql=statement.sql,
        before=_plan_out(before),
        after=_plan_out(after),
        multijoins=_multi_joins(after),
        refused=None if refused is None else _problem_out(refused),
        normalised=None if meaning is None else describe(meaning, streams),
        orders=[],
        stores=[],
        shared_with=[],
        added_cost=None,
        plan=None,
    )
    return answer, meaning, reading


def _problem_out(refused: PlannerError) -> ProblemRecord:
    line, column = refused.position or (None, None)
    return problem_of(refused).model_copy(update={"line": line, "column": column})


def _plan_out(root: Node) -> LogicalPlanOut:
    return LogicalPlanOut(text=to_text(root), data=to_document(root), dot=to_dot(root))


def _multi_joins(root: Node) -> list[MultiJoinOut]:
    return [
        MultiJoinOut(
            inputs=[node.name for node in join.inputs],
            predicates=[c.text for c in join.predicates],
            residual=[c.text for c in join.residual],
            replaces=join.replaces,
        )
        for join in multi_joins(root)
    ]


def _own(document: Mapping[str, Any], planned: DryRunOut, name: str) -> dict[str, Any]:
    """Return the answer's probe orders of a query with their steps, the stores that it probes, and
    the other queries that use these stores."""
    steps = {step["id"]: step for step in document["steps"]}
    orders = [
        {**order, "steps": [steps[number] for number in order["steps"]]}
        for query in document["queries"]
        if registered(query["id"]) == name
        for order in query["orders"]
    ]
    probed = {step["store"] for order in orders for step in order["steps"]}
    stores = [s for s in document["stores"] if s["label"] in probed]
    users = {registered(user) for store in stores for user in store["used_by"]}
    return {
        "orders": orders,
        "stores": stores,
        "shared_with": sorted((users & set(planned.queries)) - {name}),
        "plan": planned,
        "table": None if planned.tables is None else planned.tables.of_query(name),
    }
