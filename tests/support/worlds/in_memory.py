"""A recorded scenario in the interpreter's form: the planner's streams, and rows as dicts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import DataType, parse_type
from tests.support.oracles.evaluate import Value
from tests.support.oracles.history import Batch
from tests.support.scenarios.file import Scenario, StreamEntry

_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


def load(scenario: Scenario) -> tuple[dict[str, Stream], list[Batch]]:
    """Return the streams, and the rows of every batch."""
    streams, rows = {}, {}
    for name, entry in scenario.streams.items():
        table = pq.read_table(entry.path)
        streams[name] = _stream(name, entry, table.schema)
        rows[name] = [
            {column: plain(value) for column, value in row.items()} for row in table.to_pylist()
        ]
    last = max(-(-len(rows[n]) // e.rows_per_batch) for n, e in scenario.streams.items())
    return streams, [_batch(scenario.streams, rows, number) for number in range(last)]


def plain(value: object) -> Value:
    """Return a Python value in the form of the planner's literals: dates as days, times as
    microseconds.
    """
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    assert value is None or isinstance(value, bool | int | float | str | bytes | Decimal)
    return value


def _stream(name: str, entry: StreamEntry, schema: pa.Schema) -> Stream:
    return Stream(
        StreamName(name),
        tuple((field.name, type_of(field.type)) for field in schema),
        entry.event_time,
        entry.lateness,
    )


def type_of(kind: pa.DataType) -> DataType:
    """Return the planner's name of an Arrow type."""
    if pa.types.is_decimal(kind):
        return parse_type(f"decimal({kind.precision},{kind.scale})")
    return parse_type(_NAMES[kind])


def _batch(
    entries: Mapping[str, StreamEntry], rows: Mapping[str, list[dict[str, Value]]], number: int
) -> Batch:
    return {
        name: rows[name][number * e.rows_per_batch : (number + 1) * e.rows_per_batch]
        for name, e in entries.items()
    }
