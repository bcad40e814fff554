"""Scalar subqueries that aggregate all joined rows, computed from the groups' aggregates.

``HAVING sum(x) > (SELECT 0.01 * sum(x) FROM ...)`` compares each group with the total. If the inner
query joins the same rows as the outer one, the total follows from the groups' aggregates, and the
join runs once. The two joins are compared in canonical form, whatever aliases they use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column, Expr, Output, substitute
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.views import AggregateFunction, SortKey, Total, ViewAggregate
from anabranch_planner.sql.unresolved import unsupported

_COMBINED = {
    AggregateFunction.COUNT: AggregateFunction.SUM,
    AggregateFunction.SUM: AggregateFunction.SUM,
    AggregateFunction.MIN: AggregateFunction.MIN,
    AggregateFunction.MAX: AggregateFunction.MAX,
}


def with_totals(query: JoinQuery, scalars: Iterable[tuple[str, JoinQuery]]) -> JoinQuery:
    """``query`` with the columns that replace ``scalars`` computed from totals over all groups.

    Raises:
        QueryError: a subquery has another join, or its aggregates do not follow from the groups.
    """
    values: dict[str, Expr] = {}
    for name, inner in scalars:
        query, values[name] = _added(query, inner)
    view = query.view
    if view is None or not values:
        return query

    def filled(expr: Expr) -> Expr:
        return substitute(expr, lambda c: values.get(c.name, c))

    view = replace(
        view,
        projection=tuple(Output(o.name, filled(o.expr)) for o in view.projection),
        having=None if view.having is None else filled(view.having),
        order=tuple(SortKey(filled(s.expr), s.descending, s.nulls_first) for s in view.order),
    )
    return replace(query, view=view)


def _added(query: JoinQuery, inner: JoinQuery) -> tuple[JoinQuery, Expr]:
    """The query with the aggregates of scalar subquery ``inner`` added as totals, and the
    expression over them that is the subquery's value."""
    if _join(query) != _join(inner):
        raise unsupported(
            "a scalar subquery over other joined rows than the statement's",
            "let it aggregate the statement's joined rows: same streams, same conditions",
        )
    view, other = query.view, inner.view
    assert view is not None
    assert other is not None
    if other.having is not None or other.totals or not view.grouped:
        raise unsupported(
            "this scalar subquery", "select one aggregate of all rows, in a query with GROUP BY"
        )
    window = view.window
    if view.sets or (window is not None and window.shares_rows):
        raise unsupported(
            "a scalar subquery beside groups that share rows",
            "group by plain keys, without ROLLUP or the like and windows that overlap",
        )
    projection, aggregates, totals = (
        list(query.projection),
        list(view.aggregates),
        list(view.totals),
    )
    columns = {o.name: o.expr for o in inner.projection}
    names: dict[str, Column] = {}
    for wanted in other.aggregates:
        if wanted.function not in _COMBINED or wanted.distinct:
            raise QueryError(
                "unsupported-sql",
                f"{wanted.function}() of all rows does not follow from that of groups",
                remedy="use sum, count, min and max, e.g. sum(x) / count(x)",
            )
        column = None
        if wanted.column is not None:
            expr = columns[wanted.column]
            column = next((o.name for o in projection if o.expr == expr), None)
            if column is None:
                column = f"a{len(projection) + 1}s"
                projection.append(Output(column, expr))
        own = next(
            (
                a
                for a in aggregates
                if (a.function, a.column, a.distinct) == (wanted.function, column, False)
            ),
            None,
        )
        if own is None:
            own = ViewAggregate(
                f"g{len(aggregates) + 1}s", wanted.function, column, False, wanted.type
            )
            aggregates.append(own)
        total = next((t for t in totals if t.aggregate == own.name), None)
        if total is None:
            combined = _COMBINED[own.function]
            total = Total(f"t{len(totals) + 1}", own.name, combined, own.type)
            totals.append(total)
        names[wanted.name] = Column("", total.name, total.type)
    view = replace(view, aggregates=tuple(aggregates), totals=tuple(totals))
    value = substitute(other.projection[0].expr, lambda c: names.get(c.name, c))
    return replace(query, projection=tuple(projection), view=view), value


def _join(query: JoinQuery) -> object:
    """The canonical parts of a query that determine its joined rows; equal for equal joins."""
    labels = tuple(m.label for m in query.members)
    bounds = {
        (a, b): bound
        for a, row in zip(labels, query.bounds, strict=True)
        for b, bound in zip(labels, row, strict=True)
    }
    found = frozenset(labels), frozenset(query.relations), query.classes, bounds
    return *found, query.residuals, query.expansions
