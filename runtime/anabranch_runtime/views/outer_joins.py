"""Outer, semi and anti joins between streams (``contract.queries.outer_joins``), by Spark's
stateful aggregation of *left rows* and *pairs* (left row and matching right row).

A left row is *decided* (whether it has a match) once the watermark of the right input has passed
its *deadline*, the latest event time of a match. Left rows and pairs with equal left columns form a
group, which Spark keeps until its *end*, the deadline, and then emits once.

The deadline may have passed before a left row is complete. Then its batch finds all its pairs and
decides it at once, since the right input may never send again. If such a row is computed by a later
catch-up (after load shedding), its pairs may be found by another batch. Then the group ends at the
floor (``sinks.outer_rows``), equal for the row and its pairs, because Spark drops rows that end
before its watermark.

Left rows of different batches are in different groups, since load shedding may have withheld the
pairs of one batch and not of the other (``undecided``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.protocol.activations import LeftRows
from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_runtime.columns.arrow_types import arrow_type, schema_of
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.sinks.outer_rows import BATCH, FLOOR
from anabranch_runtime.sinks.view_inputs import CLOCK, LEFT_PREFIX
from anabranch_runtime.views.event_time import (
    END,
    FIRST,
    LAST,
    micros_of,
    moving,
    never_late,
    place,
)
from anabranch_runtime.views.groups import released
from anabranch_runtime.views.undecided import Undecided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEFT, _PAIRS = "anabranch_left", "anabranch_pairs"
#: Special values of a group's number of pairs: a single pair; a row or pair decided at once.
_PAIR, _AT_ONCE = -1, -2


def decided(session: SparkSession, query: QuerySpec, source: Path) -> DataFrame:
    """Return Spark's frame of single pairs (of a left join) and of decided groups of left rows.

    A group's column ``anabranch_left`` is its number of left rows, ``anabranch_pairs`` of pairs.
    """
    from pyspark.sql import functions as sf

    outer = query.outer
    assert outer is not None
    frame = released(session, query, source, f"`{BATCH}` bigint", f"`{FLOOR}` timestamp")
    left = [f"`{name}`" for name, _ in outer.left]
    keys = [*left, f"`{BATCH}`"]
    others = [f"`{o.name}`" for o in query.projection if f"`{o.name}`" not in left]
    # Bounds are clipped to Spark's time range, so that sums with times do not overflow.
    limits = [f"{micros_of(f'`{n}`')} + {_cut(bound)}" for n, bound in outer.times]
    floor = micros_of(FLOOR)
    deadline = limits[0] if len(limits) == 1 else f"least({', '.join(limits)})"
    is_left = f"_metadata.file_name like '{LEFT_PREFIX}%'"
    rows = frame.where(f"{CLOCK} is null")
    folder = "cast(regexp_extract(_metadata.file_path, '/([0-9]+)/[^/]*$', 1) as bigint)"
    # True if the batch in which the row's last member arrived found it, and not a catch-up.
    late = f"(coalesce({deadline} < {floor}, false) and {folder} = `{BATCH}`)"
    tagged = never_late(
        rows.where(f"not {late}").selectExpr(
            *keys,
            f"{place(f'coalesce(greatest({deadline}, {floor}), {FIRST})')} as {END}",
            f"cast({is_left} as int) as {_LEFT}",
        )
    )
    # A deadline equal to the watermark has not passed: a match may still have this time.
    clocks = frame.where(f"{CLOCK} is not null").selectExpr(
        *keys, f"{place(f'{micros_of(CLOCK)} - 1')} as {END}", f"0 as {_LEFT}"
    )
    groups = (
        tagged.unionByName(moving(clocks))
        .coalesce(1)
        .groupBy(*(name.strip("`") for name in keys), END)
        .agg(sf.sum(_LEFT).alias(_LEFT), sf.sum(1 - sf.col(_LEFT)).alias(_PAIRS))
    )
    nothing = [
        f"cast(null as {o.expr.type}) as `{o.name}`"
        for o in query.projection
        if f"`{o.name}`" in others
    ]
    at_once = rows.where(late).selectExpr(
        *keys,
        *nothing,
        f"cast({is_left} as bigint) as {_LEFT}",
        f"cast({_AT_ONCE} as bigint) as {_PAIRS}",
    )
    closed = groups.selectExpr(*keys, *nothing, _LEFT, _PAIRS)
    closed = closed.unionByName(at_once.coalesce(1))
    if outer.kind is not JoinKind.LEFT:
        return closed
    pairs = rows.where(f"not ({is_left})").selectExpr(
        *keys,
        *others,
        f"cast(0 as bigint) as {_LEFT}",
        f"cast({_PAIR} as bigint) as {_PAIRS}",
    )
    return closed.unionByName(pairs.coalesce(1))


def grouped(outer: OuterJoin, rows: pa.Table) -> pa.Table:
    """Group the left rows and pairs of :func:`decided` that Spark returns ungrouped."""
    single = pc.equal(rows[_PAIRS], _AT_ONCE)
    some = rows.filter(single)
    if not some.num_rows:
        return rows
    some = some.set_column(some.schema.get_field_index(_PAIRS), _PAIRS, pc.subtract(1, some[_LEFT]))
    keys = [name for name, _ in outer.left] + [BATCH]
    sums = some.group_by(keys, use_threads=False).aggregate([(_LEFT, "sum"), (_PAIRS, "sum")])
    sums = sums.rename_columns([*keys, _LEFT, _PAIRS])
    arrays = [
        sums[f.name].cast(f.type) if f.name in sums.column_names else pa.nulls(len(sums), f.type)
        for f in rows.schema
    ]
    groups = pa.Table.from_arrays(arrays, schema=rows.schema)
    return pa.concat_tables([rows.filter(pc.invert(single)), groups])


def _cut(bound: int) -> int:
    """Clip a time bound, in microseconds, to the range of supported times."""
    return max(FIRST // 2, min(bound, LAST // 2))


def without_undecided(
    outer: OuterJoin, rows: pa.Table, undecided: Undecided
) -> tuple[pa.Table, LeftRows]:
    """Drop left rows of :func:`decided` whose pairs may have been withheld by load shedding; also
    returns the counts of left rows.
    """
    closed = pc.greater_equal(rows[_PAIRS], 0).combine_chunks().to_numpy(zero_copy_only=False)
    some = rows.filter(pa.array(closed)).combine_chunks()
    if not some.num_rows:
        return rows, LeftRows(outer.kind)
    kinds = dict(outer.left)

    def column(name: str) -> pa.Array:
        return some[name].combine_chunks().cast(arrow_type(kinds[name]))

    def numbers(name: str) -> NDArray[np.int64]:
        found: NDArray[np.int64] = some[name].combine_chunks().cast(pa.int64()).to_numpy()
        return found

    deadlines = np.minimum.reduce([numbers(n) + _cut(bound) for n, bound in outer.times])
    came, times, pairs = numbers(BATCH), numbers(_LEFT), numbers(_PAIRS)
    found = undecided.among(some.num_rows, column, came, deadlines)
    given = np.where((pairs > 0) == (outer.kind is JoinKind.SEMI), times, 0)
    given[found] = 0
    certain = given > 0
    chances = undecided.chances(int(certain.sum()), came[certain], deadlines[certain])
    counts = LeftRows(
        outer.kind,
        int(given.sum()),
        float((given[certain] * (1 / chances - 1)).sum()),
        int(times[found].sum()),
    )
    if not found.any():
        return rows, counts
    wanted = np.ones(rows.num_rows, np.bool_)
    wanted[np.flatnonzero(closed)[found]] = False
    return rows.filter(pa.array(wanted)), counts


def results(outer: OuterJoin, rows: pa.Table) -> pa.Table:
    """Return the join's results from ``rows`` of :func:`decided`.

    Raises:
        ExpressionError: a row on which Spark would fail too.
    """
    left, pairs = rows[_LEFT].combine_chunks(), rows[_PAIRS].combine_chunks()
    times = left.to_numpy(zero_copy_only=False)
    if outer.kind is JoinKind.SEMI:
        times = np.where(pc.greater(pairs, 0), times, 0)
    else:
        times = np.where(pc.equal(pairs, 0), times, 0)
        # A single pair is one result.
        times = np.where(pc.equal(pairs, _PAIR), 1, times)
    chosen = rows.take(pa.array(np.repeat(np.arange(len(times)), times))).combine_chunks()

    def fetch(column: Column) -> pa.Array:
        found = chosen[column.name].combine_chunks()
        return found.cast(arrow_type(column.type))

    schema = schema_of(outer.projection)
    arrays = [evaluate(o.expr, fetch, chosen.num_rows) for o in outer.projection]
    return pa.Table.from_arrays(arrays, schema=schema)
