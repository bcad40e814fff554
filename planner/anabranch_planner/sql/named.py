"""Names of registered queries in FROM, and the queries themselves in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch_planner.sql.unresolved import FromEntry, Unresolved


def names_read(query: Unresolved) -> tuple[str, ...]:
    """Return the names of streams and registered queries in FROM, also of subqueries, each once."""
    found: dict[str, None] = {}
    for entry in _entries(query):
        names = (entry.of,) if isinstance(entry.of, str) else names_read(entry.of)
        found |= dict.fromkeys(names)
    return tuple(found)


def with_inlined(query: Unresolved, queries: Mapping[str, Unresolved]) -> Unresolved:
    """Return ``query`` with ``queries`` as subqueries in place of their names."""
    if not queries:
        return query

    def inlined(entry: FromEntry) -> FromEntry:
        if not isinstance(entry.of, str):
            return replace(entry, of=with_inlined(entry.of, queries))
        found = queries.get(entry.of)
        return entry if found is None else replace(entry, of=found, alias=entry.alias or entry.of)

    return replace(
        query,
        sources=tuple(inlined(entry) for entry in query.sources),
        outer=tuple(replace(side, source=inlined(side.source)) for side in query.outer),
    )


def _entries(query: Unresolved) -> tuple[FromEntry, ...]:
    return (*query.sources, *(side.source for side in query.outer))
