"""Generated events for examples: times within a day, slightly disordered rows, a closing row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.random import Generator

#: Seed of the data in the READMEs.
SEED: Final = 49
BEGIN: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
#: Length of the generated time span, in microseconds.
SPAN: Final = 12 * HOUR
#: Disorder of rows in event time, in microseconds; streams declare twice as much lateness.
_DISORDER: Final = 5 * MINUTE

Columns = Mapping[str, Any]


def moments(rng: Generator, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Draw random microseconds within the time span."""
    return rng.integers(0, SPAN, count)


def times(micros: Sequence[int] | np.ndarray[Any, Any]) -> pa.Array:
    """Return timestamps from microseconds since :data:`BEGIN`."""
    begin = int(BEGIN.timestamp()) * SECOND
    return pa.array(np.asarray(micros, np.int64) + begin, pa.timestamp("us", "UTC"))


def cents(values: np.ndarray[Any, Any]) -> pa.Array:
    """Return amounts of money as ``decimal(10,2)``, rounded to whole cents."""
    return pa.array([Decimal(int(value)).scaleb(-2) for value in values], pa.decimal128(10, 2))


def stream(
    rng: Generator, columns: Columns, ts: np.ndarray[Any, Any], closing: Columns
) -> pa.Table:
    """Return rows in the order of arrival, with a last row a day later, which moves all watermarks
    past all deadlines.

    Args:
        ts: event time of each row, in microseconds since :data:`BEGIN`.
        closing: columns of the last row, which no query may match.
    """
    order = np.argsort(ts + rng.integers(0, _DISORDER, len(ts)), kind="stable")
    rows = pa.table({**columns, "ts": times(ts)}).take(pa.array(order))
    last = {**closing, "ts": BEGIN + dt.timedelta(hours=36)}
    return pa.concat_tables([rows, pa.Table.from_pylist([last], rows.schema)])
