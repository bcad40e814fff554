"""Dry runs: the plan of what is registered, with some queries added and some dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Formulation
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_planner.cost.statistics import NoStatistics, Statistics
from anabranch_planner.cost.uncertainty import cost_range
from anabranch_planner.explain.explain import explain_text
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.sql.dialects import to_spark
from anabranch_service.durations import read_duration
from anabranch_service.errors import InvalidInput, NotFound
from anabranch_service.planning.assumptions import Names, assume
from anabranch_service.planning.epoch import Planned, StatedStatistics
from anabranch_service.planning.options import changed, default_planning
from anabranch_service.planning.request import PlanningRequest, answer_request, read_queries
from anabranch_service.planning.what_if import FULL, SUMMARY, read_running
from anabranch_service.planning.work import Work, go_on
from anabranch_service.registry.lifecycle import is_wanted
from anabranch_service.registry.normalise import parse, usable_streams
from anabranch_service.registry.records import StreamRecord
from anabranch_service.registry.sizes import check_query
from anabranch_service.registry.store import Store
from anabranch_service.settings import Settings
from anabranch_service.wire.plans import CostRangeOut, DryRunIn, DryRunOut
from anabranch_service.wire.queries import ProblemOut
from anabranch_service.wire.streams import RetentionIn


async def plan_dry_run(
    body: DryRunIn, store: Store, work: Work, settings: Settings, now: datetime
) -> DryRunOut:
    """Plan what is registered with some queries added and some dropped. Stores nothing."""
    current = await store.planning() or default_planning(settings)
    options = changed(current, body)
    if body.formulation is Formulation.PAPER:
        # It knows neither limits nor the running plan.
        unlimited = {"switching": 0.0, "memory": None, "copies": None}
        options = options.model_copy(update=unlimited)
    registered = await store.queries()
    known = {q.id for q in registered}
    for name in body.drop:
        if name not in known:
            raise NotFound(
                "unknown-query",
                f"there is no query {name!r} to drop",
                field="drop",
                remedy="GET /v1/queries lists them",
            )
    known_streams = await store.streams()
    streams = usable_streams(_assumed(known_streams, body.retention))
    activations, dropped = await store.activations(), set(body.drop)
    kept = [
        q for q in registered if is_wanted(q, activations.get(q.id), now) and q.id not in dropped
    ]
    # What is registered was understood once; only what is new has a limit.
    queries, rejected = await work.call(read_queries, kept, streams)
    async with work.limited() as deadline:
        taken = {q.id for q in kept}
        queries += tuple(await work.call(_added, body, taken, streams, settings, deadline))
    snapshot = await store.last_snapshot()
    names = Names(queries)
    for name in body.widths:
        names.require(name, f"widths.{name}")
    stated = _stated(NoStatistics() if snapshot is None else snapshot, body, names)
    assumed = assume(stated, names, body.distinct, body.selectivity, body.statistics)
    limit = settings.solve_seconds
    published = await store.published()
    latest = await store.epoch(published[-1]) if published else None
    request = PlanningRequest(
        queries=queries,
        streams=streams,
        statistics=assumed,
        statistics_epoch=None if snapshot is None else snapshot.epoch,
        samples=await store.samples(),
        options=options,
        seconds=limit if body.deadline is None else min(body.deadline, limit),
        running=read_running(latest, registered, usable_streams(known_streams)),
        rejected=rejected,
        formulation=body.formulation,
        widths=body.widths,
        limits=SUMMARY if body.detail == "summary" else FULL,
    )
    answer = await asyncio.to_thread(answer_request, request)
    planned = answer.planned
    spread = await asyncio.to_thread(
        cost_range,
        planned.plan,
        planned.queries,
        answer.task.statistics,
        parallelism=options.parallelism,
    )
    whole = body.detail == "full"
    return DryRunOut(
        **answer.figures(),
        cost_range=CostRangeOut(low=spread.low, high=spread.high),
        rejected={
            name: ProblemOut(**problem.model_dump()) for name, problem in answer.rejected.items()
        },
        explain=planned.explain if whole else {"totals": planned.explain["totals"]},
        text=explain_text(planned.plan, planned.queries) if whole else _headline(planned),
        formulation=request.formulation,
        switching=options.switching,
        memory=options.memory,
        copies=options.copies,
        solver=options.solver,
        deadline=request.seconds,
        detail=body.detail,
    )


def _headline(planned: Planned) -> str:
    """One line in place of the plan's text."""
    plan, totals = planned.plan, planned.explain["totals"]
    return (
        f"{plan.optimizer} ({plan.objective} objective): cost {plan.cost:.10g}, "
        f"gap {plan.gap:.2%}, by {plan.method}; {totals['steps']} steps, "
        f"{totals['shared_steps']} of them shared; {totals['stores']} stores\n"
    )


def _added(
    body: DryRunIn,
    taken: set[str],
    streams: Mapping[str, Stream],
    settings: Settings,
    deadline: Deadline,
) -> list[JoinQuery]:
    queries: list[JoinQuery] = []
    for index, document in enumerate(body.add):
        go_on(deadline)
        name = document.id or f"dry-run-{index}"
        if name in taken:
            raise InvalidInput(
                "duplicate-query",
                f"query {name!r} is there already",
                field=f"add.{index}.id",
                remedy="choose another id, or drop the registered one",
            )
        taken = taken | {name}
        try:
            sql = None if document.sql is None else to_spark(document.sql, document.dialect)
            check_query(sql, document.query, settings)
            parsed = parse(
                name,
                streams,
                sql=sql,
                query=document.query,
                window=document.window,
                dialect=document.dialect,
            )
            queries.extend(parsed.planned)
        except (PlannerError, InvalidInput) as cause:
            raise InvalidInput(
                cause.code,
                cause.message,
                field=f"add.{index}.{cause.field or 'sql'}",
                remedy=cause.remedy,
                position=cause.position,
            ) from None
    return queries


def _assumed(
    streams: Mapping[str, StreamRecord], retention: Mapping[str, RetentionIn | None]
) -> dict[str, StreamRecord]:
    """The streams with the retention that is to be assumed."""
    found = dict(streams)
    for name, one in retention.items():
        if name not in streams:
            raise InvalidInput(
                "unknown-stream",
                f"there is no stream {name!r}",
                field=f"retention.{name}",
                remedy="GET /v1/streams lists them",
            )
        text = None if one is None else one.ttl
        ttl = None if text is None else read_duration(text, f"retention.{name}.ttl")
        latest = () if one is None else tuple(one.latest or ())
        found[name] = streams[name].model_copy(update={"ttl": ttl, "latest": latest})
        try:
            found[name].to_stream()
        except PlannerError as cause:
            part = (cause.field or "retention").rpartition(".")[2]
            raise InvalidInput(
                cause.code, cause.message, field=f"retention.{name}.{part}", remedy=cause.remedy
            ) from None
    return found


def _stated(base: Statistics, body: DryRunIn, names: Names) -> Statistics:
    if not body.statistics:
        return base
    for name in body.statistics:
        names.require(name, f"statistics.{name}")
    return StatedStatistics(base, body.statistics, names.stream_of)
