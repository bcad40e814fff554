"""The time axis that Spark's watermark moves on.

Spark's watermark begins at 0 and never falls below it, has milliseconds, and rows that end at or
below it are late. So Spark is not given event times but places on an axis: all times from
:data:`FIRST` to :data:`LAST` moved to positive numbers, others cut to these limits. Places order
as times do, so what ends below a clock on one ends below it on the other.

The clock (see ``inputs``) is the only thing that moves the watermark. Rows are given a delay longer
than the axis, the clock none, and the greater watermark is taken: whatever event times rows have,
one in the year 9999 or 0001, none is late by another. Spark's own watermark, the greatest event
time less a delay, would let go what slower streams still add to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The limits in microseconds from 1970 on: 126,752 years before and after it.
FIRST, LAST = -4 * 10**18, 4 * 10**18
#: The place of ``FIRST``: not 0, where the watermark begins.
_ORIGIN = 1000
#: The column of places.
END = "anabranch_end"
#: 274,000 years. The axis has 253,505.
_NEVER_LATE = "100000000 days"
#: Before all places; a comparison that the optimiser does not see through.
_NOWHERE = "timestamp'1970-01-01 00:00:00'"


def micros_of(time: str) -> str:
    """The microseconds from 1970 on of a timestamp of either type, as Spark's SQL."""
    return f"unix_micros(cast({time} as timestamp))"


def place(micros: str) -> str:
    """The place of a time, as Spark's SQL.

    Args:
        micros: an expression of type bigint; NULL is no time, and has no limit.
    """
    return f"timestamp_micros(least(greatest({micros}, {FIRST}), {LAST}) - {FIRST} + {_ORIGIN})"


def never_late(rows: DataFrame) -> DataFrame:
    """``rows``, whose places are in :data:`END`, none of them ever late by another."""
    return rows.withWatermark(END, _NEVER_LATE)


def moving(clocks: DataFrame) -> DataFrame:
    """No rows, but a watermark that is moved to the greatest of the places of ``clocks``."""
    return clocks.withWatermark(END, "0 seconds").where(f"`{END}` < {_NOWHERE}")
