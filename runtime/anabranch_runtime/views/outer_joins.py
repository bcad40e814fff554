"""Left rows with and without partners (``contract.queries.outer_joins``), by Spark's aggregation.

Left rows and pairs of equal left columns are one group, which Spark keeps until the watermark has
passed its *end* and then gives, once. Its end is the deadline; or where that is past when the row
comes to be (its own members came late), the clock as it was: all pairs of such a row come with it,
in the same release, and Spark takes nothing that ends before its watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_runtime.columns.arrow_types import arrow_type, schema_of
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.sinks.view_inputs import CLOCK, LEFT_PREFIX
from anabranch_runtime.views.groups import BEFORE_ALL, NEVER_LATE, released

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from anabranch_contract.plans.ruleset import QuerySpec
    from anabranch_contract.queries.expressions import Column
    from anabranch_contract.queries.outer_joins import OuterJoin

_END, _LEFT, _PAIRS = "anabranch_end", "anabranch_left", "anabranch_pairs"
#: Spark's watermark has milliseconds, and lets go what ends at it.
_TICK = 1000


def decided(session: SparkSession, query: QuerySpec, source: Path) -> DataFrame:
    """Pairs as they come (of a left join), and left rows that have been decided.

    Of these, ``anabranch_left`` says how many there were and ``anabranch_pairs`` how many pairs.
    """
    from pyspark.sql import functions as sf

    outer = query.outer
    assert outer is not None
    frame = released(session, query, source)
    left = [f"`{name}`" for name, _ in outer.left]
    others = [f"`{o.name}`" for o in query.projection if f"`{o.name}`" not in left]
    limits = [f"timestamp_micros(unix_micros(`{n}`) + {micros})" for n, micros in outer.times]
    floor = (
        "timestamp_micros(cast(nullif(regexp_extract(_metadata.file_path, "
        "'@(-?[0-9]*)/', 1), '') as bigint))"
    )
    deadline = limits[0] if len(limits) == 1 else f"least({', '.join(limits)})"
    is_left = f"_metadata.file_name like '{LEFT_PREFIX}%'"
    rows = frame.where(f"{CLOCK} is null")
    tagged = rows.selectExpr(
        *left,
        f"coalesce(greatest({deadline}, {floor}), {BEFORE_ALL}) as {_END}",
        f"cast({is_left} as int) as {_LEFT}",
    ).withWatermark(_END, NEVER_LATE)
    moment = f"timestamp_millis(floor((unix_micros({CLOCK}) - 1) / {_TICK}))"
    clock = (
        frame.where(f"{CLOCK} is not null")
        .selectExpr(*left, f"{moment} as {_END}", f"0 as {_LEFT}")
        .withWatermark(_END, "0 seconds")
        .where(f"{_END} < {BEFORE_ALL}")
    )
    groups = (
        tagged.unionByName(clock)
        .coalesce(1)
        .groupBy(*(name.strip("`") for name in left), _END)
        .agg(sf.sum(_LEFT).alias(_LEFT), sf.sum(1 - sf.col(_LEFT)).alias(_PAIRS))
    )
    nothing = [
        f"cast(null as {o.expr.type}) as `{o.name}`"
        for o in query.projection
        if f"`{o.name}`" in others
    ]
    closed = groups.selectExpr(*left, *nothing, _LEFT, _PAIRS)
    if outer.kind is not JoinKind.LEFT:
        return closed
    pairs = rows.where(f"not ({is_left})").selectExpr(
        *left, *others, f"cast(0 as bigint) as {_LEFT}", f"cast(-1 as bigint) as {_PAIRS}"
    )
    return closed.unionByName(pairs.coalesce(1))


def results(outer: OuterJoin, rows: pa.Table) -> pa.Table:
    """The join's results among ``rows`` (of :func:`decided`).

    Raises:
        ExpressionError: a row on which Spark would fail too.
    """
    left, pairs = rows[_LEFT].combine_chunks(), rows[_PAIRS].combine_chunks()
    times = left.to_numpy(zero_copy_only=False)
    if outer.kind is JoinKind.SEMI:
        times = np.where(pc.greater(pairs, 0), times, 0)
    else:
        times = np.where(pc.equal(pairs, 0), times, 0)
        # A pair is itself.
        times = np.where(pc.equal(pairs, -1), 1, times)
    chosen = rows.take(pa.array(np.repeat(np.arange(len(times)), times))).combine_chunks()

    def fetch(column: Column) -> pa.Array:
        found = chosen[column.name].combine_chunks()
        return found.cast(arrow_type(column.type))

    schema = schema_of(outer.projection)
    arrays = [evaluate(o.expr, fetch, chosen.num_rows) for o in outer.projection]
    return pa.Table.from_arrays(arrays, schema=schema)
