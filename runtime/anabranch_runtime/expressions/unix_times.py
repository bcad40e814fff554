"""Timestamps as numbers of seconds, milliseconds or microseconds since 1970, and back.

As in Spark, a number that exceeds the range of timestamps is an error, and timestamps before 1970
are rounded down.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.types import DataType
from anabranch_runtime.columns.arrays import fixed, overflow, present, with_nulls
from anabranch_runtime.columns.arrow_types import arrow_type

#: Operation -> microseconds in the unit of its argument.
MADE = {"timestamp_seconds": 1_000_000, "timestamp_millis": 1_000, "timestamp_micros": 1}
#: Operation -> microseconds in the unit of its result.
COUNTED = {"unix_seconds": 1_000_000, "unix_millis": 1_000, "unix_micros": 1}


def convert(op: str, values: pa.Array, kind: DataType) -> pa.Array:
    """Convert numbers to timestamps (``op`` in ``MADE``), or the reverse (in ``COUNTED``).

    Raises:
        ExpressionError: a number exceeds the range of timestamps.
    """
    target = arrow_type(kind)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)
    if op in MADE:
        try:
            micros = pc.multiply_checked(values.cast(pa.int64()), pa.scalar(MADE[op], pa.int64()))
        except pa.ArrowInvalid as error:
            raise overflow(kind) from error
        return micros.view(target)
    micros = fixed(values.view(pa.int64()), np.int64)
    return with_nulls(micros // COUNTED[op], target, present(values))
