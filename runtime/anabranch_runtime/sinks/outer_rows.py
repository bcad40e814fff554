"""Columns that a task adds to an outer join's left rows and pairs, after the projected columns.

The *batch* in which a left row's last member arrived distinguishes it from equal left rows. If load
shedding has withheld tuples since that batch, a row without pairs may still have a partner
(``views.undecided``). The *floor* is the watermark of the partner's stream at the start of the
batch that found the row. If the row's deadline (latest event time of a partner) had passed by then,
the same batch finds all its pairs. So ``max(deadline, floor)`` is equal for the row and its pairs,
and not below the clock up to which earlier batches released rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_runtime.storage.partial import Partial

BATCH, FLOOR = "anabranch_batch", "anabranch_floor"
#: Schema of the columns that are added.
SCHEMA = pa.schema([(BATCH, pa.int64()), (FLOOR, pa.timestamp("us", "UTC"))])


def left_row_columns(
    query: QuerySpec, partner: str, partial: Partial, marks: Mapping[str, int]
) -> list[pa.Array]:
    """Return the columns of :data:`SCHEMA` for an outer join's left rows or pairs.

    Args:
        query: the join of left rows, or of pairs. ``partner``: the partner's stream.
        marks: stream -> watermark in microseconds at the start of the batch of these results.
    """
    labels = [label for _, label, _ in query.members]
    if query.outer is not None and len(labels) > 1:
        # Without the right row of a pair, the last one in FROM order. (Right rows of an ASOF join
        # come without a left row.)
        labels.pop()
    batches = np.maximum.reduce([partial.batch(label) for label in labels])
    floor = pa.scalar(marks.get(partner), SCHEMA.field(FLOOR).type)
    return [pa.array(batches, pa.int64()), pa.repeat(floor, partial.length)]
