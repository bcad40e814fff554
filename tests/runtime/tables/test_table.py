"""Compare maintained tables with DuckDB's results over the net input, after every batch."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from anabranch_contract.queries.expressions import Call, Column, Literal, Output
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import (
    CHANGE,
    VERSION,
    WINDOW_END,
    WINDOW_START,
    AggregateFunction,
    TimeWindow,
    View,
    ViewAggregate,
)
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.tables.table import MaintainedTable
from tests.runtime.tables.grammar import Case, F, Row, case
from tests.support.scenarios.seeds import mostly_slow

#: Seeds of the suite; seeds that failed in longer runs are listed below.
SEEDS = range(250)
KEPT: tuple[int, ...] = ()

Rows = dict[tuple[Any, ...], tuple[Any, ...]]


def _plain(value: Any) -> Any:
    """Return a value that compares as in Spark."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


class Presented:
    """Rows that result from changes, by identity."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.rows: Rows = {}

    def change(self, changes: pa.Table, version: int) -> None:
        seen = set()
        for row in changes.to_pylist():
            assert row.pop(VERSION) == version
            kind = row.pop(CHANGE)
            key = tuple(_plain(row[n]) for n in self.view.identity)
            assert key not in seen, "one change of each row"
            seen.add(key)
            if kind == "delete":
                assert all(row[n] is None for n in row if n not in self.view.identity)
                del self.rows[key]
            else:
                values = tuple(row.items())
                assert self.rows.get(key) != values, "the row has changed"
                self.rows[key] = values

    def compare(self, table: pa.Table) -> None:
        expected = {}
        for row in table.to_pylist():
            key = tuple(_plain(row[n]) for n in self.view.identity)
            assert key not in expected
            expected[key] = row
        assert self.rows.keys() == expected.keys()
        for key, values in self.rows.items():
            for name, value in values:
                assert _close(value, expected[key][name]), (key, name, value, expected[key][name])


def _close(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        a, b = float(one), float(other)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        # Spark's average of decimals is a decimal, DuckDB's a double.
        last = 10.0 ** int(one.as_tuple().exponent) if isinstance(one, Decimal) else 0.0
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=max(1e-7, 0.501 * last))
    return bool(one == other)


class Oracle:
    """DuckDB's result over the net rows."""

    def __init__(self, one: Case) -> None:
        self.case = one
        self.net: Counter[Row] = Counter()
        self.database = duckdb.connect()
        self.database.execute("SET TimeZone = 'UTC'; SET threads = 1")

    def add(self, rows: list[Row], weights: list[int]) -> None:
        for row, weight in zip(rows, weights, strict=True):
            self.net[tuple(map(_plain, row))] += weight

    def answer(self) -> pa.Table | None:
        """Return the view's rows; None while a row has been deleted more often than inserted."""
        if min(self.net.values(), default=0) < 0:
            return None
        rows = [tuple(math.nan if v == "NaN" else v for v in r) for r in self.net.elements()]
        self.database.register("net", self.case.table(rows))
        return self.database.sql(self.case.sql).to_arrow_table()


def _batch(one: Case, oracle: Oracle, random: Random, deletes: bool) -> tuple[list[Row], list[int]]:
    rows: list[Row] = [one.row(random) for _ in range(random.choice((0, 1, 3, 10, 40)))]
    weights = [random.choice((1, 1, 1, 2)) for _ in rows]
    if deletes:
        known = [r for r, n in oracle.net.items() if n > 0]
        gone = random.sample(known, min(len(known), random.choice((0, 1, 5, 20, 100))))
        gone = [tuple(math.nan if v == "NaN" else v for v in r) for r in gone]
        rows += gone
        weights += [-random.choice((1, 1, oracle.net[tuple(map(_plain, r))])) for r in gone]
        early = [one.row(random) for _ in range(random.choice((0, 0, 0, 2)))]
        rows += early
        weights += [-1] * len(early)
        owed = [(r, -n) for r, n in oracle.net.items() if n < 0]
        rows += [tuple(math.nan if v == "NaN" else v for v in r) for r, _ in owed]
        weights += [n for _, n in owed]
    order = list(range(len(rows)))
    random.shuffle(order)
    return [rows[n] for n in order], [weights[n] for n in order]


