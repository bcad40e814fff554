"""Tests of aggregates of pairs (regr_slope, corr, …): exact after deletes, and equal to Spark's,
also for few or equal pairs.
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import PAIRS, View, ViewAggregate
from anabranch_runtime.tables.table import MaintainedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOUBLE = parse_type("double")
SCHEMA = pa.schema([("y", pa.float64()), ("x", pa.float64())])
FUNCTIONS = sorted(PAIRS)
Pair = tuple[float | None, float | None]


def aggregated() -> MaintainedTable:
    """Return a table without groups of all functions of (y, x)."""
    made = [ViewAggregate(f"g{n}", f, "y", False, DOUBLE, "x") for n, f in enumerate(FUNCTIONS)]
    outputs = [Output(str(a.function), Column("", a.name, DOUBLE)) for a in made]
    return MaintainedTable(View(True, (), tuple(made), tuple(outputs)), SCHEMA, deletes=True)


def apply(table: MaintainedTable, events: list[tuple[Pair, int]], version: int) -> None:
    ys, xs = [y for (y, _), _ in events], [x for (_, x), _ in events]
    rows = pa.table([pa.array(ys, pa.float64()), pa.array(xs, pa.float64())], schema=SCHEMA)
    table.apply(rows, np.array([weight for _, weight in events], np.int64), version)


def values(table: MaintainedTable) -> dict[str, Any]:
    (row,) = table.rows(None).to_pylist()
    return {str(function): row[str(function)] for function in FUNCTIONS}


@pytest.mark.parametrize("seed", range(5))
def test_a_line_is_exact_whatever_the_order_and_the_deletes(seed: int) -> None:
    random = Random(seed)
    # A common part that cancels, and outliers that are deleted later.
    xs = [1e6 + random.gauss(0, 1) for _ in range(80)]
    kept: list[Pair] = [(1e5 - 3 * x + random.gauss(0, 1), x) for x in xs]
    gone: list[Pair] = [
        (random.uniform(-1, 1) * 1e12, random.uniform(-1, 1) * 10.0 ** random.randrange(-5, 11))
        for _ in range(40)
    ]
    halves: list[Pair] = [(None, 1.0), (2.0, None), (None, None)]
    events = [(pair, 1) for pair in (*kept, *gone, *halves)] + [(pair, -1) for pair in gone]
    random.shuffle(events)
    table = aggregated()
    for start in range(0, len(events), 37):
        apply(table, events[start : start + 37], start)
    pairs = [(Fraction(y), Fraction(x)) for y, x in kept if y is not None and x is not None]
    n = len(pairs)
    mean_y, mean_x = (sum(side, Fraction()) / n for side in zip(*pairs, strict=True))
    around = [(y - mean_y, x - mean_x) for y, x in pairs]
    sxx = sum((x * x for _, x in around), Fraction())
    syy = sum((y * y for y, _ in around), Fraction())
    sxy = sum((y * x for y, x in around), Fraction())
    found = values(table)
    for name, wanted in (
        ("regr_slope", sxy / sxx),
        ("regr_r2", sxy**2 / (sxx * syy)),
        ("regr_sxx", sxx),
        ("regr_sxy", sxy),
        ("regr_syy", syy),
        ("covar_pop", sxy / n),
        ("covar_samp", sxy / (n - 1)),
    ):
        assert math.isclose(found[name], float(wanted), rel_tol=1e-14), name
    # The product of the rounded slope and a mean is subtracted from the other mean.
    intercept = mean_y - sxy / sxx * mean_x
    assert abs(found["regr_intercept"] - float(intercept)) <= 1e-15 * float(abs(mean_x) * 8)
    before = found
    more: list[tuple[Pair, int]] = [(pair, 1) for pair in gone]
    apply(table, more, 1000)
    assert values(table) != before
    apply(table, [(pair, -weight) for pair, weight in more], 1001)
    assert values(table) == before


#: Groups with few pairs, equal values, and NaN or infinite values.
FEW: dict[str, list[Pair]] = {
    "none": [(None, 1.0), (1.0, None)],
    "one": [(3.0, 2.0), (None, 5.0)],
    "equal": [(3.0, 2.0), (3.0, 2.0)],
    "equal x": [(3.0, 2.0), (4.5, 2.0), (5.0, 2.0)],
    "equal y": [(3.0, 2.0), (3.0, 2.5), (3.0, 7.0)],
    "two": [(3.0, 2.0), (4.0, 5.0)],
    "several": [(1.0, 2.0), (-4.0, 5.0), (2.5, -0.25), (2.5, 3.0)],
    "infinite x": [(1.0, math.inf), (2.0, 1.0), (5.0, 3.0)],
    "infinite y": [(-math.inf, 1.0), (2.0, 2.0), (5.0, 3.0)],
    "no number": [(math.nan, 1.0), (2.0, 2.0), (5.0, 3.0)],
}


@pytest.mark.spark
def test_values_are_those_of_spark(spark: SparkSession) -> None:
    found, expected = {}, {}
    calls = ", ".join(f"{function}(y, x)" for function in FUNCTIONS)
    for name, pairs in FEW.items():
        table = aggregated()
        apply(table, [(pair, 1) for pair in pairs], 1)
        found[name] = _shown(values(table).values())
        spark.createDataFrame(pairs, "y double, x double").createOrReplaceTempView("pairs")
        expected[name] = _shown(spark.sql(f"SELECT {calls} FROM pairs").collect()[0])
    assert found == expected


def _shown(row: Any) -> dict[str, str]:
    named = zip(FUNCTIONS, row, strict=True)
    return {f: "none" if v is None else f"{v + 0.0:.9g}" for f, v in named}
