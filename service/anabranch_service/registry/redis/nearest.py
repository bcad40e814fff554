"""Names that an unknown name of a query or stream probably stands for."""

from __future__ import annotations

from contextlib import suppress

from redis.exceptions import RedisError

from anabranch_contract.queries.runs import query_of
from anabranch_planner.sql.scope import closest
from anabranch_service.errors import Unknown, unknown
from anabranch_service.registry.derived import is_query
from anabranch_service.registry.store import Store

#: Greatest number of names that are compared: it takes time in proportion, for each request.
_COMPARED = 2_000


async def with_meant(store: Store, error: Unknown) -> Unknown:
    """Return the error with the name that was probably meant, or with the kind of object that has
    the name."""
    if error.kind not in ("query", "stream"):
        return error
    with suppress(RedisError):
        queries = {query_of(record.id) for record in await store.queries()}
        streams = {n for n, record in (await store.streams()).items() if not is_query(record)}
        same, others = (queries, streams) if error.kind == "query" else (streams, queries)
        near = closest(error.name, same) if len(same) <= _COMPARED else None
        if near is not None:
            return unknown(error.kind, error.name, f"did you mean {near!r}? ")
        if error.name in others:
            other = "stream, and tables are of queries" if error.kind == "query" else "query"
            return unknown(error.kind, error.name, f"it is the name of a {other}; ")
    return error
