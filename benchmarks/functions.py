"""CPU time of filters with functions, compared with DuckDB: ``python -m benchmarks.functions
[--rows 1000000]``.

The runtime's expressions and DuckDB evaluate the same conditions over the same rows in memory, on
one thread, in turns; the numbers of rows that pass must be equal. Times are medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import duckdb
import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_planner.binding.typecheck import boolean
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.expressions.evaluate import filter_mask

#: Conditions with one or two functions each.
CONDITIONS = (
    "date_trunc('hour', m) < CAST('2023-06-01' AS DATE)",
    "year(m) > 2019",
    "month(m) <> 2",
    "round(x, 1) < 180",
    "floor(x) > 10",
    "length(s) > 4",
    "upper(s) LIKE 'S%' OR lower(s) LIKE '%e%'",
    "split_part(s, '-', 1) <> 'open'",
    "replace(s, '-', '') <> 'x'",
    "sqrt(abs(x)) < 15",
)
_STATES = ("paid", "open", "shipped ", "Lost", "returned")


def table_of(rows: int) -> pa.Table:
    """Return random rows with three columns: a time, a text, a number."""
    rng = np.random.default_rng(3)
    states, numbers = rng.integers(0, len(_STATES), rows), rng.integers(0, 10**6, rows)
    micros = rng.integers(1_600_000_000_000_000, 1_700_000_000_000_000, rows)
    texts = [f"{_STATES[state]}-{number}" for state, number in zip(states, numbers, strict=True)]
    return pa.table(
        {
            "m": pa.array(micros, pa.timestamp("us", "UTC")),
            "s": pa.array(texts),
            "x": rng.normal(100, 30, rows),
        }
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the times of each condition and their sums; returns 1 if a number of rows differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    table = table_of(options.rows)
    columns = tuple((field.name, spark_type(field.type)) for field in table.schema)
    scope = Scope.of_stream("r", Stream(StreamName("r"), columns))
    wrong = 0
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", table)
        connection.execute("CREATE TABLE r AS SELECT * FROM given")
        for conditions in (*((one,) for one in CONDITIONS), CONDITIONS):
            exprs = [boolean(parse_expression(one), scope) for one in conditions]
            text = " AND ".join(f"({one})" for one in conditions)

            def ours(exprs: Sequence[Expr] = exprs) -> int:
                mask = filter_mask(exprs, lambda c: table.column(c.name), table.num_rows)
                return table.num_rows if mask is None else int(mask.sum())

            def theirs(text: str = text) -> int:
                row = connection.execute(f"SELECT count(*) FROM r WHERE {text}").fetchone()
                assert row is not None
                return int(row[0])

            (count, mine), (other, duck) = _measured(ours, theirs, options.rounds)
            wrong += count != other
            name = conditions[0] if len(conditions) == 1 else f"all {len(conditions)}"
            ms = f"{mine * 1000:8.1f} ms  DuckDB {duck * 1000:8.1f} ms"
            sys.stdout.write(f"{name:52} {count:9} rows {ms}  ratio {mine / duck:6.2f}\n")
    return int(wrong > 0)


def _measured(
    one: Callable[[], int], other: Callable[[], int], rounds: int
) -> tuple[tuple[int, float], tuple[int, float]]:
    """Call two functions in turns; return the result and median seconds of each."""
    times: tuple[list[float], list[float]] = ([], [])
    results = [0, 0]
    for _ in range(rounds):
        for place, call in enumerate((one, other)):
            began = time.perf_counter()
            results[place] = call()
            times[place].append(time.perf_counter() - began)
    return (results[0], statistics.median(times[0])), (results[1], statistics.median(times[1]))


if __name__ == "__main__":
    sys.exit(main())
