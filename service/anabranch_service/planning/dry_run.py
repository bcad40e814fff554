"""Dry runs: the plan of what is registered, with some queries added and some dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Formulation
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.rest.plans import CostRangeOut, Detail, DryRunIn, DryRunOut
from anabranch_contract.rest.streams import RetentionIn
from anabranch_planner.cost.uncertainty import cost_range
from anabranch_planner.explain.explain import explain_text
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.durations import read_duration
from anabranch_service.errors import InvalidInput, NotFound
from anabranch_service.planning.assumptions import Names, assume
from anabranch_service.planning.epoch import Planned
from anabranch_service.planning.options import changed
from anabranch_service.planning.request import (
    PlanningAnswer,
    answer_request,
    plan_request,
    read_queries,
    read_registered,
)
from anabranch_service.planning.what_if import FULL, SUMMARY
from anabranch_service.planning.work import Work, go_on
from anabranch_service.registry.records import StreamRecord
from anabranch_service.registry.sizes import read_checked
from anabranch_service.registry.slo import check_slo
from anabranch_service.registry.statements import NormalForms, usable_streams
from anabranch_service.registry.store import Store
from anabranch_service.settings import Settings


async def plan_dry_run(
    body: DryRunIn, store: Store, work: Work, settings: Settings, now: datetime
) -> DryRunOut:
    """Plan what is registered with some queries added and some dropped. Stores nothing."""
    found = await read_registered(store, settings, now, await store.last_snapshot())
    known = {q.id for q in found.queries}
    for name in body.drop:
        if name not in known:
            raise NotFound(
                "unknown-query",
                f"there is no query {name!r} to drop",
                field="drop",
                remedy="GET /v1/queries lists them",
            )
    options = changed(found.options, body)
    if body.formulation is Formulation.PAPER:
        # It knows neither limits nor the running plan.
        unlimited = {"switching": 0.0, "memory": None, "copies": None}
        options = options.model_copy(update=unlimited)
    limit = settings.solve_seconds
    wanted = [q for q in found.wanted if q.id not in body.drop]
    found = replace(found, wanted=wanted, options=options)
    streams = _assumed(found.streams, body.retention)
    # Registered queries have passed the limits; only new ones have a deadline.
    request = await work.read(plan_request, found, store.forms, limit)
    task = request.task
    if body.retention:
        task = replace(task, streams=streams)
        queries, rejected = await work.read(read_queries, wanted, streams, NormalForms())
        request = replace(request, queries=queries, rejected=rejected)
    async with work.limited() as deadline:
        taken = {q.id for q in wanted}
        new = await work.read(_added, body, taken, task.streams, settings, deadline)
    queries = (*request.queries, *new)
    names = Names(queries)
    for name in body.widths:
        names.require(name, f"widths.{name}")
    task = replace(
        task,
        statistics=assume(task.statistics, names, body.statistics, body.distinct, body.selectivity),
        seconds=limit if body.deadline is None else min(body.deadline, limit),
        formulation=body.formulation,
        widths=body.widths,
    )
    limits = SUMMARY if body.detail == "summary" else FULL
    request = replace(request, queries=queries, task=task, limits=limits)
    return await work.plan(lambda: dry_run_out(answer_request(request), body.detail))


def dry_run_out(answer: PlanningAnswer, detail: Detail) -> DryRunOut:
    """The answer to a dry run."""
    task, planned, whole = answer.task, answer.planned, detail == "full"
    options = task.options
    spread = cost_range(
        planned.plan, planned.queries, task.statistics, parallelism=options.parallelism
    )
    return DryRunOut.of(
        options,
        **answer.figures(),
        cost_range=CostRangeOut(low=spread.low, high=spread.high),
        rejected=answer.rejected,
        explain=planned.explain if whole else {"totals": planned.explain["totals"]},
        text=explain_text(planned.plan, planned.queries) if whole else _headline(planned),
        formulation=task.formulation,
        deadline=task.seconds,
        detail=detail,
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
    for index, given in enumerate(body.add):
        go_on(deadline)
        name = given.id or f"dry-run-{index}"
        if name in taken:
            raise InvalidInput(
                "duplicate-query",
                f"query {name!r} is there already",
                field=f"add.{index}.id",
                remedy="choose another id, or drop the registered one",
            )
        taken = taken | {name}
        try:
            statement = read_checked(settings, given.sql, given.query, given.window, given.dialect)
            query = statement.normalise(name, streams)
            check_slo(given.slo, query, streams)
            queries.extend(query.planned)
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
) -> dict[str, Stream]:
    """The usable streams with the retention that is to be assumed."""
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
    return usable_streams(found.values())
