"""Queries in FROM by name, and subqueries that are to be queries of their own.

A registered query without a post-join part stands as a subquery in place of its name. Conversely a
subquery with a post-join part is a *part* of the statement: a query of its own, whose name stands
in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anabranch_planner.sql.clauses.set_operations import as_table
from anabranch_planner.sql.unresolved import FromEntry, Unresolved


def names_read(query: Unresolved) -> tuple[str, ...]:
    """Return the names of streams and registered queries in FROM, also of subqueries, each once."""
    found: dict[str, None] = {}
    for entry in query.entries:
        names = (entry.of,) if isinstance(entry.of, str) else names_read(entry.of)
        found |= dict.fromkeys(names)
    for inner in query.subqueries.values():
        found |= dict.fromkeys(names_read(inner))
    return tuple(found)


def with_inlined(query: Unresolved, queries: Mapping[str, Unresolved]) -> Unresolved:
    """Return ``query`` with ``queries`` as subqueries in place of their names."""
    if not queries:
        return query
    # A query of WITH that is read several times stays one object, hence one part.
    known: dict[int, Unresolved] = {}

    def inlined(entry: FromEntry) -> FromEntry:
        inner = entry.of
        if isinstance(inner, str):
            found = queries.get(inner)
            return entry if found is None else replace(entry, of=found, alias=entry.alias or inner)
        if id(inner) not in known:
            known[id(inner)] = everywhere(inner)
        return replace(entry, of=known[id(inner)])

    def everywhere(one: Unresolved) -> Unresolved:
        inner = {number: everywhere(found) for number, found in one.subqueries.items()}
        return replace(_with_entries(one, inlined), subqueries=inner)

    return everywhere(query)


def in_parts(query: Unresolved, name: Callable[[int], str]) -> tuple[Unresolved, ...]:
    """Return the parts of ``query``, each before its readers, and last the query itself, with the
    names of parts in their places. A query of WITH is one part, however often it is read.

    Args:
        name: number of a part, from 1 -> its name.

    >>> from anabranch_planner.sql.syntax import parse_statement
    >>> sql = "SELECT max(n) AS m FROM (SELECT k, count(*) AS n FROM r GROUP BY k) x"
    >>> [names_read(part) for part in in_parts(parse_statement(sql), "q.{}".format)]
    [('r',), ('q.1',)]
    """
    parts: list[Unresolved] = []
    known: dict[int, tuple[Unresolved, str]] = {}
    unions: dict[int, tuple[Unresolved, Unresolved]] = {}

    def tabled(entry: FromEntry) -> FromEntry:
        """``entry`` of a FROM with an outer join; its UNION ALL becomes a part, not branches."""
        inner = entry.of
        if isinstance(inner, str) or inner.nested is not None or not inner.has_union:
            return entry
        found = unions.setdefault(id(inner), (inner, as_table(inner, entry.node)))
        return replace(entry, of=found[1])

    def inside(one: Unresolved) -> Unresolved:
        return _with_entries(_with_entries(one, tabled) if one.outer else one, named)

    def named(entry: FromEntry) -> FromEntry:
        inner = entry.of
        if isinstance(inner, str):
            return entry
        if inner.nested is None:
            return replace(entry, of=inside(inner))
        if id(inner) not in known:
            parts.append(inside(replace(inner, nested=None)))
            # The subquery is kept, so that no other one can have its id.
            known[id(inner)] = inner, name(len(parts))
        return replace(entry, of=known[id(inner)][1], crossed=True)

    whole = inside(query)
    return (*parts, whole)


def _with_entries(query: Unresolved, change: Callable[[FromEntry], FromEntry]) -> Unresolved:
    sources = tuple(change(entry) for entry in query.sources)
    outer = tuple(replace(side, source=change(side.source)) for side in query.outer)
    branches = tuple(change(entry) for entry in query.branches)
    return replace(query, sources=sources, outer=outer, branches=branches)
