"""Filters with ten functions and more over many rows, beside DuckDB's.

``python -m benchmarks.sql.filters [--json] [--rows 1000000] [--rounds 5]``

Both evaluate the same conditions over the same rows in memory, on one thread, in turns; the counts
of rows that pass must be equal. Times are CPU times. Here the result is the mask of the rows that
pass, in DuckDB their count. *Dates and times* are of type ``TIMESTAMP_NTZ``, in DuckDB
``TIMESTAMP``; *moments* the same functions of ``TIMESTAMP``, in DuckDB ``TIMESTAMP WITH TIME
ZONE``, as in the mixed filter. JSON is text here, in DuckDB of type ``JSON``. *One by one* are the
conditions of the mixed filter alone: here an array of all values is made between two operators, so
cheap ones take longer.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_planner.binding.typecheck import boolean
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.expressions.evaluate import filter_mask
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.session import WrongResultError

#: Filter -> its conditions, which call ten functions together, or some more.
FILTERS = {
    "texts": (
        "length(s) > 4",
        "upper(s) LIKE 'S%' OR lower(s) LIKE '%e%'",
        "split_part(s, '-', 1) <> 'open'",
        "replace(s, '-', '') <> 'x'",
        "substring(s, 1, 2) <> 'zz'",
        "trim(s) <> ''",
        "concat(s, '!') <> 'paid!'",
        "startswith(s, 'q') OR left(s, 1) <> 'q'",
    ),
    "dates and times": (
        "date_trunc('hour', m) < CAST('2023-06-01' AS DATE)",
        "year(m) > 2019",
        "month(m) <> 2",
        "day(m) < 31",
        "hour(m) >= 3",
        "minute(m) <> 7",
        "quarter(m) <> 5",
        "dayofyear(m) > 5",
        "last_day(CAST(m AS DATE)) <> DATE '2021-02-28'",
        "CAST(m AS DATE) + 3 > DATE '2020-10-01'",
    ),
    "moments": (
        "date_trunc('hour', z) < CAST('2023-06-01' AS DATE)",
        "year(z) > 2019",
        "month(z) <> 2",
        "day(z) < 31",
        "hour(z) >= 3",
        "minute(z) <> 7",
        "quarter(z) <> 5",
        "dayofyear(z) > 5",
        "last_day(CAST(z AS DATE)) <> DATE '2021-02-28'",
        "CAST(z AS DATE) + 3 > DATE '2020-10-01'",
    ),
    "numbers": (
        "round(x, 1) < 180",
        "floor(x) > 10",
        "ceil(x) < 220",
        "sqrt(abs(x)) < 15",
        "ln(abs(x) + 1) > 0.1",
        "power(x, 2) < 40000",
        "sin(x) < 0.999",
        "sign(x) > 0",
        "greatest(x, 50) < 200",
    ),
    "JSON": (
        "get_json_object(j, '$.kind') <> 'open'",
        "length(get_json_object(j, '$.user.name')) > 2",
        "upper(get_json_object(j, '$.user.name')) <> 'N1'",
        "coalesce(get_json_object(j, '$.note'), '') <> 'x'",
        "CAST(get_json_object(j, '$.n') AS INT) % 7 <> 3",
        "abs(CAST(get_json_object(j, '$.items[0]') AS INT)) >= 0",
    ),
    "mixed": (
        "date_trunc('hour', z) < CAST('2023-06-01' AS DATE)",
        "year(z) > 2019",
        "month(z) <> 2",
        "round(x, 1) < 180",
        "floor(x) > 10",
        "length(s) > 4",
        "upper(s) LIKE 'S%' OR lower(s) LIKE '%e%'",
        "split_part(s, '-', 1) <> 'open'",
        "replace(s, '-', '') <> 'x'",
        "sqrt(abs(x)) < 15",
    ),
}
_STATES = ("paid", "open", "shipped ", "Lost", "returned")
_DUCKDB = {"get_json_object(": "json_extract_string(", "startswith(": "starts_with("}
#: Most times of DuckDB's time that a filter may take.
MOST = 2.0


def table_of(rows: int) -> pa.Table:
    """Random rows: a time without a zone and with one, a text, a number, a JSON text."""
    rng = np.random.default_rng(3)
    states, numbers = rng.integers(0, len(_STATES), rows), rng.integers(0, 10**6, rows)
    micros = rng.integers(1_600_000_000_000_000, 1_700_000_000_000_000, rows)
    pairs = list(zip(states, numbers, strict=True))
    return pa.table(
        {
            "m": pa.array(micros, pa.timestamp("us")),
            "z": pa.array(micros, pa.timestamp("us", "UTC")),
            "s": pa.array([f"{_STATES[state]}-{number}" for state, number in pairs]),
            "x": rng.normal(100, 30, rows),
            "j": pa.array(
                [
                    f'{{"kind": "{_STATES[state]}", "user": {{"name": "n{number % 999}"}}, '
                    f'"n": {number}, "items": [{number % 50}, 2]}}'
                    for state, number in pairs
                ]
            ),
        }
    )


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run every filter, and each condition of the mixed one.

    Raises:
        WrongResultError: the counts differ.
    """
    del home
    table = table_of(options.rows)
    wanted = {name: FILTERS[name] for name in options.filters}
    alone = FILTERS["mixed"] if "mixed" in wanted else ()
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", table)
        connection.execute("CREATE TABLE r AS SELECT * REPLACE (j::JSON AS j) FROM given")
        runs = _Runs(table, connection, options.rounds)
        return {
            "filters": [{"filter": name} | runs.of(one) for name, one in wanted.items()],
            "conditions": [{"condition": one} | runs.of((one,)) for one in alone],
        }


