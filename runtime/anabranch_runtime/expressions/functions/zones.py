"""Timestamps between UTC and a time zone, by the time zone database, as java.time does.

A local time that a zone skips is read as if its clock had not been put forward. A local time that
occurs twice is read as the earlier moment, or by AT TIME ZONE as the later one, as in PostgreSQL
and DuckDB. Years before 1900 and after 2200 are refused, since time zone databases differ in them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.time_zones import fixed_offset
from anabranch_runtime.columns.arrays import MICROS_PER_DAY, Ints, fixed, present, with_nulls
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError

#: Spans in microseconds within which no zone changes its offset: a minute from 1973 on, since some
#: zones changed a minute after midnight; a quarter of an hour from 2012 on.
_MINUTE, _QUARTER = 60_000_000, 15 * 60_000_000
_MINUTES_SINCE, _QUARTERS_SINCE = 3 * 365 * MICROS_PER_DAY, 15_340 * MICROS_PER_DAY
_FIRST, _LAST = -70 * 365 * MICROS_PER_DAY, 230 * 365 * MICROS_PER_DAY
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo | int:
    """Return the time zone with this name, or its offset in microseconds if that is fixed."""
    offset = fixed_offset(name)
    return ZoneInfo(name) if offset is None else offset


def _offsets(moments: Ints, name: str, *, local: bool, later: bool) -> Ints:
    """Return the zone's offset from UTC, in microseconds, at each moment.

    Args:
        local: moments are local times; if one occurs twice, the second is meant if ``later``.
    """
    zone = _zone(name)
    if isinstance(zone, int):
        return np.full(len(moments), zone, dtype=np.int64)
    size = np.where(moments >= _QUARTERS_SINCE, _QUARTER, _MINUTE)
    pieces = np.where(moments >= _MINUTES_SINCE, moments // size * size, moments)
    distinct, places = np.unique(pieces, return_inverse=True)

    def offset(micros: int) -> int:
        moment = _EPOCH + timedelta(microseconds=micros)
        if local:
            # Fold 0: for skipped and for repeated local times, the offset before the change.
            found = moment.replace(tzinfo=zone).utcoffset()
            second = moment.replace(tzinfo=zone, fold=1).utcoffset()
            if later and found is not None and second is not None:
                found = min(found, second)
        else:
            found = moment.astimezone(zone).utcoffset()
        assert found is not None
        return found // timedelta(microseconds=1)

    made: Ints = np.array([offset(one) for one in distinct.tolist()], dtype=np.int64)
    return made[places.reshape(-1)]


def _moved(*, local: bool, later: bool = False) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        # timezone() takes the zone as its first argument.
        moments, zone = (args[1], call.args[0]) if later else (args[0], call.args[1])
        assert isinstance(zone, Literal)
        valid = present(moments)
        micros = fixed(moments, np.int64)
        if valid is not None:
            micros = np.where(valid, micros, 0)
        if len(micros) and (micros.min() < _FIRST or micros.max() >= _LAST):
            raise ExpressionError(
                "unsupported",
                "a time before 1900 or after 2200 can't be moved to a time zone",
                remedy="filter such rows out first",
            )
        offsets = _offsets(micros, str(zone.value), local=local, later=later)
        found = micros - offsets if local else micros + offsets
        return with_nulls(found, arrow_type(call.type), valid)

    return kernel


#: Operation -> kernel.
ZONES: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "from_utc_timestamp": _moved(local=False),
    "timezone": _moved(local=True, later=True),
    "to_utc_timestamp": _moved(local=True),
}
