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

import structlog

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_planner.cost.statistics import Statistics
from anabranch_planner.normal.implication import weaker
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.request import Registered, read_queries
from anabranch_service.planning.work import Work
from anabranch_service.registry.records import PlanningRecord, QueryRecord
from anabranch_service.registry.statements import NormalForms, Statement, usable_streams

_LOG = structlog.get_logger(__name__)

#: Beside more queries than these a new one has stores of its own: both ways would have to be
#: planned whenever one is registered.
MOST_QUERIES = 100
#: Seconds that either plan may take.
DEADLINE = 1.0
#: The part of the cost that must be saved.
WORTH = 1e-6


async def share_filters(
    query: JoinQuery,
    statement: Statement,
    found: Registered,
    forms: NormalForms,
    work: Work,
    deadline: Deadline,
    *,
    most_aliases: int,
) -> tuple[JoinQuery, Mapping[str, Sequence[Expr]]]:
    """The cheaper form of a new query, and alias -> the filter of the store that it shares.

    Args:
        query: with stores of its own.
        deadline: for reading the other queries.
        most_aliases: queries with more are not compared with.

    Raises:
        Busy: ``registration-too-slow``.
    """
    own: tuple[JoinQuery, Mapping[str, Sequence[Expr]]] = query, {}
    if statement.sql is None or query.outer is not None or len(found.wanted) > MOST_QUERIES:
        return own
    # One of an earlier release, or of other settings, may have more aliases: planning it takes as
    # long as it takes, once per epoch and not whenever another query is registered.
    small = [q for q in found.wanted if len(q.normalised.aliases) <= most_aliases]
    streams = usable_streams(found.streams.values())
    others, relaxed = await work.read(_weaker, query, small, streams, forms, deadline)
    if not relaxed:
        return own
    try:
        shared = await work.read(statement.normalise, query.id, streams, relaxed)
        cost, shared_cost = await asyncio.gather(
            *(
                work.read(_cost, [*others, one], found.statistics, found.options)
                for one in (query, shared)
            )
        )
    except PlannerError as cause:
        _LOG.warning("filters are not shared", query=query.id, error=repr(cause))
        return own
    return (shared, relaxed) if shared_cost < cost * (1 - WORTH) else own


def _weaker(
    query: JoinQuery,
    records: Sequence[QueryRecord],
    streams: Mapping[str, Stream],
    forms: NormalForms,
    deadline: Deadline,
) -> tuple[tuple[JoinQuery, ...], dict[str, tuple[Expr, ...]]]:
    """The queries of ``records``, and alias -> the weaker filter that one of them has."""
    others, _ = read_queries(records, streams, forms, deadline)
    stores = {r.id: r for other in others for r in other.relations}
    return others, {alias: r.filter for alias, r in weaker(query, stores.values()).items()}


def _cost(queries: Sequence[JoinQuery], statistics: Statistics, options: PlanningRecord) -> float:
    return optimise(
        queries,
        statistics,
        Options(
            optimizer=options.optimizer,
            objective=options.objective,
            parallelism=options.parallelism,
            deadline=Deadline(time.monotonic, seconds=DEADLINE),
        ),
    ).cost
