"""Previews of statements before registration: in DuckDB's dialect, over the latest rows of streams.

The runtime keeps up to 256 of the latest rows of every stream (``protocol.measurements``). So the
service reads no source, and sources that can't be read again have a preview as well.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError

from anabranch_contract.protocol.measurements import LatestRows
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.types import FIELD_TYPE
from anabranch_planner.sql.dialects import SPARK, to_spark
from anabranch_planner.sql.quoted_names import read_names
from anabranch_planner.sql.syntax import what_is_wrong
from anabranch_service.errors import InvalidInput
from anabranch_service.tables.current import SentRows, typed_schema

_REMEDY = "explain the statement, or register it and follow its results"


def in_duckdb(sql: str, dialect: str, streams: Mapping[str, Stream]) -> str:
    """Translate a statement to DuckDB's dialect, with streams by their plain names.

    Raises:
        InvalidInput: it is not one SELECT, or a part of it has no equivalent in DuckDB.
        QueryError: its dialect is unknown, or it has no equivalent in Spark.
    """
    text, reader = to_spark(sql, dialect, streams), Dialect.get_or_raise(SPARK)
    try:
        tokens = reader.tokenize(text)
        read_names(text, tokens)
        found = [one for one in reader.parser().parse(tokens, text) if one is not None]
        query = found[0] if len(found) == 1 else None
        if isinstance(query, exp.Create | exp.Insert):
            query = query.expression
        if not isinstance(query, exp.Query):
            raise InvalidInput(
                "not-previewed", "it is not one SELECT", field="sql", remedy="send one SELECT"
            )
        for table in query.find_all(exp.Table):
            table.set("db", None)
            table.set("catalog", None)
        # Some names, such as "at", are keywords of DuckDB.
        return str(query.sql("duckdb", identify=True, unsupported_level=ErrorLevel.RAISE))
    except UnsupportedError as cause:
        message = f"a part of it has no equivalent in DuckDB: {cause}"[:300]
    except (SqlglotError, RecursionError) as cause:
        message = what_is_wrong(cause)[0] if isinstance(cause, SqlglotError) else "it is too deep"
    raise InvalidInput("not-previewed", message, field="sql", remedy=_REMEDY)


def table_of(stream: StreamRecord, latest: LatestRows | None) -> tuple[int, SentRows]:
    """Return the number of a stream's latest rows, and the rows with the stream's present columns;
    no rows if none were published."""
    wanted = typed_schema([(column.name, column.type) for column in stream.columns])
    found = wanted.empty_table()
    if latest is not None:
        rows = pa.ipc.open_stream(base64.b64decode(latest.content)).read_all()
        known = {one.name: one.type for one in wanted}
        there = [one.name for one in rows.schema if known.get(one.name) == one.type]
        # Rows of an earlier stream with the same name may have none of the columns.
        found = rows.select(there) if there else found
    for place, name in enumerate(found.schema.names):
        field = wanted.field(name)
        if FIELD_TYPE in (field.metadata or {}) and pa.types.is_integer(field.type):
            found = found.set_column(place, name, _months(found[name]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    return found.num_rows, SentRows(base64.b64encode(sink.getvalue()).decode())


def _months(column: pa.ChunkedArray) -> pa.Array:
    """Convert intervals of months, which are stored as numbers, to DuckDB's intervals."""
    values = [None if months is None else (months, 0, 0) for months in column.to_pylist()]
    return pa.array(values, pa.month_day_nano_interval())
