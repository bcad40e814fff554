"""Conversion of event times for Spark's watermark in the maintenance of views.

Spark's watermark starts at 0, is never negative, and has milliseconds; rows at or below it
are late. So Spark does not get event times but *positions*: times from :data:`FIRST` to
:data:`LAST` shifted to positive numbers, other times clipped to these limits. Positions have the
same order as times, so a window ends before the clock in positions exactly if it does in times.

Only the view's clock moves the watermark. Rows get a watermark delay longer than the axis, the
clock gets none, and Spark takes the greater watermark. So no row is late because of another row,
even one of the year 9999 or 0001. Spark's own watermark, the greatest event time less a delay,
would close windows to which slower streams still add rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Limits of the time axis in microseconds since 1970: 126,752 years before and after it.
FIRST, LAST = -4 * 10**18, 4 * 10**18
#: Position of ``FIRST``: greater than 0, at which Spark's watermark starts.
_ORIGIN = 1000
#: Column with a row's or clock's position.
END = "anabranch_end"
#: Watermark delay of rows: 274,000 years, more than the axis's 253,505 years.
_NEVER_LATE = "100000000 days"
#: A time before all positions, for a comparison that Spark's optimiser can't remove.
_NOWHERE = "timestamp'1970-01-01 00:00:00'"


def micros_of(time: str) -> str:
    """Return Spark SQL for the microseconds since 1970 of a timestamp, with or without zone."""
    return f"unix_micros(cast({time} as timestamp))"


def place(micros: str) -> str:
    """Return Spark SQL for the position of a time.

    Args:
        micros: SQL text of type bigint: microseconds since 1970; NULL: no time limit.
    """
    return f"timestamp_micros(least(greatest({micros}, {FIRST}), {LAST}) - {FIRST} + {_ORIGIN})"


def never_late(rows: DataFrame) -> DataFrame:
    """Give ``rows`` (positions in :data:`END`) a watermark delay by which no row is ever late."""
    return rows.withWatermark(END, _NEVER_LATE)


def moving(clocks: DataFrame) -> DataFrame:
    """Return an empty frame that moves Spark's watermark to the greatest position in ``clocks``."""
    return clocks.withWatermark(END, "0 seconds").where(f"`{END}` < {_NOWHERE}")
