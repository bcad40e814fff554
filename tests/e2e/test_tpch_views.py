"""Tests of TPC-H's queries as views against DuckDB: at the end of a replay through Spark, and over
inserts and deletes after each piece of input.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from anabranch_service.settings import ServiceSettings
from tests.support.surroundings import tpch_streams
from tests.support.surroundings.tpc import Workload, workload
from tests.support.surroundings.tpch_changes import TpchChanges
from tests.support.worlds.service import serving

#: Numbers of queries without parts, which a replay refuses.
REPLAYED = (1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 19)


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
    statements = {f"q{number}": tpch.queries[number] for number in REPLAYED}
    found = tpch_streams.run(tpch, statements, tmp_path, seed)
    for name, compared in found.items():
        assert compared.difference() is None, f"{name}: {compared.difference()}"
        assert compared.wanted, name


def follow(
    tpch: Workload, settings: ServiceSettings, folder: Path, seed: int, numbers: Iterable[int]
) -> Counter[int]:
    """Check queries after each piece, with refresh functions RF1 and RF2; return how often each
    query had rows.

    Raises:
        AssertionError: a query differs, or never changes.
    """
    rows, states = Counter[int](), dict[int, set[str]]()
    named = settings.changed(namespace=f"tpch{seed}.{'.'.join(map(str, numbers))}")
    with serving(named) as service:
        for found in TpchChanges(service, folder, tpch, seed).play(numbers):
            for number, compared in found.items():
                assert compared.difference() is None, f"q{number}: {compared.difference()}"
                rows[number] += len(compared.wanted)
                states.setdefault(number, set()).add(repr(sorted(map(repr, compared.wanted))))
    assert all(len(some) > 1 for some in states.values()), states
    return rows


@pytest.mark.slow
def test_a_query_with_subqueries_follows_inserts_and_deletes(
    tpch: Workload, settings: ServiceSettings, tmp_path: Path
) -> None:
    assert follow(tpch, settings, tmp_path, 1, (20,))[20]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "numbers", [range(1, 8), range(8, 15), range(15, 23)], ids=("1-7", "8-14", "15-22")
)
def test_all_queries_follow_inserts_and_deletes(
    numbers: range, seed: int, tpch: Workload, settings: ServiceSettings, tmp_path: Path
) -> None:
    rows = follow(tpch, settings, tmp_path, seed, numbers)
    assert all(rows[number] for number in numbers), rows
