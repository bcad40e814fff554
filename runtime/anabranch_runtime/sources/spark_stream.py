"""A stream from any streaming source of Spark's, by its format and options.

Beside the options of the format itself, which go to Spark as they are, a source may have:

* ``payload = json``: the source's column ``value`` (Kafka's message, a line of text) is a JSON
  object, whose fields are the stream's columns.
* ``column.NAME``: an SQL expression over the source's columns that gives the stream's column
  ``NAME``; with ``payload`` also over ``data``, the parsed object.
* ``schema``: for files, the columns that they have, where these are not the stream's.

Messages that are no such object are counted as invalid.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.blocks import SCHEMA, block_row
from anabranch_runtime.sources.decode import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from anabranch_runtime.control import StreamRecord

#: Tuples per block.
BLOCK_ROWS = 1 << 16
#: Formats that don't know their columns.
_FILES = ("parquet", "json", "csv", "orc", "xml")
_COLUMN = "column."
_INVALID = "#invalid"
_CORRUPT = "#corrupt"


def spark_blocks(session: SparkSession, record: StreamRecord) -> DataFrame:
    """The stream as a streaming frame of blocks.

    Raises:
        SourceError: Spark can't read such a source: an unknown format, a missing option or path,
            an expression that means nothing.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return _blocks(session, record)
    except (PySparkException, Py4JJavaError, ValueError) as cause:
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        raise SourceError(
            "bad-source",
            f"Spark can't read format {record.source.format!r}: {' '.join(lines[:2])[:500]}",
            field=f"streams.{record.name}.source",
            remedy="correct the source's format, path and options; a connector's package must be"
            " on Spark's class path",
        ) from cause


def source_name(record: StreamRecord) -> str:
    """The name under which Spark keeps the source's offsets: another if it is another source.

    Another also once the stream has been registered anew. For Spark may or may not remember how far
    a source was that comes back: it does unless two batches were committed without it. (A stream of
    an earlier release has no registration, and its source the name that it had.)
    """
    source = record.source
    made_of = repr((source.format, source.path, sorted(source.options.items())))
    made_of += record.registration
    return f"{record.name}_{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"


def _blocks(session: SparkSession, record: StreamRecord) -> DataFrame:
    options = dict(record.source.options)
    payload, schema = options.pop("payload", None), options.pop("schema", None)
    if payload not in (None, "json"):
        raise ValueError(f"payload {payload!r} is unknown; give json, or leave it out")
    names = {c.name for c in record.columns}
    expressions = {
        key.removeprefix(_COLUMN): options.pop(key)
        for key in list(options)
        if key.startswith(_COLUMN)
    }
    for name in expressions.keys() - names:
        raise ValueError(f"option {_COLUMN}{name}: the stream has no column {name!r}")
    declared = ", ".join(f"`{c.name}` {c.type}" for c in record.columns)
    reader = session.readStream.format(record.source.format).options(**options)
    if record.source.format in _FILES or schema is not None:
        reader = reader.schema(schema or declared)
    frame = reader.name(source_name(record)).load(record.source.path)
    invalid, default = "false", "`{}`"
    if payload == "json":
        parsed = (
            f"from_json(cast(value as string), '{declared}, `{_CORRUPT}` string',"
            f" map('columnNameOfCorruptRecord', '{_CORRUPT}'))"
        )
        frame = frame.selectExpr("*", f"{parsed} as data")
        invalid, default = f"data is null or data.`{_CORRUPT}` is not null", "data.`{}`"
    columns = [
        f"cast({expressions.get(c.name, default.format(c.name))} as {c.type}) as `{c.name}`"
        for c in record.columns
    ]
    frame = frame.selectExpr(*columns, f"{invalid} as `{_INVALID}`")
    return frame.mapInArrow(_to_blocks(record), SCHEMA)


def _to_blocks(
    record: StreamRecord,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows of one source to blocks of its stream."""
    name = record.name
    columns = tuple((c.name, c.type) for c in record.columns)

    def convert_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = schema_of(columns)
        for batch in batches:
            for first in range(0, batch.num_rows, BLOCK_ROWS):
                part = batch.slice(first, BLOCK_ROWS)
                bad = part.column(len(columns))
                invalid = pc.sum(bad).as_py() or 0
                if invalid:
                    part = part.filter(pc.invert(bad))
                typed = [c.cast(f.type) for c, f in zip(part.columns, schema, strict=False)]
                rows = pa.RecordBatch.from_arrays(typed, schema=schema)
                yield block_row(name, rows, invalid)

    return convert_rows
