"""Registered queries read by name, and subqueries that become queries of their own.

The name of a registered query without a post-join part is replaced by the query, as a subquery.
Conversely, a subquery with a post-join part becomes a *part* of the statement: a query of its own,
whose name replaces the subquery.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from anabranch_planner.sql.clauses.set_operations import as_table
from anabranch_planner.sql.unresolved import FromEntry, Node, SelectItem, Unresolved


def names_read(query: Unresolved) -> tuple[str, ...]:
    """Return the names of streams and registered queries in FROM and its subqueries, once each."""
    found: dict[str, None] = {}
    for entry in query.entries:
        names = (entry.of,) if isinstance(entry.of, str) else names_read(entry.of)
        found |= dict.fromkeys(names)
    for inner in query.subqueries.values():
        found |= dict.fromkeys(names_read(inner))
    return tuple(found)


def with_inlined(query: Unresolved, queries: Mapping[str, Unresolved]) -> Unresolved:
    """Return ``query`` with each name in ``queries`` replaced by that query as a subquery."""
    if not queries:
        return query
    # Keep a query of WITH that is read several times one object, so that it becomes one part.
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
        return replace(with_entries(one, inlined), subqueries=inner)

    return everywhere(query)


def in_parts(query: Unresolved, name: Callable[[int], str]) -> tuple[Unresolved, ...]:
    """Return the parts of ``query`` (subqueries planned as queries of their own), each before the
    parts that read it. The query itself is last; it reads the parts by name. A query of WITH is one
    part, even if it is read several times.

    Args:
        name: number of a part, from 1 -> name of the part.

    >>> from anabranch_planner.sql.syntax import parse_statement
    >>> sql = "SELECT max(n) AS m FROM (SELECT k, count(*) AS n FROM r GROUP BY k) x"
    >>> [names_read(part) for part in in_parts(parse_statement(sql), "q.{}".format)]
    [('r',), ('q.1',)]
    """
    parts: list[Unresolved] = []
    known: dict[int, tuple[Unresolved, str, Unresolved, frozenset[int]]] = {}
    unions: dict[int, tuple[Unresolved, Unresolved]] = {}

    def tabled(entry: FromEntry) -> FromEntry:
        """``entry`` of a FROM with an outer join; a UNION ALL in it becomes a query of its own."""
        inner = entry.of
        if isinstance(inner, str) or inner.nested is not None or not inner.has_union:
            return entry
        found = unions.setdefault(id(inner), (inner, as_table(inner, entry.node)))
        return replace(entry, of=found[1])

    def inside(one: Unresolved) -> Unresolved:
        if one.branches:
            first, *others = one.branches
            found = (
                named(first, texts=True),
                *(named(n, texts=True, renamed=True) for n in others),
            )
            return replace(one, branches=found)
        return with_entries(with_entries(one, tabled) if one.outer else one, named)

    def named(entry: FromEntry, *, texts: bool = False, renamed: bool = False) -> FromEntry:
        inner = entry.of
        if isinstance(inner, str):
            return entry
        if inner.nested is None:
            return replace(entry, of=inside(inner))
        if id(inner) not in known:
            own = _with_names(inner) if renamed else inner
            constants = _constants(own, texts=texts)
            own = own if constants else inner
            kept = (item for n, item in enumerate(own.items) if n not in constants)
            parts.append(inside(replace(own, items=tuple(kept), nested=None)))
            # Keep a reference to the subquery, so that no other object gets its id.
            known[id(inner)] = inner, name(len(parts)), own, constants
        _, part, own, constants = known[id(inner)]
        of = _with_constants(own, part, constants, entry.node) if constants else part
        return replace(entry, of=of, crossed=True)

    whole = inside(query)
    return (*parts, whole)


def _constants(query: Unresolved, *, texts: bool) -> frozenset[int]:
    """Positions of constants in a subquery's SELECT list that the reader can add instead. This is
    needed for NULL, which has no type, so that no table can have it as a column. Empty if constants
    can't be left out, because there is no other column, another column has no name, or a clause may
    refer to them.

    Args:
        texts: whether to include text constants, which often mark the operands of a set operation
            so that the reader can select by them.
    """
    clauses, items = query.post_join, query.items
    found = frozenset(n for n, item in enumerate(items) if _is_constant(item.node, texts=texts))
    names = {(items[n].name or "").lower() for n in found}
    keys: list[Node] = []
    if clauses is not None:
        keys = [node for node in (*(clauses.group or ()), clauses.having) if node is not None]
        if clauses.order or clauses.limit or clauses.ranking:
            return frozenset()
    read = [column for key in keys for column in key.find_all(exp.Column)]
    if any(not column.table and column.name.lower() in names for column in read):
        return frozenset()
    if any(isinstance(key, exp.Literal) for key in keys):
        return frozenset()
    others = [item for n, item in enumerate(items) if n not in found]
    return found if others and all(map(_name, others)) else frozenset()


def _with_names(query: Unresolved) -> Unresolved:
    """An operand of a set operation with generated names for unnamed columns."""
    items = tuple(
        item if item.node is None or _name(item) else replace(item, name=f"operand_column{n}")
        for n, item in enumerate(query.items, 1)
    )
    return replace(query, items=items)


def _is_constant(node: Node | None, *, texts: bool) -> bool:
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Null) or (
        texts and isinstance(node, exp.Literal) and bool(node.is_string)
    )


def _name(item: SelectItem) -> str:
    return item.name or (item.node.name if isinstance(item.node, exp.Column) else "")


def _with_constants(
    query: Unresolved, part: str, constants: frozenset[int], node: Node | None
) -> Unresolved:
    """A query that reads ``part``, and adds the constants that the part's columns lack."""
    items = tuple(
        item if n in constants else SelectItem(exp.column(_name(item), quoted=True), _name(item))
        for n, item in enumerate(query.items)
    )
    return Unresolved((FromEntry(part, None, node=node, crossed=True),), (), items)


def within(change: Callable[[Unresolved], Unresolved]) -> Callable[[FromEntry], FromEntry]:
    """Return a function that applies ``change`` to the subquery of an entry in FROM. A query of
    WITH that is read several times is changed once, and stays one object."""
    # Keep a reference to the subquery, so that no other object gets its id.
    known: dict[int, tuple[Unresolved, Unresolved]] = {}

    def changed(entry: FromEntry) -> FromEntry:
        inner = entry.of
        if isinstance(inner, str):
            return entry
        if id(inner) not in known:
            known[id(inner)] = inner, change(inner)
        made = known[id(inner)][1]
        return entry if made is inner else replace(entry, of=made)

    return changed


def with_entries(query: Unresolved, change: Callable[[FromEntry], FromEntry]) -> Unresolved:
    """``query`` with ``change`` applied to its entries of FROM; itself if nothing changes."""
    sources = tuple(change(entry) for entry in query.sources)
    outer = tuple(replace(side, source=change(side.source)) for side in query.outer)
    branches = tuple(change(entry) for entry in query.branches)
    made = replace(query, sources=sources, outer=outer, branches=branches)
    return query if all(map(operator.is_, query.entries, made.entries)) else made
