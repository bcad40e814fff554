"""A stream from any streaming source of Spark's, by its format and options.

What the options of a registration become, ``anabranch_planner.spark_source`` says: it parses and
checks them here once more, for a record may be older than the checks of the service. Spark is only
given text that was rendered there.

Messages that are no such object as their stream declares are invalid, and so are rows with a value
that its column can't hold.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch_planner.errors import PlannerError
from anabranch_planner.spark_source import spark_source
from anabranch_planner.types import parse_type
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.blocks import SCHEMA, block_rows
from anabranch_runtime.sources.decode import schema_of
from anabranch_runtime.sources.invalid import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from anabranch_planner.errors import StructuredError
    from anabranch_runtime.control import StreamRecord
    from anabranch_runtime.sources.invalid import Decoded

#: Tuples per block.
BLOCK_ROWS = 1 << 16


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
    except PlannerError as cause:
        raise refused(record, cause) from cause
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


def refused(record: StreamRecord, cause: StructuredError) -> SourceError:
    """Why the source of ``record`` is not read: what a check of its registration says."""
    return SourceError(
        cause.code,
        cause.detail,
        field=f"streams.{record.name}.{cause.field or 'source'}",
        remedy=cause.remedy,
    )


def _blocks(session: SparkSession, record: StreamRecord) -> DataFrame:
    columns = [(c.name, parse_type(c.type)) for c in record.columns]
    source = spark_source(record.source.format, record.source.options, columns)
    reader = session.readStream.format(record.source.format).options(**source.options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    frame = reader.name(source_name(record)).load(record.source.path)
    if source.parsed is not None:
        frame = frame.selectExpr("*", source.parsed)
    # What arrived is put together of invalid rows only.
    selected = [*source.columns, f"if({source.invalid}, {source.arrived}, NULL)"]
    frame = frame.selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(selected)))
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
                yield from block_rows(name, _decoded(batch.slice(first, BLOCK_ROWS), schema))

    return convert_rows


def _decoded(part: pa.RecordBatch, schema: pa.Schema) -> Decoded:
    """Rows as Spark gives them; the last column has what arrived of invalid ones."""
    arrived = part.column(len(schema))
    columns = [c.cast(f.type) for c, f in zip(part.columns, schema, strict=False)]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    bad = arrived.is_valid().to_numpy(zero_copy_only=False)
    return split(rows, bad, arrived.take)
