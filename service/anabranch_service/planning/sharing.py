"""Whether a new query shares the stores of queries whose filters it implies, or has its own.

A query over ``a WHERE v > 5`` beside one over ``a WHERE v > 3`` can have a store of its own, with
fewer rows, or use the other's and check ``v > 5`` after joining: then all steps that the two have
in common are done once. Both are planned, together with everything that is registered, and the
cheaper one is taken. It stays: a running query does not change between stores, since what each has
of the past differs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_planner.cost.statistics import NoStatistics, Statistics
from anabranch_planner.normal.implication import weaker
from anabranch_planner.normal.parse import parse_sql
from anabranch_planner.plans.optimise import optimise
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.work import Work, go_on
from anabranch_service.registry.lifecycle import is_wanted
from anabranch_service.registry.normalise import parse_record
from anabranch_service.registry.records import PlanningRecord, QueryRecord
from anabranch_service.registry.store import Store

_LOG = structlog.get_logger(__name__)

#: Beside more queries than these a new one has stores of its own: both ways would have to be
#: planned whenever one is registered.
MOST_QUERIES = 100
#: Seconds that either plan may take.
DEADLINE = 1.0
#: The part of the cost that must be saved.
WORTH = 1e-6


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A query that is about to be registered.

    Attributes:
        query: what it means.
        sql: its text; None: it came as a document.
        window: of its relations, or of each.
    """

    query: JoinQuery
    sql: str | None
    window: int | Mapping[str, int] | None


async def shared_filters(
    newcomer: Newcomer,
    store: Store,
    work: Work,
    streams: Mapping[str, Stream],
    options: PlanningRecord,
    deadline: Deadline,
    *,
    now: datetime,
    most_aliases: int,
) -> Mapping[str, tuple[Expr, ...]]:
    """Alias -> the filter that the query's relation had better have; none: its own are best.

    Args:
        deadline: how long all of it may take.
        most_aliases: queries with more are not compared with.

    Raises:
        Busy: ``registration-too-slow``.
    """
    query, sql = newcomer.query, newcomer.sql
    if sql is None or query.outer is not None:
        return {}
    activations = await store.activations()
    wanted = [q for q in await store.queries() if is_wanted(q, activations.get(q.id), now)]
    if len(wanted) > MOST_QUERIES:
        return {}
    # One of an earlier release, or of other settings, may have more aliases: planning it takes as
    # long as it takes, once per epoch and not whenever another query is registered.
    small = [record for record in wanted if len(record.normalised.aliases) <= most_aliases]
    others, relaxed = await work.call(_weaker, query, small, streams, deadline)
    if not relaxed:
        return {}
    snapshot = await store.last_snapshot()
    statistics: Statistics = NoStatistics() if snapshot is None else snapshot
    try:
        alternative = await work.call(parse_sql, query.id, sql, streams, newcomer.window, relaxed)
        own, shared = await asyncio.gather(
            asyncio.to_thread(_cost, [*others, query], statistics, options),
            asyncio.to_thread(_cost, [*others, alternative], statistics, options),
        )
    except PlannerError as cause:
        _LOG.warning("filters are not shared", query=query.id, error=repr(cause))
        return {}
    return relaxed if shared < own * (1 - WORTH) else {}


def _weaker(
    query: JoinQuery,
    records: Sequence[QueryRecord],
    streams: Mapping[str, Stream],
    deadline: Deadline,
) -> tuple[list[JoinQuery], dict[str, tuple[Expr, ...]]]:
    """The queries of ``records``, and alias -> the weaker filter that one of them has."""
    others: list[JoinQuery] = []
    for record in records:
        go_on(deadline)
        try:
            others.extend(parse_record(record, streams).planned)
        except PlannerError as cause:
            _LOG.warning("query can't be read", query=record.id, error=repr(cause))
    relations = {r.id: r for other in others for r in other.relations}
    found = weaker(query, relations.values())
    return others, {alias: relation.filter for alias, relation in found.items()}


def _cost(queries: Sequence[JoinQuery], statistics: Statistics, options: PlanningRecord) -> float:
    return optimise(
        queries,
        statistics,
        optimizer=options.optimizer,
        objective=options.objective,
        parallelism=options.parallelism,
        deadline=Deadline(time.monotonic, seconds=DEADLINE),
    ).cost
