"""Compare time zones with Spark around changes of offsets: hours that occur twice or not at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.expressions.evaluate import evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Zones with offset changes of half an hour, a skipped day, and changes a minute after midnight.
_ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Tehran",
    "America/St_Johns", "America/Goose_Bay", "Asia/Kathmandu", "America/Sao_Paulo",
    "Pacific/Kwajalein", "Europe/Dublin", "+05:30",
)  # fmt: skip
_MOMENT, _LOCAL = parse_type("timestamp"), parse_type("timestamp_ntz")
_SCOPE = Scope.of_stream("r", Stream(StreamName("r"), (("m", _MOMENT),)))
_MINUTES = (-181, -121, -120, -91, -61, -60, -59, -46, -31, -30, -16, -15, -14, -2, -1, 0, 1, 2, 14,
            15, 16, 29, 30, 31, 44, 59, 60, 61, 90, 119, 120, 121, 180, 1439, 1440)  # fmt: skip


def _changes(zone: str) -> list[datetime]:
    """Return the times at which the offset of a zone changes, from 1980 to 2037. For earlier years,
    time zone databases differ.
    """
    if zone.startswith("+"):
        return []
    info, found = ZoneInfo(zone), []
    day = datetime(1980, 1, 1, tzinfo=UTC)
    while day.year < 2037:
        after = day + timedelta(days=1)
        if day.astimezone(info).utcoffset() != after.astimezone(info).utcoffset():
            low, high = day, after
            while high - low > timedelta(minutes=1):
                middle = low + (high - low) // 2
                middle -= timedelta(seconds=middle.second, microseconds=middle.microsecond)
                middle = max(middle, low + timedelta(minutes=1))
                same = middle.astimezone(info).utcoffset() == day.astimezone(info).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            found.append(high)
        day = after
    return found


@pytest.mark.parametrize("zone", _ZONES[:-1])
def test_at_time_zone_is_duckdbs(zone: str) -> None:
    moments = {
        change + timedelta(minutes=minutes, hours=hours)
        for change in _changes(zone)
        for minutes in _MINUTES
        for hours in (-5, 0, 1, 6, 10)
    }
    table = pa.table(
        {
            "m": pa.array([*sorted(moments), None], pa.timestamp("us", "UTC")),
            "n": pa.array([*(one.replace(tzinfo=None) for one in sorted(moments)), None]),
        }
    )
    scope = Scope.of_stream("r", Stream(StreamName("r"), (("m", _MOMENT), ("n", _LOCAL))))
    items = [f"{name} AT TIME ZONE '{zone}'" for name in ("m", "n")]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("moments", table)
        wanted = connection.sql(f"SELECT {', '.join(items)} FROM moments").to_arrow_table()
    for number, item in enumerate(items):
        expr = typed(parse_expression(item), scope)
        found = evaluate(expr, lambda one: table.column(one.name).combine_chunks(), len(table))
        answer = wanted.column(number).cast(found.type)
        assert found.to_pylist() == answer.to_pylist()


@pytest.mark.spark
@pytest.mark.parametrize("zone", _ZONES)
def test_changes_of_offsets_are_sparks(spark: SparkSession, zone: str) -> None:
    moments = []
    for change in _changes(zone) or [datetime(2024, 3, 31, tzinfo=UTC)]:
        here = change.astimezone(ZoneInfo(zone)) if zone[0] != "+" else change
        for around in (change, here.replace(tzinfo=UTC)):
            moments += [around + timedelta(minutes=m, seconds=m % 3 * 20) for m in _MINUTES]
    column = pa.array(moments, pa.timestamp("us", "UTC"))
    frame = spark.createDataFrame(pa.table({"m": column}), schema="m timestamp").coalesce(1)
    texts = [f"{name}_utc_timestamp(m, '{zone}')" for name in ("from", "to")]
    answer = frame.selectExpr(*(f"unix_micros({t}) AS c{n}" for n, t in enumerate(texts))).toArrow()
    for n, text in enumerate(texts):
        expr = typed(parse_expression(text), _SCOPE)
        found = evaluate(expr, lambda _: column, len(column)).cast(pa.int64()).to_numpy()
        wanted = answer.column(n).to_numpy()
        wrong = np.flatnonzero(found != wanted)
        assert [(str(moments[w]), int(wanted[w] - found[w])) for w in wrong[:5]] == [], text
