"""Columns of left rows in an outer join's joined rows, beside the projection.

The *batch* in which a left row's last member arrived tells it from equal ones: rations since that
batch decide whether it is known to have no partner (``views.undecided``). The *floor* is the
watermark of the partner's stream as the batch began that found the row. All pairs of a left row
whose deadline had passed by then are found by that batch too, so ``max(deadline, floor)`` is the
same for all of them, and not before the clock of any earlier release.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_runtime.storage.partial import Partial

BATCH, FLOOR = "anabranch_batch", "anabranch_floor"
#: The columns beside the projection.
SCHEMA = pa.schema([(BATCH, pa.int64()), (FLOOR, pa.timestamp("us", "UTC"))])


def left_row_columns(
    query: QuerySpec, partner: str, partial: Partial, marks: Mapping[str, int]
) -> list[pa.Array]:
    """The columns of :data:`SCHEMA` for left rows or pairs.

    Args:
        query: one of the two joins of an outer join. ``partner``: the stream of that.
        marks: stream -> watermark in microseconds, as the batch began whose results these are.
    """
    labels = [label for _, label, _ in query.members]
    if query.outer is not None:
        # The partner is the last in FROM order.
        labels.pop()
    batches = np.maximum.reduce([partial.batch(label) for label in labels])
    floor = pa.scalar(marks.get(partner), SCHEMA.field(FLOOR).type)
    return [pa.array(batches, pa.int64()), pa.repeat(floor, partial.length)]
