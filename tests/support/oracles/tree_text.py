"""Conversion of syntax trees to DuckDB's SQL, to compare a tree's meaning with the statement's."""

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
    """Return ``query`` in DuckDB's dialect, with its subqueries in FROM."""
    if query.branches:
        return " UNION ALL ".join(map(_entry, query.branches))
    where = [c.node for c in query.conditions if _is_where(c)]
    clauses = query.post_join
    distinct = "DISTINCT " if clauses is not None and clauses.distinct else ""
    listed = ", ".join(map(_item, query.items)) or "*"
    found = f"SELECT {distinct}{listed} FROM {_from(query)}"
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


def _from(query: Unresolved) -> str:
    joined = [condition for condition in query.conditions if not _is_where(condition)]
    parts = [_entry(query.sources[0])]
    for place, source in enumerate(query.sources[1:], 2):
        own = [c.node for c in joined if c.scope == place]
        parts.append(f"JOIN {_entry(source)} {_on(source, own)}")
    for side in query.outer:
        own = [side.on] if side.on is not None else []
        parts.append(f"{_KINDS[side.kind]} {_entry(side.source)} {_on(side.source, own)}")
    return " ".join(parts)


def _on(source: FromEntry, conditions: list[Node]) -> str:
    return f"USING ({', '.join(source.using)})" if source.using else f"ON {_all(conditions)}"


def _is_where(condition: Condition) -> bool:
    return isinstance(condition.node.parent, exp.Where)


def _entry(entry: FromEntry) -> str:
    if isinstance(entry.of, str):
        inside = entry.of
    elif entry.alias is None and not entry.of.items:
        return f"({_from(entry.of)})"
    else:
        inside = f"({text_of(entry.of)})"
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
