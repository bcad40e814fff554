"""Computation of a view's rows from aggregated groups (or joined rows): HAVING and SELECT list.

Expressions are evaluated on columns by the same kernels as filters and projections of joins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.queries.expressions import Column, Expr
from anabranch_contract.queries.scaling import scalable
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import AggregateFunction, View, ViewAggregate
from anabranch_runtime.columns.arrow_types import arrow_type, schema_of
from anabranch_runtime.expressions.evaluate import Fetch, evaluate, filter_mask

#: Names of a view's columns with sort keys (by number), and with the result of HAVING.
SORT, KEPT = "anabranch_sort_{}", "anabranch_kept"
#: Names for counts of an average's values: of finished columns; of aggregates that are added.
COUNT, COUNTING = "anabranch_count_{}", "anabranch_counting_{}"


def shown_schema(view: View) -> pa.Schema:
    """Return the schema of a view's rows, in which hidden grouping columns come last."""
    return schema_of((*view.projection, *view.hidden))


def sort_fields(view: View) -> list[pa.Field]:
    """Return the Arrow fields of the columns that have a view's sort keys."""
    return [pa.field(SORT.format(n), arrow_type(s.expr.type)) for n, s in enumerate(view.order)]


def with_counts(view: View) -> View:
    """Return ``view`` with a count added for each average in its SELECT list, without which the
    average over all joined rows can't be estimated from a sample (``scaled``)."""
    averaged = {a.column for a in scalable(view).values() if a.function is AggregateFunction.AVG}
    missing = sorted(str(column) for column in averaged.difference(_counts(view)))
    kind = DataType(TypeKind.BIGINT)
    added = (
        ViewAggregate(
            COUNTING.format(n), AggregateFunction.COUNT, column, distinct=False, type=kind
        )
        for n, column in enumerate(missing)
    )
    return replace(view, aggregates=(*view.aggregates, *added))


def counts_beside(view: View) -> dict[str | None, str]:
    """Return averaged column -> the column of :class:`Finisher` that counts its values."""
    return {column: COUNT.format(n) for n, (column, _) in enumerate(_beside(view))}


def _beside(view: View) -> list[tuple[str | None, str]]:
    """Return pairs of an averaged column of a view and the aggregate that counts its values."""
    averaged = {a.column for a in scalable(view).values() if a.function is AggregateFunction.AVG}
    return [(column, name) for column, name in _counts(view).items() if column in averaged]


def _counts(view: View) -> dict[str | None, str]:
    return {
        a.column: a.name
        for a in reversed(view.aggregates)
        if a.function is AggregateFunction.COUNT and not a.distinct
    }


def count_fields(view: View) -> list[pa.Field]:
    """Return the fields of the columns that count values of averages (:func:`counts_beside`)."""
    return [pa.field(name, pa.int64()) for name in counts_beside(view).values()]


def finished_schema(view: View) -> pa.Schema:
    """Return the schema of the columns that :class:`Finisher` computes."""
    others = (*sort_fields(view), *count_fields(view), pa.field(KEPT, pa.bool_()))
    return pa.schema([*shown_schema(view), *others])


class Finisher:
    """Computes a view's columns, sort keys and HAVING from the rows of its groups."""

    __slots__ = ("_beside", "_having", "_identity", "_outputs", "schema")

    def __init__(self, view: View) -> None:
        self._having, self._identity = view.having, frozenset(view.identity)
        self._outputs = [(o.name, o.expr) for o in (*view.projection, *view.hidden)]
        self._outputs += [("", s.expr) for s in view.order]
        self._beside = [name for _, name in _beside(view)]
        self.schema = finished_schema(view)

    def __call__(
        self,
        rows: pa.RecordBatch,
        totals: Mapping[str, pa.Scalar] | None = None,
        present: NDArray[np.bool_] | None = None,
    ) -> pa.RecordBatch:
        """Return the columns (:func:`finished_schema`) for the groups in ``rows``.

        If a row is not present or HAVING is false for it, expressions other than columns of
        ``rows`` are NULL, because they might fail.

        Args:
            totals: name -> aggregate over all groups.
            present: mask of the groups that have rows; None: all.

        Raises:
            ExpressionError: an expression fails on a row, as it would in Spark.
        """

        length = rows.num_rows

        def fetch(column: Column) -> pa.Array:
            if totals is not None and column.name in totals:
                return pa.repeat(totals[column.name], length)
            found: pa.Array = rows.column(column.name)
            return found

        mask = self._kept(fetch, length, present)
        kept = np.ones(length, np.bool_) if mask is None else mask
        picked = None if mask is None else pa.array(np.flatnonzero(kept))
        back = None if mask is None else pa.array(np.cumsum(kept) - 1, mask=~kept)

        def column(name: str, expr: Expr) -> pa.Array:
            if picked is None or name in self._identity or isinstance(expr, Column):
                return evaluate(expr, fetch, length)
            found = evaluate(expr, lambda c: fetch(c).take(picked), len(picked))
            return found.take(back)

        arrays = [column(name, expr) for name, expr in self._outputs]
        arrays += [rows.column(name) for name in self._beside]
        arrays.append(pa.array(kept))
        pairs = zip(arrays, self.schema, strict=True)
        found = [a.cast(f.type) if a.type != f.type else a for a, f in pairs]
        return pa.RecordBatch.from_arrays(found, schema=self.schema)

    def _kept(
        self, fetch: Fetch, length: int, present: NDArray[np.bool_] | None
    ) -> NDArray[np.bool_] | None:
        """Return the mask of present groups for which HAVING is true; None means all groups."""
        if present is None or present.all():
            return None if self._having is None else filter_mask([self._having], fetch, length)
        kept = present.copy()
        if self._having is not None:
            some = np.flatnonzero(present)
            picked = pa.array(some)
            mask = filter_mask([self._having], lambda c: fetch(c).take(picked), len(some))
            if mask is not None:
                kept[some] = mask
        return kept