class _Runs:
    """Turns of both over the same rows."""

    def __init__(self, table: pa.Table, connection: duckdb.DuckDBPyConnection, rounds: int) -> None:
        self._table, self._connection, self._rounds = table, connection, rounds
        columns = tuple((field.name, spark_type(field.type)) for field in table.schema)
        self._scope = Scope.of_stream("r", Stream(StreamName("r"), columns))

    def of(self, conditions: Sequence[str]) -> dict[str, Any]:
        """CPU milliseconds of both, their ratio in each turn, and the rows that pass."""
        table, connection = self._table, self._connection
        exprs = [boolean(parse_expression(one), self._scope) for one in conditions]
        text = " AND ".join(f"({one})" for one in conditions)
        for ours, theirs in _DUCKDB.items():
            text = text.replace(ours, theirs)

        def here() -> int:
            mask = filter_mask(exprs, lambda c: table.column(c.name), table.num_rows)
            return table.num_rows if mask is None else int(mask.sum())

        def there() -> int:
            row = connection.execute(f"SELECT count(*) FROM r WHERE {text}").fetchone()
            assert row is not None
            return int(row[0])

        if (count := here()) != (other := there()):
            raise WrongResultError(f"{text}: {count:,} rows pass here, {other:,} in DuckDB")
        turns = [(_milliseconds(here), _milliseconds(there)) for _ in range(self._rounds)]
        return {
            "passing": count,
            "ms": spread((mine for mine, _ in turns), 1),
            "duckdb_ms": spread((duck for _, duck in turns), 1),
            "ratio": spread((mine / duck for mine, duck in turns), 2),
        }


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return 1000 * (time.process_time() - began)


def tables(found: dict[str, Any]) -> list[Grid]:
    """A row for each filter, and for each condition of the mixed one."""
    head = ("rows that pass", "CPU ms", "DuckDB's CPU ms", "ratio")
    wholes = tuple((one["filter"], *_cells(one)) for one in found["filters"])
    singles = tuple((f"`{one['condition']}`", *_cells(one)) for one in found["conditions"])
    rows = found["settings"]["rows"]
    grids = [Grid(f"filters with ten functions, {rows:,} rows", ("filter", *head), wholes)]
    if singles:
        grids.append(Grid("conditions one by one", ("condition", *head), singles))
    return grids


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    ms, duck, ratio = one["ms"], one["duckdb_ms"], one["ratio"]
    return f"{one['passing']:,}", shown(ms, 1), shown(duck, 1), shown(ratio, 2)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--filters", nargs="+", choices=list(FILTERS), default=list(FILTERS))


def common(parser: argparse.ArgumentParser) -> None:
    """Options of all benchmarks of the group: none."""
    del parser


BENCHMARK = Benchmark(
    "filters", "Filters with ten functions, beside DuckDB's.", _options, measure, tables
)

if __name__ == "__main__":
    sys.exit(run_benchmark("sql", BENCHMARK, None, common))
