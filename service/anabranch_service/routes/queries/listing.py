"""``GET /v1/queries``: paged and filtered lists of queries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated

from fastapi import Query

from anabranch_contract.protocol.activations import of_union
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.planning.plans import Detail
from anabranch_contract.rest.queries import QueryList, QueryOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.parameters import Limit, QueryCursor
from anabranch_service.presenters.missed import parts_now
from anabranch_service.presenters.records import brief, floors_of, query_out
from anabranch_service.registry.lifecycle import Status, status_of
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.search import ListedQuery, Sought

router = guarded_router("/v1/queries", tag="queries")

#: Maximum number of streams and of tags in one request: as many tags as a query can have.
_MOST = 32


@router.get("")
@needs(Need.READ)
async def list_queries(
    ctx: Ctx,
    limit: Limit = 100,
    cursor: QueryCursor = None,
    find: Annotated[
        str,
        Query(
            max_length=200,
            description="Only queries with this text in name, title, owner, tag or statement.",
        ),
    ] = "",
    stream: Annotated[
        list[str] | None,
        Query(max_length=_MOST, description="Only queries that read all of these streams."),
    ] = None,
    status: Annotated[
        list[Status] | None,
        Query(max_length=len(Status), description="Only queries in any of these states."),
    ] = None,
    owner: Annotated[
        str | None, Query(max_length=200, description="Only queries of this owner.")
    ] = None,
    parts: Annotated[
        bool, Query(description="Include subqueries that run as separate queries.")
    ] = False,
    tag: Annotated[
        list[str] | None,
        Query(max_length=_MOST, description="Only queries with all of these tags."),
    ] = None,
    detail: Annotated[
        Detail,
        Query(description="`summary` leaves out statements, and most of their normal forms."),
    ] = "full",
) -> QueryList:
    """Queries, each by its newest run, in order of registration."""
    store, now = ctx.store, ctx.clock()
    activations, progress = await store.activations(), await store.progress()
    sources, approvals = await store.sources(), await store.approvals()
    floors = floors_of(progress, await store.rations())
    queries = await store.known_queries(now, ctx.settings.mode)
    parts_of = parts_now(queries.records, queries.activations)
    sought = Sought(find.strip(), owner, frozenset(stream or ()), frozenset(tag or ()))

    def in_state(record: QueryRecord) -> bool:
        return not status or status_of(record, activations.get(record.id), progress, now) in status

    def item(record: QueryRecord) -> QueryOut:
        activation = of_union(activations, record.id, len(record.normalised.branches))
        left = activations.get(record.id + LEFT_SUFFIX)
        read_by = queries.readers(query_of(record.id))
        return query_out(
            record,
            activation,
            progress,
            sources,
            now,
            floors,
            left,
            approvals,
            read_by,
            queries.ended_below(record),
            parts_of.get(record.id, ()),
        )

    found = sought.among(_after(await store.newest_queries(), cursor))
    fitting = (
        one.record for one in found if in_state(one.record) and (parts or not one.record.part_of)
    )
    # The generator stops at the end of the page.
    page = list(islice(fitting, limit + 1))
    more = len(page) > limit
    del page[limit:]
    return QueryList(
        items=[brief(item(record)) if detail == "summary" else item(record) for record in page],
        next_cursor=str(page[-1].sequence) if more else None,
    )


def _after(queries: Sequence[ListedQuery], cursor: str | None) -> Iterator[ListedQuery]:
    """Return the queries registered after the query ``cursor``, in order of registration."""
    if cursor is None:
        return iter(queries)
    return islice(queries, bisect_right(queries, int(cursor), key=_sequence), None)


def _sequence(one: ListedQuery) -> int:
    return one.record.sequence
