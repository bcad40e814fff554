"""Maintained tables: the state of a query's post-join part, and its changes.

A table's content depends only on the multiset of the rows that it has got, not on their order or
their division into batches. Sums, averages, variances and covariances of floats are rounded once,
so that this holds for them too (``sums`` names the exception).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.queries.views import View
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.tables.changes import Changes
from anabranch_runtime.tables.groups import GroupedTable
from anabranch_runtime.tables.inputs import Inputs, one_batch
from anabranch_runtime.tables.rankings import RankedTable


class MaintainedTable:
    """The table of one view.

    Args:
        view: the post-join part.
        rows: schema of the joined rows: the columns that the view reads.
        deletes: whether rows may be deleted. If not, groups keep less.
    """

    def __init__(self, view: View, rows: pa.Schema, *, deletes: bool = False) -> None:
        self.view, self._rows, self._deletes = view, rows, deletes
        self._kinds = {field.name: spark_type(field.type) for field in rows}
        self._changes = Changes(view)
        self._table: GroupedTable | RankedTable
        if view.grouped:
            self._table = GroupedTable(view, self._kinds, deletes=deletes)
        else:
            self._table = RankedTable(view, self._kinds, deletes=deletes)

    def apply(
        self, rows: pa.Table | pa.RecordBatch, weights: NDArray[np.int64] | None, version: int
    ) -> pa.Table:
        """Add weighted rows, and return the changes of the table's rows.

        Args:
            weights: net number of times that each row is inserted (negative: deleted); None: once.
            version: version of the changes.

        Raises:
            ExpressionError: an aggregate overflows, or an expression fails. The table is unchanged.
            ValueError: a row is deleted from a table without ``deletes``.
        """
        batch = one_batch(rows)
        if weights is None:
            weights = np.ones(batch.num_rows, np.int64)
        elif not self._deletes and len(weights) and int(weights.min()) < 0:
            raise ValueError("a row is deleted from a table that only gets new rows")
        if not batch.num_rows:
            return self._changes.nothing()
        return self._table.apply(Inputs(batch, self._kinds), np.array(weights, np.int64), version)

    def first_changes(self, version: int) -> pa.Table:
        """Return the row that aggregates without GROUP BY have before any input."""
        if isinstance(self._table, RankedTable):
            return self._changes.nothing()
        return self._table.first_changes(version)

    def rows(self, limit: int | None) -> pa.Table:
        """Return the present rows in order, up to ``limit``: the view's columns, hidden grouping or
        partition columns, and the rank of ranked rows.
        """
        return self._table.rows(limit)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def bytes(self) -> int:
        """Return the approximate size in memory."""
        return self._table.bytes