def check(seed: int) -> None:
    """Compare the view of ``seed`` over random batches with DuckDB."""
    one, random = case(seed), Random(seed + 1_000_000)
    deletes = random.random() < 0.7
    table = MaintainedTable(one.view, one.schema, deletes=deletes)
    shown, oracle = Presented(one.view), Oracle(one)
    shown.change(table.first_changes(0), 0)
    for version in range(1, random.choice((3, 6, 10))):
        rows, weights = _batch(one, oracle, random, deletes)
        oracle.add(rows, weights)
        plain = None if all(w == 1 for w in weights) and random.random() < 0.5 else weights
        given = None if plain is None else np.array(plain, np.int64)
        shown.change(table.apply(one.table(rows), given, version), version)
        answer = oracle.answer()
        if answer is not None:
            if not oracle.net.total() and one.view.sets:
                answer = answer.slice(0, 0)
            shown.compare(answer)
        assert len(table) == len(shown.rows)
        if random.random() < 0.3:
            table = MaintainedTable.load(one.view, one.schema, table.dump(), deletes=deletes)
            assert len(table) == len(shown.rows)
        if random.random() < 0.3:
            _read(one.view, table, shown, answer)


def _read(view: View, table: MaintainedTable, shown: Presented, answer: pa.Table | None) -> None:
    """Compare the rows that readers see."""
    read = table.rows(None)
    assert read.num_rows == len(table)
    found = {}
    for row in read.to_pylist():
        found[tuple(_plain(row[n]) for n in view.identity)] = tuple(row.items())
    assert {k: list(map(str, v)) for k, v in found.items()} == {
        k: list(map(str, v)) for k, v in shown.rows.items()
    }
    if answer is not None and view.order and view.grouped:
        keys = [tuple(_plain(r[n]) for n in view.identity) for r in answer.to_pylist()]
        assert list(found) == keys
    assert str(table.rows(2).to_pylist()) == str(read.slice(0, 2).to_pylist())


@pytest.mark.parametrize("seed", [*mostly_slow(SEEDS, 60), *KEPT])
def test_changes_add_up_to_the_answer_over_the_net_input(seed: int) -> None:
    check(seed)


# --- errors -------------------------------------------------------------------------------------

BIGINT, DOUBLE = parse_type("bigint"), parse_type("double")
SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("f", pa.float64()), ("s", pa.string())])


def _view(function: AggregateFunction, column: str, kind: str, option: str = "") -> View:
    made = ViewAggregate(
        "a", function, column, distinct=False, type=parse_type(kind), option=option
    )
    outputs = Output("k", Column("", "k", BIGINT)), Output("a", Column("", "a", made.type))
    return View(True, (("k", BIGINT),), (made,), outputs)


