"""Grouping and aggregating joined rows by Spark's stateful aggregation.

Windows are grouped by as they are, and by the places of their ends (``event_time``) beside them,
which follow from them: by these Spark lets go the windows that end before the clock.
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

#: Settings of the session in which views are maintained.
SETTINGS = {
    # One task per view: views take turns, and a batch's barrier stage needs all slots but one.
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
#: Whether Spark looks at its state where the watermark has moved and nothing else is new.
WITHOUT_ROWS = "spark.sql.streaming.noDataMicroBatches.enabled"
#: The column of windows.
_WINDOW = "anabranch_window"


def view_session(session: SparkSession) -> SparkSession:
    """A session of the same Spark, set up for views."""
    made = session.newSession()
    for key, value in SETTINGS.items():
        made.conf.set(key, value)
    return made


def released(session: SparkSession, query: QuerySpec, source: Path, *others: str) -> DataFrame:
    """The frame over the files released to ``source``: rows or a clock.

    Args:
        others: declarations of columns beside the columns of ``query``.
    """
    declared = [f"`{o.name}` {o.expr.type}" for o in query.projection]
    return (
        session.readStream.schema(", ".join((*declared, *others, f"`{CLOCK}` timestamp")))
        .option("recursiveFileLookup", "true")
        .parquet(_literal(source))
    )


def _literal(path: Path) -> str:
    """``path`` as a pattern of Hadoop's that nothing else matches."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))


def joined_rows(session: SparkSession, query: QuerySpec, source: Path) -> DataFrame:
    """The joined rows that are released to ``source``, as they come; once for each window that they
    fall into.
    """
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
    """Keys and aggregates of all rows so far."""
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
        # Spark refuses count(DISTINCT) over streams; a set says the same, and NULL is not in it.
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
