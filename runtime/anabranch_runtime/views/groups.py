"""Grouping and aggregating joined rows by Spark's stateful aggregation.

Rows are grouped by the window and also by the position of its end (``event_time``), which depends
on the window only. By this position Spark drops the state of windows that end before the clock.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.views import (
    WINDOW_END,
    WINDOW_START,
    AggregateFunction,
    TimeWindow,
    ViewAggregate,
)
from anabranch_runtime.sinks.view_inputs import CLOCK
from anabranch_runtime.views.event_time import END, micros_of, moving, never_late, place

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

#: Spark settings of the session that maintains views.
SETTINGS = {
    # One task per view, as batches leave one task slot free (their barrier stage needs the rest).
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state"
    ".RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.multipleWatermarkPolicy": "max",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "4",
}
#: Setting: whether Spark runs a micro-batch if only the watermark has moved.
WITHOUT_ROWS = "spark.sql.streaming.noDataMicroBatches.enabled"
#: Column with the window of a group.
_WINDOW = "anabranch_window"


def view_session(session: SparkSession) -> SparkSession:
    """Return a new session on the same SparkContext with the settings for views."""
    made = session.newSession()
    for key, value in SETTINGS.items():
        made.conf.set(key, value)
    return made


def released(session: SparkSession, query: QuerySpec, source: Path, *others: str) -> DataFrame:
    """Return Spark's frame over the files in ``source``: rows, or a clock (event time).

    Args:
        others: declarations of additional columns, after the columns of ``query``.
    """
    declared = [f"`{o.name}` {o.expr.type}" for o in query.projection]
    return (
        session.readStream.schema(", ".join((*declared, *others, f"`{CLOCK}` timestamp")))
        .option("recursiveFileLookup", "true")
        .parquet(_literal(source))
    )


def _literal(path: Path) -> str:
    """Return ``path`` as a Hadoop glob pattern that matches only this path."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))


def joined_rows(session: SparkSession, query: QuerySpec, source: Path) -> DataFrame:
    """Return Spark's frame of joined rows released to ``source``, each row once per window."""
    assert query.view is not None
    frame = released(session, query, source)
    rows = frame.where(f"{CLOCK} is null").drop(CLOCK)
    window = query.view.window
    if window is None:
        return rows.coalesce(1)
    columns = [f"`{o.name}`" for o in query.projection]
    ends = rows.withColumn(_WINDOW, _window(window)).selectExpr(
        *columns, _WINDOW, f"{place(micros_of(f'{_WINDOW}.end'))} as {END}"
    )
    clocks = frame.where(f"{CLOCK} is not null").selectExpr(
        *columns,
        f"cast(null as struct<start: timestamp, end: timestamp>) as {_WINDOW}",
        f"{place(micros_of(CLOCK))} as {END}",
    )
    return never_late(ends).unionByName(moving(clocks)).coalesce(1)


def grouped(rows: DataFrame, query: QuerySpec) -> DataFrame:
    """Return the streaming frame of groups: grouping keys, and aggregates over all rows so far."""
    from pyspark.sql import functions as sf

    view = query.view
    assert view is not None
    keys: list[Any] = [sf.col(f"`{name}`") for name, _ in view.keys]
    if view.window is not None:
        keys += [sf.col(_WINDOW), sf.col(END)]
    aggregates = [_aggregate(a).alias(a.name) for a in view.aggregates]
    if not aggregates:
        aggregates = [sf.count(sf.lit(1)).alias("anabranch_rows")]
    shown: list[Any] = [sf.col(f"`{name}`") for name, _ in view.keys]
    if view.window is not None:
        shown.append(sf.col(f"{_WINDOW}.start").alias(WINDOW_START))
        shown.append(sf.col(f"{_WINDOW}.end").alias(WINDOW_END))
    shown += [sf.col(f"`{a.name}`") for a in view.aggregates]
    if not shown:
        shown = [sf.lit(1).alias("anabranch_rows")]
    return rows.groupBy(*keys).agg(*aggregates).select(*shown)


def _window(window: TimeWindow) -> SparkColumn:
    from pyspark.sql import functions as sf

    def text(micros: int) -> str:
        return f"{micros} microseconds"

    column = sf.col(f"`{window.column}`").cast("timestamp")
    return sf.window(column, text(window.length), text(window.slide), text(window.start))


def _aggregate(aggregate: ViewAggregate) -> SparkColumn:
    from pyspark.sql import functions as sf

    if aggregate.column is None:
        return sf.count(sf.lit(1))
    column = sf.col(f"`{aggregate.column}`")
    if aggregate.distinct:
        # Spark refuses count(DISTINCT) over streams; the size of the set, without NULL, is equal.
        return sf.size(sf.collect_set(column)).cast("bigint")
    functions = {
        AggregateFunction.COUNT: sf.count,
        AggregateFunction.SUM: sf.sum,
        AggregateFunction.AVG: sf.avg,
        AggregateFunction.MIN: sf.min,
        AggregateFunction.MAX: sf.max,
        AggregateFunction.STDDEV_SAMP: sf.stddev_samp,
        AggregateFunction.STDDEV_POP: sf.stddev_pop,
        AggregateFunction.VAR_SAMP: sf.var_samp,
        AggregateFunction.VAR_POP: sf.var_pop,
    }
    return functions[aggregate.function](column)