def _rows(*rows: tuple[Any, ...]) -> pa.Table:
    columns = zip(*(r + (None,) * (4 - len(r)) for r in rows), strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _signs(*weights: int) -> NDArray[np.int64]:
    return np.array(weights, np.int64)


@pytest.mark.parametrize("function", [F.SUM, F.MAX, F.PERCENTILE_CONT])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_batch_that_fails_changes_nothing(function: AggregateFunction, deletes: bool) -> None:
    total = ViewAggregate("t", F.SUM, "x", distinct=False, type=BIGINT)
    view = _view(function, "x", "double" if function is F.PERCENTILE_CONT else "bigint", "0.5")
    view = replace(view, aggregates=(*view.aggregates, total))
    table = MaintainedTable(view, SCHEMA, deletes=deletes)
    most = 2**63 - 1
    table.apply(_rows((1, most), (2, 5)), None, 1)
    before, rows = table.dump(), table.rows(None)
    # A new group and a changed one, and a sum that overflows.
    with pytest.raises(ExpressionError, match="out of the range of bigint"):
        table.apply(_rows((3, 1), (2, 6), (1, 1)), None, 2)
    assert table.rows(None) == rows
    assert [b.to_pylist() for b in table.dump()] == [b.to_pylist() for b in before]
    # Sums in between may leave the type: only the result counts.
    if deletes:
        changes = table.apply(_rows((3, 1), (1, 1), (1, most)), _signs(1, 1, -1), 3)
        assert changes.num_rows == 2


def test_an_expression_that_fails_changes_nothing() -> None:
    view = _view(F.SUM, "x", "bigint")
    quotient = Call("div", (Literal(6.0, DOUBLE), Column("", "a", BIGINT)), DOUBLE)
    view = replace(view, projection=(view.projection[0], Output("q", quotient)))
    table = MaintainedTable(view, SCHEMA, deletes=True)
    table.apply(_rows((1, 3)), None, 1)
    with pytest.raises(ExpressionError, match="divisor is zero"):
        table.apply(_rows((2, 2), (1, -3)), None, 2)
    assert table.rows(None).to_pydict() == {"k": [1], "q": [2.0]}
    # A group that becomes empty is not evaluated.
    changes = table.apply(_rows((1, 3)), _signs(-1), 2)
    assert changes.to_pydict() == {"k": [1], "q": [None], CHANGE: ["delete"], VERSION: [2]}


def test_rows_are_deleted_only_where_they_may_be() -> None:
    table = MaintainedTable(_view(F.SUM, "x", "bigint"), SCHEMA)
    with pytest.raises(ValueError, match="only gets new rows"):
        table.apply(_rows((1, 1)), _signs(-1), 1)


# --- sums -----------------------------------------------------------------------------------------


def _one(table: MaintainedTable) -> Any:
    return table.rows(None)["a"].to_pylist()[0]


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_floats_are_exact_whatever_the_order_and_the_deletes(seed: int) -> None:
    random = Random(seed)
    values = [random.uniform(-1, 1) * 10.0 ** random.randrange(-30, 20) for _ in range(60)]
    values += [random.randrange(10**6) / 100 for _ in range(40)]
    gone = [random.uniform(-1, 1) * 10.0 ** random.randrange(10, 20) for _ in range(50)]
    events = [(v, 1) for v in (*values, *gone)] + [(v, -1) for v in gone]
    random.shuffle(events)
    sums = MaintainedTable(_view(F.SUM, "f", "double"), SCHEMA, deletes=True)
    spread = MaintainedTable(_view(F.VAR_POP, "f", "double"), SCHEMA, deletes=True)
    for start in range(0, len(events), 37):
        part = events[start : start + 37]
        rows = _rows(*((1, 0, v) for v, _ in part))
        for table in (sums, spread):
            table.apply(rows, _signs(*(w for _, w in part)), start)
    assert _one(sums) == math.fsum(values)
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    variance = float(sum((v - mean) ** 2 for v in exact) / len(exact))
    assert math.isclose(_one(spread), variance, rel_tol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_higher_moments_are_exact_whatever_the_order_and_the_deletes(seed: int) -> None:
    random = Random(seed)
    # A common part that cancels, and outliers that are deleted later.
    values = [1e6 + random.gauss(0, 1) for _ in range(80)]
    gone = [random.uniform(-1, 1) * 10.0 ** random.randrange(-5, 11) for _ in range(40)]
    events = [(v, 1) for v in (*values, *gone)] + [(v, -1) for v in gone]
    random.shuffle(events)
    exact = [Fraction(v) for v in values]
    n, mean = len(exact), sum(exact) / len(exact)
    second, third, fourth = (sum((v - mean) ** p for v in exact) / n for p in (2, 3, 4))
    skewness = math.copysign(math.sqrt(third**2 / second**3), third)
    for function, wanted in ((F.SKEWNESS, skewness), (F.KURTOSIS, float(fourth / second**2 - 3))):
        table = MaintainedTable(_view(function, "f", "double"), SCHEMA, deletes=True)
        for start in range(0, len(events), 37):
            part = events[start : start + 37]
            rows = _rows(*((1, 0, v) for v, _ in part))
            table.apply(rows, _signs(*(w for _, w in part)), start)
        assert math.isclose(_one(table), wanted, rel_tol=1e-15)


def test_higher_moments_of_equal_or_infinite_values() -> None:
    for function in (F.SKEWNESS, F.KURTOSIS):
        table = MaintainedTable(_view(function, "f", "double"), SCHEMA, deletes=True)
        table.apply(_rows((1, 0, 0.1), (1, 0, 0.1), (1, 0, None)), None, 1)
        assert _one(table) is None
        table.apply(_rows((1, 0, math.inf)), None, 2)
        assert math.isnan(_one(table))
        table.apply(_rows((1, 0, math.inf)), _signs(-1), 3)
        assert _one(table) is None


def test_floats_beyond_the_exact_range_count_too() -> None:
    table = MaintainedTable(_view(F.SUM, "f", "double"), SCHEMA, deletes=True)
    table.apply(_rows((1, 0, 1e-300), (1, 0, 3e-300), (1, 0, 5e-324)), None, 1)
    assert math.isclose(_one(table), 4e-300)
    table.apply(_rows((1, 0, 1e300)), _signs(1), 2)
    assert _one(table) == 1e300
    table.apply(_rows((1, 0, 1e300), (1, 0, math.inf), (1, 0, math.nan)), _signs(-1, 1, 1), 3)
    assert math.isnan(_one(table))
    table.apply(_rows((1, 0, math.nan)), _signs(-1), 4)
    assert _one(table) == math.inf
    table.apply(_rows((1, 0, math.inf)), _signs(-1), 5)
    assert math.isclose(_one(table), 4e-300)


def test_a_variance_of_equal_values_is_zero() -> None:
    table = MaintainedTable(_view(F.STDDEV_POP, "f", "double"), SCHEMA)
    table.apply(_rows(*((1, 0, 123456.789),) * 3), None, 1)
    table.apply(_rows(*((1, 0, 123456.789),) * 7), None, 2)
    assert _one(table) == 0.0


def test_decimals_are_exact_to_38_digits_and_averages_are_rounded_as_in_spark() -> None:
    schema = pa.schema([("k", pa.int64()), ("d", pa.decimal128(38, 2))])

    def rows(*values: str) -> pa.Table:
        found = [Decimal(v) for v in values]
        return pa.table([[1] * len(found), pa.array(found, schema.field(1).type)], schema=schema)

    sums = MaintainedTable(_view(F.SUM, "d", "decimal(38,2)"), schema, deletes=True)
    half = "5" + "0" * 35 + ".00"
    sums.apply(rows(half, "4" + "9" * 35 + ".99"), None, 1)
    assert _one(sums) == Decimal("9" * 36 + ".99")
    with pytest.raises(ExpressionError, match=r"out of the range of decimal\(38,2\)"):
        sums.apply(rows("0.01"), None, 2)
    sums.apply(rows("0.01", half), _signs(1, -1), 2)
    assert _one(sums) == Decimal(half)
    means = MaintainedTable(_view(F.AVG, "d", "decimal(38,6)"), schema, deletes=True)
    means.apply(rows("-0.01", "0.00", "0.00"), None, 1)
    assert _one(means) == Decimal("-0.003333")
    means.apply(rows("0.00", "0.00", "0.00", "0.00", "0.00"), None, 2)
    assert _one(means) == Decimal("-0.001250")
    means.apply(rows("1" + "0" * 30 + ".01"), None, 3)
    assert abs(Fraction(_one(means)) - Fraction(10) ** 30 / 9) <= Fraction(1, 2 * 10**6)


# --- forgetting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [False, True])
def test_forgetting_changes_no_later_output(session: bool) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    window = TimeWindow("t", 10, 10 if session else 4, session=session)
    time = parse_type("timestamp")
    outputs = [Output(n, Column("", n, time)) for n in (WINDOW_START, WINDOW_END)]
    view = replace(_view(F.MAX, "x", "bigint"), window=window)
    view = replace(view, projection=(*view.projection, *outputs))
    keys = [(name, "ascending") for name in (CHANGE, *view.identity)]
    for seed in range(10):
        random = Random(seed)
        keeps, forgets = (MaintainedTable(view, schema, deletes=True) for _ in range(2))
        for version in range(1, 25):
            # No row arrives below the watermark.
            clock = 5 * version
            times = [clock + random.randrange(30) for _ in range(random.randrange(1, 6))]
            columns = [[random.randrange(n) for _ in times] for n in (3, 9)]
            rows = pa.table([*columns, pa.array(times, schema.field(2).type)], schema=schema)
            forgets.forget(clock)
            if random.random() < 0.3:
                forgets = MaintainedTable.load(view, schema, forgets.dump(), deletes=True)
            one, other = (t.apply(rows, None, version).sort_by(keys) for t in (keeps, forgets))
            assert one == other
            assert len(keeps) == len(forgets) + forgets.forgotten
        assert forgets.forgotten > 2


def test_unused_texts_are_dropped() -> None:
    table = MaintainedTable(_view(F.MAX, "s", "string"), SCHEMA)
    for number in range(30):
        rows = _rows(*((n, 0, 0.0, f"{number:06d} {n}") for n in range(1000)))
        table.apply(rows, None, number)
    assert len(table) == 1000
    assert min(table.rows(None)["a"].to_pylist()) == "000029 0"
    assert table.bytes < 3_000_000


# --- compilation ---------------------------------------------------------------------------------

_SCRIPT = """
from numba.core.dispatcher import Dispatcher
from anabranch_runtime.tables import kernels, sums, trees
from anabranch_runtime.tables.table import warm
from anabranch_runtime.tables.windows import kernels as windows
warm()
inside = ("mixed", "compare", "compare_texts", "add_decimal", "add_float", "float_sum")
for module in (kernels, sums, trees, windows):
    for name, value in vars(module).items():
        # Functions that only kernels call are compiled into them.
        if name[0] == "_" or name in inside:
            continue
        if isinstance(value, Dispatcher) and not value.signatures:
            print(module.__name__, name)
"""


def test_every_kernel_is_compiled() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True
    )
    assert not found.stdout
