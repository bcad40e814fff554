"""Aggregates over all groups of a view (``contract.queries.views.Total``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import DataType
from anabranch_contract.queries.views import View, ViewAggregate
from anabranch_runtime.columns.arrays import Bools
from anabranch_runtime.columns.arrow_types import arrow_type, spark_type
from anabranch_runtime.tables.aggregates import Aggregates
from anabranch_runtime.tables.inputs import Inputs
from anabranch_runtime.tables.words import Texts


def totals_of(view: View, groups: pa.RecordBatch, live: Bools) -> dict[str, pa.Scalar]:
    """Return the view's totals by name, from the aggregates of all ``groups`` that are ``live``.

    Raises:
        ExpressionError: a sum overflows.
    """
    kinds: dict[str, DataType] = {
        t.aggregate: spark_type(groups.column(t.aggregate).type) for t in view.totals
    }
    wanted = [
        ViewAggregate(t.name, t.function, t.aggregate, distinct=False, type=t.type)
        for t in view.totals
    ]
    aggregates = Aggregates(wanted, kinds, Texts(), deletes=False)
    some = groups.select(list(kinds)).filter(pa.array(live))
    state = np.zeros((1, aggregates.width), np.int64)
    rows, zeros = Inputs(some, kinds), np.zeros(some.num_rows, np.int64)
    aggregates.add(state, zeros, zeros, rows, np.ones(some.num_rows, np.int64))
    values = aggregates.values(state, np.zeros(1, np.int64))
    return {
        t.name: value.cast(arrow_type(t.type))[0]
        for t, value in zip(view.totals, values, strict=True)
    }
