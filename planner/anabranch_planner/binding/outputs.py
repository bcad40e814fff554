"""Columns of SELECT lists; at a sink, their types must be writable and their names distinct."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Expr, size
from anabranch_contract.queries.types import TypeKind
from anabranch_planner.binding.naming import spark_name
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope, ShownColumn
from anabranch_planner.sql.unresolved import SelectItem, at, describe, located

#: Maximum number of nodes of an expression after subqueries in FROM have been inlined.
LARGEST = 10_000


def columns_of(items: Iterable[SelectItem], scope: Scope) -> Iterator[ShownColumn]:
    """The columns of a SELECT list.

    Raises:
        QueryError: a column has no name, or its expression is too large.
    """
    for item in items:
        with located(item.field), at(item.node):
            if item.node is None:
                yield from scope.table(item.qualifier).columns if item.qualifier else scope.visible
                continue
            expr = typed(item.node, scope)
            called = item.name if item.name is not None else spark_name(item.node)
            if not called:
                raise QueryError(
                    "unnamed-output",
                    f"{describe(item.node)} has no name",
                    remedy="give it a name with AS",
                )
            if size(expr, LARGEST) > LARGEST:
                raise QueryError(
                    "too-large",
                    f"{called!r} is an expression of more than {LARGEST} terms once subqueries"
                    " are written out",
                    remedy="compute it where the results are read",
                )
            yield ShownColumn(called, expr)


def written(items: Iterable[SelectItem], scope: Scope) -> tuple[tuple[str, Expr], ...]:
    """The columns of a SELECT list whose results are written to a sink.

    Raises:
        QueryError: as :func:`columns_of`; or a type can't be written, or a name occurs twice.
    """
    outputs: dict[str, tuple[str, Expr]] = {}
    for item in items:
        with located(item.field), at(item.node):
            for shown in columns_of((item,), scope):
                require_writable(shown.name, shown.expr)
                require_new(shown.name, outputs, shown.expr, star=item.node is None)
                outputs[shown.name.lower()] = (shown.name, shown.expr)
    return tuple(outputs.values())


def require_writable(name: str, expr: Expr) -> None:
    """Reject an output column of a type that sinks cannot store.

    Raises:
        QueryError: ``unsupported-output``.
    """
    if expr.type.kind in (TypeKind.INTERVAL, TypeKind.NULL):
        raise QueryError(
            "unsupported-output",
            f"{name!r} is of type {expr.type}, which can't be written",
            remedy="cast it to the type that you want",
        )


def require_new(name: str, taken: Container[str], expr: Expr, *, star: bool = False) -> None:
    """Reject a name that is in ``taken`` (lower case); ``star``: the column comes from ``*``.

    Raises:
        QueryError: ``duplicate-name``.
    """
    if name.lower() in taken:
        raise QueryError(
            "duplicate-name",
            f"two output columns are called {name!r}",
            remedy=f"rename one: {expr} AS other_name" + (", in place of *" if star else ""),
        )
