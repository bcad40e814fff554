"""Inlining of queries in FROM that only join, filter and project.

So a chain of joins is one group of joins, however it is divided into queries. (sqlglot's
``merge_subqueries`` does not inline queries with joins, and can't read tables in parentheses.)
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

#: Arguments of sqlglot's SELECT that a query with only joins, filters and projections may have.
_PARTS = {"expressions", "from_", "joins", "where", "kind", "hint"}
_CHANGING = (exp.Rand, exp.Randn, exp.Uuid)


def inlined(statement: exp.Expr) -> exp.Expr:
    """Return ``statement`` with such queries in FROM inlined.

    In the result every table has a unique name, and every column is qualified.
    """
    _single_ctes(statement)
    for scope in traverse_scope(statement):
        select = scope.expression
        if isinstance(select, exp.Select) and select.args.get("from_") is not None:
            _inline(select)
    return statement


def uniquely_named(statement: exp.Expr) -> exp.Expr:
    """Rename tables in ``statement`` so that no two have the same name."""
    taken: set[str] = set()
    for scope in reversed(traverse_scope(statement)):
        outside = {id(column) for column in scope.external_columns}
        for name, (node, _) in list(scope.selected_sources.items()):
            fresh, number = name, 1
            while fresh in taken:
                number += 1
                fresh = f"{name}_{number}"
            taken.add(fresh)
            if fresh == name:
                continue
            holder = node
            while not isinstance(holder, exp.Table) and isinstance(holder.parent, exp.Subquery):
                holder = holder.parent
            holder.set("alias", exp.TableAlias(this=exp.to_identifier(fresh)))
            for column in scope.columns:
                if column.table == name and id(column) not in outside:
                    column.set("table", exp.to_identifier(fresh))
    return statement


def _single_ctes(statement: exp.Expr) -> None:
    """Inline the common table expressions of WITH that are read only once."""
    readers: dict[int, list[exp.Expr]] = {}
    for scope in traverse_scope(statement):
        for node, source in scope.selected_sources.values():
            if isinstance(source, Scope) and isinstance(node, exp.Table):
                readers.setdefault(id(source.expression), []).append(node)
    for cte in list(statement.find_all(exp.CTE)):
        clause = cte.parent
        found = readers.get(id(cte.this), [])
        if len(found) != 1 or not isinstance(clause, exp.With) or clause.args.get("recursive"):
            continue
        if cte.args["alias"].args.get("columns"):
            continue
        (table,) = found
        alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name))
        joins = table.args.get("joins")
        table.replace(exp.Subquery(this=cte.this, alias=alias, joins=joins))
        cte.pop()
        if not clause.expressions:
            clause.pop()


def _inline(select: exp.Select) -> None:
    joins: list[exp.Join] = list(select.args.get("joins") or ())
    if any(str(j.args.get("side") or "").upper() in ("RIGHT", "FULL") for j in joins):
        return
    sources: list[tuple[exp.Expr, exp.Join | None]] = [(select.args["from_"].this, None)]
    sources += [(j.this, j) for j in joins if not j.args.get("side") and not _kind(j)]
    for source, join in sources:
        inner = source.this if isinstance(source, exp.Subquery) else None
        if not isinstance(inner, exp.Select) or source.args.get("joins") or not _only_joins(inner):
            continue
        named = {e.alias_or_name: e.unalias() for e in inner.expressions}
        for column in list(_columns_of(select, source.alias_or_name)):
            column.replace(_in_place(named[column.name], column))
        conditions = [inner.args["where"].this] if inner.args.get("where") else []
        added = [j.this for j in inner.args.get("joins") or ()]
        conditions += [j.args["on"] for j in inner.args.get("joins") or () if j.args.get("on")]
        if join is not None and join.args.get("on") is not None:
            conditions.append(join.args["on"])
        first = inner.args["from_"].this
        crossed = [exp.Join(this=table, kind="CROSS") for table in added]
        if join is None:
            select.args["from_"].set("this", first)
            select.set("joins", [*crossed, *(select.args.get("joins") or ())])
        else:
            place = select.args["joins"].index(join)
            crossed = [exp.Join(this=first, kind="CROSS"), *crossed]
            rest = select.args["joins"]
            select.set("joins", [*rest[:place], *crossed, *rest[place + 1 :]])
        for condition in conditions:
            select.where(condition, copy=False)


def _kind(join: exp.Join) -> str:
    """Return the kind of a join; empty for inner joins."""
    kind = str(join.args.get("kind") or "").upper()
    return "" if kind in ("", "INNER", "CROSS") else kind


def _only_joins(inner: exp.Select) -> bool:
    if any(value and part not in _PARTS for part, value in inner.args.items()):
        return False
    if inner.args.get("from_") is None or any(inner.find_all(exp.Window, *_CHANGING)):
        return False
    joins = inner.args.get("joins") or ()
    if any(j.args.get("side") or _kind(j) or j.args.get("using") for j in joins):
        return False
    names = [e.alias_or_name for e in inner.expressions]
    aggregates = any(e.find(exp.AggFunc) for e in inner.expressions)
    return not aggregates and len(set(names)) == len(names) and "*" not in names


def _columns_of(select: exp.Select, table: str) -> Iterator[exp.Column]:
    return (c for c in select.find_all(exp.Column) if c.table == table)


def _in_place(value: exp.Expr, column: exp.Column) -> exp.Expr:
    """Return a copy of the expression that a column stands for, in parentheses if necessary."""
    copied = value.copy()
    alone = isinstance(copied, exp.Column | exp.Literal) or isinstance(column.parent, exp.Alias)
    return copied if alone else exp.paren(copied, copy=False)
