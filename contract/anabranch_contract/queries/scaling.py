"""Columns of a view that can be estimated if joined rows are missing, and notes on the others.

Load shedding withholds joined rows (``semantics.md``, "Views over a part"). Counts, sums and
averages over all rows can be estimated from the rows that were not withheld; other columns cover
only these rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch_contract.codec import Row
from anabranch_contract.queries.expressions import Call, Column, Expr, columns
from anabranch_contract.queries.types import TypeKind
from anabranch_contract.queries.views import PAIRS, PLACE, AggregateFunction, View, ViewAggregate

#: Aggregates that can be estimated if joined rows are missing.
SCALABLE = frozenset({AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVG})

_KEPT = "that were kept"
_OF = f"of the joined rows {_KEPT}"
_REASONS = {
    AggregateFunction.MIN: f"the least {_OF}: that of all is no greater",
    AggregateFunction.MAX: f"the greatest {_OF}: that of all is no less",
    AggregateFunction.MAX_BY: f"from the greatest row {_OF}: that of all may be another",
    AggregateFunction.MIN_BY: f"from the least row {_OF}: that of all may be another",
    AggregateFunction.PERCENTILE_CONT: f"a percentile {_OF}: that of all may be less or greater",
    AggregateFunction.PERCENTILE_DISC: f"a percentile {_OF}: that of all may be less or greater",
    AggregateFunction.LISTAGG: f"the texts {_OF}: others are missing",
    AggregateFunction.COLLECT_LIST: f"the values {_OF}: others are missing",
    **dict.fromkeys(PAIRS, f"the regression {_OF}"),
    AggregateFunction.CORR: f"the correlation {_OF}",
    AggregateFunction.COVAR_POP: f"the covariance {_OF}",
    AggregateFunction.COVAR_SAMP: f"the covariance {_OF}",
    AggregateFunction.SKEWNESS: f"the skewness {_OF}",
    AggregateFunction.KURTOSIS: f"the kurtosis {_OF}",
    AggregateFunction.BIT_AND: f"the bits {_OF}: all have no others in common",
    AggregateFunction.BIT_OR: f"the bits {_OF}: others may have more",
    AggregateFunction.BIT_XOR: f"the bits {_OF}: others change them",
    AggregateFunction.MODE: f"the most frequent value {_OF}: that of all may be another",
    AggregateFunction.STDDEV_SAMP: f"the spread {_OF}",
    AggregateFunction.STDDEV_POP: f"the spread {_OF}",
    AggregateFunction.VAR_SAMP: f"the spread {_OF}",
    AggregateFunction.VAR_POP: f"the spread {_OF}",
}
_DISTINCT = {
    AggregateFunction.COUNT: f"distinct values {_OF}: all have no fewer",
    AggregateFunction.LISTAGG: _REASONS[AggregateFunction.LISTAGG],
    AggregateFunction.COLLECT_LIST: _REASONS[AggregateFunction.COLLECT_LIST],
}


class PartialMark(Row, frozen=True):
    """Note that a view's column, or its set of rows, is inexact because joined rows are missing.

    Attributes:
        column: the view's column; empty: the set of rows.
        code: a machine-readable reason. ``reason``: a sentence without its full stop.
    """

    column: str
    code: str
    reason: str


def scalable(view: View) -> Mapping[str, ViewAggregate]:
    """Map each column that is a count, sum or average, or its cast to double, to the aggregate."""
    if not view.grouped:
        return {}
    known = {a.name: a for a in view.aggregates}
    found = {}
    for output in view.projection:
        expr = output.expr
        if isinstance(expr, Call) and expr.op == "cast" and expr.type.kind is TypeKind.DOUBLE:
            expr = expr.args[0]
        one = known.get(expr.name) if isinstance(expr, Column) else None
        if one is not None and one.function in SCALABLE and not one.distinct:
            found[output.name] = one
    return found


def partial_marks(view: View) -> tuple[PartialMark, ...]:
    """Return notes on the view's set of rows, then one per column that can't be estimated."""
    found = []
    if not view.grouped:
        found.append(PartialMark("", "limit", f"the first {_OF}"))
        beside = {n.name for n in view.windowed}
        for output in view.projection:
            own = {column.name for column in columns(output.expr)}
            if PLACE in own:
                reason = f"places among the joined rows {_KEPT}"
                found.append(PartialMark(output.name, "place", reason))
            elif own & beside:
                reason = f"from other rows among the joined rows {_KEPT}"
                found.append(PartialMark(output.name, "windowed", reason))
        return tuple(found)
    if view.group_keys:
        code = "groups" if view.aggregates else "distinct"
        reason = "groups whose joined rows were all withheld are missing"
        found.append(PartialMark("", code, reason))
    if view.window is not None and view.window.session:
        reason = "sessions consist of the joined rows that were kept: others may connect them"
        found.append(PartialMark("", "sessions", reason))
    if view.having is not None:
        reason = "HAVING is decided by the joined rows that were kept"
        found.append(PartialMark("", "having", reason))
    if view.limit is not None:
        reason = "ORDER BY and LIMIT apply to the joined rows that were kept"
        found.append(PartialMark("", "limit", reason))
    known, known_totals = {a.name: a for a in view.aggregates}, {t.name for t in view.totals}
    scaled = scalable(view)
    for output in view.projection:
        read = [c.name for c in columns(output.expr)]
        used = [known[name] for name in read if name in known]
        if output.name in scaled or not (used or known_totals.intersection(read)):
            continue
        found.append(_mark(output.name, output.expr, used))
    return tuple(found)


def _mark(name: str, expr: Expr, used: list[ViewAggregate]) -> PartialMark:
    if isinstance(expr, Column) and len(used) == 1:
        one = used[0]
        if one.distinct:
            reason = _DISTINCT.get(one.function, f"over distinct values {_OF}: others are missing")
            return PartialMark(name, "distinct", reason)
        if one.function not in SCALABLE:
            return PartialMark(name, str(one.function), _REASONS[one.function])
    reason = "computed from aggregates of the joined rows that were kept"
    return PartialMark(name, "expression", reason)
