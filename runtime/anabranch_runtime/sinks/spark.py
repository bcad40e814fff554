"""Sinks written by Spark in any format of ``DataFrameWriter``, including installed extensions.

Idempotence of a repeated batch depends on the format:

* files (``json``, ``csv``, ``orc``, ...): each batch has a directory of its own,
  ``<path>/anabranch_batch=<batch>``, which is replaced;
* ``jdbc`` with the option ``anabranch.batchColumn``: rows of that query and batch are deleted,
  then inserted in one transaction;
* all others, including Spark's ``kafka`` and ``jdbc`` without that option, are not idempotent: a
  crash between the write and the commit of a batch writes its results twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sinks import (
    BATCH_COLUMN,
    KEY,
    OWN,
    SinkKind,
    SinkSpec,
    partition_columns,
)
from anabranch_runtime.columns.arrow_types import field_type
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sources.permitted import permitted_sink
from anabranch_runtime.storage.documents import sync_filesystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Prefix of the name of a batch's directory.
BATCH_DIRECTORY = "anabranch_batch"
#: SQL type of the batch column in tables that Spark creates, and Spark's option for column types.
_MARK_TYPE, _COLUMN_TYPES = "VARCHAR(160)", "createTableColumnTypes"
#: Columns that Spark's Kafka writer understands.
_KAFKA = frozenset({"key", "value", "headers", "topic", "partition"})


def spark_writer(
    session: SparkSession, *, results: Path, namespace: str, access: AccessPolicy
) -> Callable[[Delivery], None]:
    """Return a writer of deliveries through Spark.

    Args:
        session: the pipeline's session.
        results: the results directory, for file sinks without a path.
        namespace: the pipeline's namespace.
        access: the access policy for sinks.
    """

    def write(delivery: Delivery) -> None:
        sink = permitted_sink(delivery.sink, access, namespace)
        delivery = replace(delivery, sink=sink)
        frame = _frame(session, delivery)
        if sink.kind is SinkKind.FILES:
            _write_files(frame, delivery, results)
        elif sink.format == "jdbc":
            _write_jdbc(session, frame, delivery)
        elif sink.format == "kafka":
            _save(_messages(frame, delivery), sink, None)
        else:
            _save(frame, sink, sink.path)

    return write


def _frame(session: SparkSession, delivery: Delivery) -> DataFrame:
    # Spark is given the schema, so that it need not run a job to infer it.
    columns = ", ".join(f"`{_escaped(c.name)}` {field_type(c)}" for c in delivery.schema())
    frame = session.read.schema(columns).parquet(*(f"file://{p}" for p in delivery.files))
    added = delivery.sink.option(BATCH_COLUMN)
    if added is None:
        return frame
    return frame.withColumn(added, f.lit(delivery.mark))


def _escaped(name: str) -> str:
    return name.replace("`", "``")


def _save(
    frame: DataFrame,
    sink: SinkSpec,
    target: str | None,
    marks: dict[str, str] | None = None,
    mode: str = "append",
) -> None:
    options = {name: text for name, text in sink.options if not name.startswith(OWN)}
    writer = frame.write.format(sink.format).mode(mode).options(**options).options(**(marks or {}))
    parts = partition_columns(sink)
    if parts:
        writer = writer.partitionBy(*parts)
    if target is None:
        writer.save()
    else:
        writer.save(target)


def _write_files(frame: DataFrame, delivery: Delivery, results: Path) -> None:
    sink = delivery.sink
    base = sink.path or f"file://{results / delivery.query}"
    target = f"{base.rstrip('/')}/{BATCH_DIRECTORY}={delivery.batch:010d}"
    _save(frame, sink, target, mode="overwrite")
    local = _local(base)
    if local is not None and local.is_dir():
        sync_filesystem(local)


def _local(path: str) -> Path | None:
    """Return the directory of a local path, else None; as in Hadoop, escapes are not decoded."""
    plain = path.removeprefix("file://")
    return Path(plain) if plain.startswith("/") else None


def _messages(frame: DataFrame, delivery: Delivery) -> DataFrame:
    """Return messages for Spark's Kafka writer: rows with a column ``value`` as is, others as JSON.

    Headers (written with ``includeHeaders``) contain the query and the batch.
    """
    names = {name.lower() for name in frame.columns}
    key = delivery.sink.option(KEY)
    if "value" not in names or not names <= _KAFKA:
        made = [f.to_json(f.struct("*")).alias("value")]
        if key is not None:
            made.append(f.col(f"`{_escaped(key)}`").cast("string").alias("key"))
        if "topic" in names and delivery.sink.option("topic") is None:
            made.append(f.col("topic").cast("string").alias("topic"))
        frame = frame.select(*made)
    if "headers" not in names and (delivery.sink.option("includeHeaders") or "").lower() == "true":
        headers = [("anabranch-query", delivery.query), ("anabranch-batch", str(delivery.batch))]
        structs = [
            f.struct(f.lit(name).alias("key"), f.lit(text).cast("binary").alias("value"))
            for name, text in headers
        ]
        frame = frame.withColumn("headers", f.array(*structs))
    return frame


def _write_jdbc(session: SparkSession, frame: DataFrame, delivery: Delivery) -> None:
    sink = delivery.sink
    column = sink.option(BATCH_COLUMN)
    if column is None:
        _save(frame, sink, None)
        return
    _delete_batch(session, sink, column, delivery.mark)
    # Spark would create a string column as a CLOB, which some databases can't compare.
    given = sink.option(_COLUMN_TYPES)
    types = f"{column} {_MARK_TYPE}" if given is None else f"{given}, {column} {_MARK_TYPE}"
    marks = {} if column.lower() in (given or "").lower() else {_COLUMN_TYPES: types}
    # Spark inserts each partition in a transaction: use a single one.
    _save(frame.coalesce(1), sink, None, marks)


def _delete_batch(session: SparkSession, sink: SinkSpec, column: str, mark: str) -> None:
    """Delete the rows that an earlier attempt at the batch has inserted, if the table exists."""
    jvm: Any = session._jvm
    given = {name: text for name, text in sink.options if not name.startswith(OWN)}
    package = jvm.org.apache.spark.sql.execution.datasources.jdbc
    options = package.JdbcOptionsInWrite(jvm.PythonUtils.toScalaMap(given))
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(sink.option("url"))
    connection = dialect.createConnectionFactory(options).apply(-1)
    try:
        if not package.JdbcUtils.tableExists(connection, options):
            return
        connection.setAutoCommit(True)
        table, name = options.table(), dialect.quoteIdentifier(column)
        statement = connection.prepareStatement(f"DELETE FROM {table} WHERE {name} = ?")
        try:
            statement.setString(1, mark)
            statement.executeUpdate()
        finally:
            statement.close()
    finally:
        connection.close()
