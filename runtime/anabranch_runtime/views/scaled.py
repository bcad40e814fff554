"""Estimates of a view's counts, sums and averages over all joined rows, including withheld ones.

The error is half the width of a 95 % confidence interval, if the estimate is normally distributed.
If fewer than :data:`FEWEST` ranks (sampling units) of a group were kept, the error is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch_contract.queries.scaling import scalable
from anabranch_contract.queries.views import AggregateFunction, View, ViewAggregate
from anabranch_runtime.columns.arrays import Floats
from anabranch_runtime.expressions.finishing import counts_beside
from anabranch_runtime.views.estimates import GROUP, KEPT_RANKS, measured, part
from anabranch_runtime.views.identities import identities
from anabranch_runtime.views.left_out import GroupKnowledge

#: Function from a correction's name (``0.sum``, say; see ``estimates``) to its values per row.
Correction = Callable[[str], Floats]


#: Minimum number of kept ranks of a group for which an error is stated.
FEWEST = 10
#: Standard deviations on each side of the mean that cover 95 % of a normal distribution.
DEVIATIONS = 1.96


def scaled_rows(
    view: View, rows: pa.Table, found: NDArray[np.int8], table: pa.Table
) -> tuple[str, ...]:
    """Return for each view row a JSON object: column -> estimate (``value``, ``error``) or null.

    Args:
        found: :class:`~anabranch_runtime.views.left_out.GroupKnowledge` of each row.
        table: the corrections (``estimates``).
    """
    count = rows.num_rows
    keys = identities(view, rows).cast(pa.large_string())
    place = pc.fill_null(pc.index_in(keys, table[GROUP].combine_chunks()), -1).to_numpy()

    def correction(name: str) -> Floats:
        if not table.num_rows:
            return np.zeros(count)
        values = table[name].to_numpy().astype(np.float64)
        return np.where(place >= 0, values[place], 0.0)

    few = correction(KEPT_RANKS) < FEWEST
    documents: list[dict[str, dict[str, float | None]]] = [{} for _ in range(count)]
    for column, aggregate in scalable(view).items():
        values, variance = _estimated(view, rows, column, aggregate, correction)
        plain = _numbers(rows[column])
        values = np.where(found == GroupKnowledge.WHOLE, plain, values)
        values[found == GroupKnowledge.UNKNOWN] = math.nan
        errors = DEVIATIONS * np.sqrt(np.maximum(variance, 0.0))
        errors[few | (found >= GroupKnowledge.UNBOUNDED)] = math.nan
        errors[found == GroupKnowledge.WHOLE] = 0.0
        errors[np.isnan(values)] = math.nan
        for document, value, error in zip(documents, values, errors, strict=True):
            document[column] = {"value": _or_none(value), "error": _or_none(error)}
    return tuple(json.dumps(d, ensure_ascii=False) for d in documents)


def _estimated(
    view: View, rows: pa.Table, column: str, aggregate: ViewAggregate, correction: Correction
) -> tuple[Floats, Floats]:
    """Return estimates of a column over all joined rows, with withheld ones; their variances."""
    plain, n = _numbers(rows[column]), measured(view).index(aggregate.column)

    def of(name: str) -> Floats:
        return correction(part(n, name))

    if aggregate.function is AggregateFunction.COUNT:
        return plain + of("count"), of("count_count")
    if aggregate.function is AggregateFunction.SUM:
        return plain + of("sum"), of("sum_sum")
    counted = _numbers(rows[counts_beside(view)[aggregate.column]])
    with np.errstate(divide="ignore", invalid="ignore"):
        everything = counted + of("count")
        mean = (np.where(counted > 0, plain, 0.0) * counted + of("sum")) / everything
        spread = of("sum_sum") - 2 * mean * of("count_sum") + mean * mean * of("count_count")
        return mean, spread / (everything * everything)


def _numbers(column: pa.ChunkedArray) -> Floats:
    found: Floats = pc.fill_null(column.cast(pa.float64()), math.nan).to_numpy().copy()
    return found


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
