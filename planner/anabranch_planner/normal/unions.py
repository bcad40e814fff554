"""The canonical form of a union: one inner join per branch, under one post-join part.

The SELECT list and the post-join clauses are resolved once, over placeholder columns: not over a
branch's own columns, since two columns that are equal in one branch may differ in another. Then
each branch replaces the placeholders by its own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column, Expr, substitute
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.outer_joins import branch_id
from anabranch_contract.queries.views import CHANGE
from anabranch_planner.binding.outer_joins import of_those
from anabranch_planner.binding.outputs import written
from anabranch_planner.binding.post_join import split
from anabranch_planner.normal import rolling, weights
from anabranch_planner.normal.bind import Bound, Registration
from anabranch_planner.sql.scope import FromTable, Scope, ShownColumn, nearest
from anabranch_planner.sql.unresolved import HIDDEN, Node, at, unsupported

Columns = tuple[tuple[str, Expr], ...]
#: Function that makes the canonical form of a branch with the given output columns.
Join = Callable[[Bound, Registration, Columns], JoinQuery]


def united(bound: Bound, given: Registration, join: Join) -> JoinQuery:
    """The canonical form of a query with several branches.

    Raises:
        QueryError: a branch is not a connected inner equi-join, or names or types don't fit.
    """
    query, branches = bound.query, (bound, *bound.others)
    _check_names(bound.scope)
    scope = _standing_for(bound.scope)
    parts = None if query.post_join is None else split(query, scope, _refuse_inner)
    shown = (
        written(query.items, scope)
        if parts is None
        else tuple((column.name, column.expr) for column in parts.joined)
    )
    changing = any(weights.with_changes(branch.scope) for branch in branches)
    if not changing and parts is None:
        weights.check_name(shown, CHANGE)
    _check_window(given.window, branches)
    found, taken = [], set[str]()
    for number, branch in enumerate(branches, 1):
        own = replace(
            given,
            id=branch_id(given.id, number),
            window=of_those(given.window, branch.scope),
            relaxed=weights.stored_whole(branch.scope),
        )
        exprs = dict(zip(_columns(scope), _columns(branch.scope), strict=True))
        columns = tuple((name, _in_branch(expr, exprs)) for name, expr in shown)
        moments, limits = rolling.named(branch.limits)
        if limits != rolling.named(bound.limits)[1]:
            read, conditions = branch.query.sources[0].node, branch.query.conditions
            with at(read), at(conditions[0].node if conditions else None):
                raise unsupported(
                    "now() in conditions that differ between the operands of a set operation",
                    "write the condition above it: SELECT ... FROM (... UNION ALL ...) u WHERE "
                    "u.ts > now() - INTERVAL '24' HOUR",
                )
        columns = (*columns, *moments)
        if changing:
            columns = weights.weighted(
                columns, branch.scope, post_join=parts is not None, always=True
            )
        view = None if parts is None else replace(parts.view, limits=limits)
        made = replace(join(branch, own, columns), view=view, united=True)
        found.append(_renamed(made, number, taken))
    first, *others = found
    return replace(first, others=tuple(others))


def _refuse_inner(node: Node) -> JoinQuery:
    with at(node):
        raise unsupported("a scalar subquery over a set operation", "leave it out")


def _check_names(scope: Scope) -> None:
    """Reject two columns with the same name if the whole statement is a set operation."""
    names = [column.name for column in scope.visible if not column.name.startswith(HIDDEN)]
    for name in names if "" in scope.tables or not scope.tables else ():
        if sum(name.lower() == other.lower() for other in names) > 1:
            raise QueryError(
                "duplicate-name",
                f"two columns of the set operation are called {name!r}",
                remedy="rename one in the first SELECT: x AS other_name",
            )


def _standing_for(scope: Scope) -> Scope:
    """``scope`` with a placeholder for each column, also if two expressions are equal."""
    made: dict[int, ShownColumn] = {}
    names: set[tuple[str, str]] = set()

    def opaque(column: ShownColumn, table: str) -> ShownColumn:
        if id(column) not in made:
            name = column.name
            while (table, name) in names:
                name += "'"
            names.add((table, name))
            made[id(column)] = ShownColumn(column.name, Column(table, name, column.expr.type))
        return made[id(column)]

    tables = {
        alias: FromTable(tuple(opaque(c, alias) for c in table.columns), table.what)
        for alias, table in scope.tables.items()
    }
    visible = tuple(opaque(column, "") for column in scope.visible)
    return Scope(scope.streams, tables, visible, scope.registered)


def _columns(scope: Scope) -> Iterator[Expr]:
    """The columns of a union's scope, in the same order for all branches."""
    for table in scope.tables.values():
        yield from (column.expr for column in table.columns)
    yield from (column.expr for column in scope.visible)


def _in_branch(expr: Expr, exprs: Mapping[Expr, Expr]) -> Expr:
    return substitute(expr, lambda column: exprs[column])


def _renamed(query: JoinQuery, number: int, taken: set[str]) -> JoinQuery:
    """``query`` with aliases renamed to differ from earlier branches' aliases (``taken``)."""
    members = tuple(
        replace(m, alias=f"{m.alias}#{number}") if m.alias in taken else m for m in query.members
    )
    taken.update(m.alias for m in members)
    return replace(query, members=members)


def _check_window(window: int | Mapping[str, int] | None, branches: tuple[Bound, ...]) -> None:
    """Reject a window for an alias that occurs in no branch."""
    for name in window if isinstance(window, Mapping) else ():
        if not any(branch.scope.find_streams(name) for branch in branches):
            known = [alias for branch in branches for alias in branch.scope.streams]
            raise QueryError(
                "unknown-alias",
                f"the window names {name!r}, which is not an alias of the query",
                field=f"window.{name}",
                remedy=nearest(name, known),
            )
