"""Syntax trees as SQL that DuckDB reads, to compare a tree's meaning with the statement's."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.sql.unresolved import Condition, FromEntry, Node, SelectItem, Unresolved

_KINDS = {
    JoinKind.INNER: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "SEMI JOIN",
    JoinKind.ANTI: "ANTI JOIN",
}


def text_of(query: Unresolved) -> str:
    """``query`` in DuckDB's dialect, with its subqueries in FROM."""
    if query.branches:
        return " UNION ALL ".join(map(_entry, query.branches))
    joined = [condition for condition in query.conditions if not _is_where(condition)]
    parts = [_entry(query.sources[0])]
    for place, source in enumerate(query.sources[1:], 2):
        own = [c.node for c in joined if c.scope == place]
        if source.using:
            parts.append(f"JOIN {_entry(source)} USING ({', '.join(source.using)})")
        else:
            parts.append(f"JOIN {_entry(source)} ON {_all(own)}")
    for side in query.outer:
        on = _all([side.on]) if side.on is not None else "TRUE"
        parts.append(f"{_KINDS[side.kind]} {_entry(side.source)} ON {on}")
    where = [c.node for c in query.conditions if _is_where(c)]
    clauses = query.post_join
    distinct = "DISTINCT " if clauses is not None and clauses.distinct else ""
    listed = ", ".join(map(_item, query.items)) or "*"
    found = f"SELECT {distinct}{listed} FROM {' '.join(parts)}"
    if where:
        found += f" WHERE {_all(where)}"
    if clauses is None:
        return found
    if clauses.group:
        found += f" GROUP BY {_listed(clauses.group)}"
    if clauses.having is not None:
        found += f" HAVING {_sql(clauses.having)}"
    if (ranking := clauses.ranking) is not None:
        by = f"PARTITION BY {_listed(ranking.partition)} " if ranking.partition else ""
        over = f"{by}ORDER BY {_listed(ranking.order)}"
        found += f" QUALIFY {ranking.function}() OVER ({over}) <= {ranking.limit}"
    if clauses.order:
        found += f" ORDER BY {_listed(clauses.order)}"
    if clauses.limit is not None:
        found += f" LIMIT {_sql(clauses.limit)}"
    return found


def _is_where(condition: Condition) -> bool:
    return isinstance(condition.node.parent, exp.Where)


def _entry(entry: FromEntry) -> str:
    inside = entry.of if isinstance(entry.of, str) else f"({text_of(entry.of)})"
    columns = f"({', '.join(entry.columns)})" if entry.columns else ""
    return f'{inside} AS "{entry.alias}"{columns}' if entry.alias else inside


def _item(item: SelectItem) -> str:
    if item.node is None:
        return f'"{item.qualifier}".*' if item.qualifier else "*"
    return f'{_sql(item.node)} AS "{item.name}"' if item.name else _sql(item.node)


def _all(nodes: Iterable[Node]) -> str:
    return " AND ".join(f"({_sql(node)})" for node in nodes) or "TRUE"


def _listed(nodes: Iterable[Node]) -> str:
    return ", ".join(map(_sql, nodes))


def _sql(node: Node) -> str:
    return node.sql("duckdb")
