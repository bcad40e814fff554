"""TPC-H's queries as views over streams end in the rows of the batch query."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark
from tests.benchmarks.papers.test_tsc import PAPER
from tests.support.surroundings import tpch_streams
from tests.support.surroundings.tpc import Workload, workload

#: Of the eleven queries that UMJoin's paper converts seven run as views and four are refused; and
#: others that have one join, or none.
RUN_OF_PAPER, REFUSED_OF_PAPER = (3, 5, 7, 8, 9, 10, 11), (2, 15, 18, 21)
OTHERS = (1, 6, 12, 14, 19)


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    cache = os.environ.get("ANABRANCH_TEST_TPC")
    return workload("tpch", Path(cache) if cache else tmp_path_factory.mktemp("tpch"))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_views_end_in_the_rows_of_the_batch_query(
    seed: int, tpch: Workload, tmp_path: Path
) -> None:
    statements = {f"q{number}": tpch.queries[number] for number in (*RUN_OF_PAPER, *OTHERS)}
    found = tpch_streams.run(tpch, statements, tmp_path, seed)
    for name, compared in found.items():
        assert compared.difference() is None, f"{name}: {compared.difference()}"
        assert compared.wanted, name


def test_the_other_queries_of_the_paper_are_refused(tpch: Workload) -> None:
    assert {*RUN_OF_PAPER, *REFUSED_OF_PAPER} == set(PAPER)
    streams = tpch_streams.streams_of(tpch)
    for number in RUN_OF_PAPER:
        parse_sql(f"q{number}", to_spark(tpch.queries[number], "duckdb", streams), streams)
    for number in REFUSED_OF_PAPER:
        with pytest.raises(QueryError):
            parse_sql(f"q{number}", to_spark(tpch.queries[number], "duckdb", streams), streams)
