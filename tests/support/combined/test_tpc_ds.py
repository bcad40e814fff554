"""Tests that TPC-DS queries over streams of changes end with DuckDB's rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.combined.tpc_ds import Benchmark
from tests.support.combined.tpc_ds_answers import Oracle, with_ties
from tests.support.surroundings.redis import redis_url
from tests.support.surroundings.tpc import workload

#: Queries with outer joins that WHERE converts into inner joins.
FEW = (93,)
TABLE = pa.table({
    "k": pa.array([1, 2, 3, 4]),
    "d": pa.array([Decimal("0.10"), Decimal("0.10"), None, Decimal("0.31")], pa.decimal128(5, 2)),
})  # fmt: skip


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benchmark]:
    cache = os.environ.get("ANABRANCH_TEST_TPC")
    folder = Path(cache) if cache else tmp_path_factory.mktemp("tpcds")
    with redis_url() as url:
        yield Benchmark(workload("tpcds", folder), url)


@pytest.mark.parametrize("number", FEW)
def test_some_queries_equal_duckdb(benchmark: Benchmark, number: int, tmp_path: Path) -> None:
    result = benchmark.run(number, tmp_path, seed=1)
    assert (result.refusal, result.difference) == ("", None)
    assert result.rows


@pytest.mark.slow
def test_all_queries_equal_duckdb(benchmark: Benchmark, tmp_path: Path) -> None:
    numbers = sorted(benchmark.given.queries)
    found = [benchmark.run_apart(n, tmp_path / str(n), 2, 4, limit=600.0) for n in numbers]
    assert [one.line() for one in found if one.refusal] == []
    assert [one.line() for one in found if one.difference is not None] == []
    assert [one.number for one in found if not one.rows and not one.refusal] == []


@pytest.mark.parametrize(
    ("sql", "rows", "equal"),
    [
        ("SELECT k FROM t", [(4,), (3,), (2,), (1,)], True),
        ("SELECT k FROM t", [(4,), (3,), (2,), (2,)], False),
        ("SELECT k FROM t", [(1,), (2,), (3,)], False),
        # NULL is the least value of the order.
        ("SELECT k FROM t ORDER BY d LIMIT 1", [(3,)], True),
        # Any row with an equal sort key is correct, but no row twice, and no other row.
        ("SELECT k FROM t ORDER BY d LIMIT 2", [(3,), (1,)], True),
        ("SELECT k FROM t ORDER BY d LIMIT 2", [(3,), (2,)], True),
        ("SELECT k FROM t ORDER BY d LIMIT 2", [(3,), (4,)], False),
        ("SELECT k FROM t ORDER BY d LIMIT 2", [(1,), (2,)], False),
        ("SELECT k FROM t ORDER BY d DESC LIMIT 2", [(4,), (1,)], True),
        ("SELECT DISTINCT d FROM t ORDER BY 1 LIMIT 1", [(None,)], True),
        ("SELECT k % 2 AS p, count(*) AS n FROM t GROUP BY p ORDER BY p + 0, n LIMIT 1",
         [(0, 2)], True),
        ("SELECT k FROM t UNION ALL SELECT 9 ORDER BY k DESC LIMIT 1", [(9,)], True),
        # Decimals are exact, and averages of them are decimals with six digits.
        ("SELECT sum(d) AS s FROM t", [(Decimal("0.51"),)], True),
        ("SELECT sum(d) AS s FROM t", [(Decimal("0.52"),)], False),
        ("SELECT avg(d) AS s FROM t", [(Decimal("0.170000"),)], True),
        ("SELECT avg(d) AS s FROM t", [(Decimal("0.170002"),)], False),
        ("SELECT avg(d) AS s FROM t", [(None,)], False),
        ("SELECT k / 3 AS q FROM t WHERE k = 1", [(1 / 3 + 1e-12,)], True),
        ("SELECT k / 3 AS q FROM t WHERE k = 1", [(1 / 3 + 1e-8,)], False),
    ],
)  # fmt: skip
def test_rows_are_compared_as_bags(sql: str, rows: list[tuple[object, ...]], equal: bool) -> None:
    verdict = Oracle({"t": TABLE}).compare(0, sql, rows)
    assert (verdict.difference is None) == equal, verdict


def test_a_statement_without_limit_stays_as_it_is() -> None:
    assert with_ties("SELECT k FROM t ORDER BY k") == ("SELECT k FROM t ORDER BY k", None)
