"""Views with LIMIT or totals, which depend on all groups, and top-k over joined rows, by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.views import RANK, AggregateFunction, View
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.views.finishing import KEPT, SORT, finished, finished_schema, shown_schema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


def top_groups(groups: DataFrame, view: View) -> pa.Table:
    """Return the view's rows from all groups; with a LIMIT only the first ones, ranked."""
    totals = _totals(groups, view)
    return _top(_finished(groups, view, totals).where(KEPT).drop(KEPT), view)


def top_rows(rows: DataFrame, view: View, before: pa.Table) -> pa.Table:
    """Return the new top rows, with ranks, of ``rows`` and the former top rows ``before``.

    Rows that OFFSET skips are kept too, with ranks below 1.
    """
    found = _finished(rows, view).drop(KEPT)
    if before.num_rows:
        found = found.unionByName(rows.sparkSession.createDataFrame(before.drop_columns(RANK)))
    return _top(found, view)


def _top(rows: DataFrame, view: View) -> pa.Table:
    if view.limit is None:
        table: pa.Table = rows.toArrow()
        return table
    sorts = [_sort(n, s.descending, s.nulls_first) for n, s in enumerate(view.order)]
    ties = list(view.identity) if view.grouped else []
    ties += [n for n in shown_schema(view).names if n not in ties]
    ordered = rows.orderBy(*sorts, *(f"`{name}`" for name in ties))
    table = ordered.limit(view.offset + view.limit).toArrow()
    if view.grouped:
        return table.slice(view.offset)
    ranks = np.arange(1, table.num_rows + 1) - view.offset
    at = len(shown_schema(view))
    return table.add_column(at, pa.field(RANK, pa.int64()), pa.array(ranks))


def _totals(groups: DataFrame, view: View) -> dict[str, pa.Scalar]:
    """Return aggregates over all groups by name, in the types of their aggregates."""
    if not view.totals:
        return {}
    from pyspark.sql import functions as sf

    combine = {
        AggregateFunction.SUM: sf.sum,
        AggregateFunction.MIN: sf.min,
        AggregateFunction.MAX: sf.max,
    }
    found = groups.agg(
        *(
            combine[t.function](f"`{t.aggregate}`").cast(str(t.type)).alias(t.name)
            for t in view.totals
        )
    ).toArrow()
    return {t.name: found[t.name].combine_chunks()[0].cast(arrow_type(t.type)) for t in view.totals}


def _finished(
    frame: DataFrame, view: View, totals: Mapping[str, pa.Scalar] | None = None
) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(finished_schema(view))
    return frame.mapInArrow(partial(_finish, view, totals), schema)


def _finish(
    view: View, totals: Mapping[str, pa.Scalar] | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return (finished(view, batch, totals) for batch in batches if batch.num_rows)


def _sort(number: int, descending: bool, nulls_first: bool) -> SparkColumn:
    from pyspark.sql import functions as sf

    column = sf.col(SORT.format(number))
    if descending:
        return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
