"""Grouping and aggregating joined rows by Spark's stateful aggregation.

The clock (see ``inputs``) becomes Spark's watermark by which it lets old windows go. Spark's own,
the greatest event time less a delay, would let go what slower streams still add to; so rows are
given a delay beyond all times, the clock none, and the greater of the two is taken, which is the
clock's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from anabranch_contract.queries.views import WINDOW_END, WINDOW_START, Function
from anabranch_runtime.sinks.view_inputs import CLOCK

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from anabranch_contract.plans.ruleset import QuerySpec
    from anabranch_contract.queries.views import Aggregate, TimeWindow

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
#: The delay of a watermark that no row is ever behind.
NEVER_LATE = "36500 days"
#: Before all event times; a comparison that the optimiser does not see through.
BEFORE_ALL = "timestamp'0001-01-01 00:00:00'"


def view_session(session: SparkSession) -> SparkSession:
    """A session of the same Spark, set up for views."""
    made = session.newSession()
    for key, value in SETTINGS.items():
        made.conf.set(key, value)
    return made


def released(session: SparkSession, query: QuerySpec, source: Path, *others: str) -> DataFrame:
    """The frame over what is released to ``source``: rows or a clock.

    Args:
        others: declarations of columns beside those of ``query``.
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
    """The joined rows that are released to ``source``, as they come."""
    assert query.view is not None
    frame = released(session, query, source)
    rows = frame.where(f"{CLOCK} is null").drop(CLOCK)
    window = query.view.window
    if window is None:
        return rows.coalesce(1)
    others = [f"`{o.name}`" for o in query.projection if o.name != window.column]
    clock = (
        frame.where(f"{CLOCK} is not null")
        .selectExpr(*others, f"{CLOCK} as `{window.column}`")
        .withWatermark(window.column, "0 seconds")
        .where(f"`{window.column}` < {BEFORE_ALL}")
    )
    return rows.withWatermark(window.column, NEVER_LATE).unionByName(clock).coalesce(1)


def grouped(rows: DataFrame, query: QuerySpec) -> DataFrame:
    """Keys and aggregates of all rows so far."""
    from pyspark.sql import functions as sf

    view = query.view
    assert view is not None
    keys: list[Any] = [sf.col(f"`{name}`") for name, _ in view.keys]
    if view.window is not None:
        keys.append(_window(view.window).alias("window"))
    aggregates = [_aggregate(a).alias(a.name) for a in view.aggregates]
    if not aggregates:
        aggregates = [sf.count(sf.lit(1)).alias("anabranch_rows")]
    shown: list[Any] = [sf.col(f"`{name}`") for name, _ in view.keys]
    if view.window is not None:
        shown.append(sf.col("window.start").alias(WINDOW_START))
        shown.append(sf.col("window.end").alias(WINDOW_END))
    shown += [sf.col(f"`{a.name}`") for a in view.aggregates]
    if not shown:
        shown = [sf.lit(1).alias("anabranch_rows")]
    return rows.groupBy(*keys).agg(*aggregates).select(*shown)


def _window(window: TimeWindow) -> SparkColumn:
    from pyspark.sql import functions as sf

    def text(micros: int) -> str:
        return f"{micros} microseconds"

    return sf.window(
        f"`{window.column}`", text(window.length), text(window.slide), text(window.start)
    )


def _aggregate(aggregate: Aggregate) -> SparkColumn:
    from pyspark.sql import functions as sf

    if aggregate.column is None:
        return sf.count(sf.lit(1))
    column = sf.col(f"`{aggregate.column}`")
    if aggregate.distinct:
        # Spark refuses count(DISTINCT) over streams; a set says the same, and NULL is not in it.
        return sf.size(sf.collect_set(column)).cast("bigint")
    functions = {
        Function.COUNT: sf.count,
        Function.SUM: sf.sum,
        Function.AVG: sf.avg,
        Function.MIN: sf.min,
        Function.MAX: sf.max,
        Function.STDDEV_SAMP: sf.stddev_samp,
        Function.STDDEV_POP: sf.stddev_pop,
        Function.VAR_SAMP: sf.var_samp,
        Function.VAR_POP: sf.var_pop,
    }
    return functions[aggregate.function](column)
