"""Tests of random queries over TPC-H, joined by keys or by type-compatible columns, and of equal
rations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from anabranch_contract.plans.rations import Ranking, RationedGoal, RationSchedule, SchedulePoint
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_planner.passes import parse_sql
from benchmarks.papers.jaqpot.live.equal import equalised
from benchmarks.planner import part_mixed
from benchmarks.planner.tables import tables
from benchmarks.planner.type_compatible import FOREIGN_KEYS, TABLES, Mixture, draw
from benchmarks.runtime.newest import newest
from benchmarks.runtime.sharing import name_of


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> part_mixed.Data:
    return part_mixed.data_of(tmp_path_factory.mktemp("tpch"), 0.001)


def test_pairs_are_of_one_type_and_have_values_in_common(data: part_mixed.Data) -> None:
    found = {frozenset(join.columns): join for join in data.joins}
    assert set(found) >= FOREIGN_KEYS
    assert sum(join.is_key for join in data.joins) == len(FOREIGN_KEYS) == 9
    # Examples of the paper.
    half = found[frozenset(("l_linestatus", "o_orderstatus"))]
    few = found[frozenset(("c_custkey", "n_nationkey"))]
    assert half.selectivity > 0.3
    # Each nation key is also a customer key; most customer keys are not nation keys.
    assert few.selectivity * data.rows["customer"] < 1 < data.rows["customer"] / 25
    assert not half.is_key
    # Columns without common values, or of another type, are not joined.
    assert frozenset(("p_brand", "o_orderpriority")) not in found
    assert frozenset(("o_orderdate", "o_orderkey")) not in found


@pytest.mark.parametrize("mixture", Mixture)
def test_queries_are_joins_of_different_tables(data: part_mixed.Data, mixture: Mixture) -> None:
    drawn = draw(data.joins, mixture, 20, 4, seed=3)
    assert len(drawn) == 20
    assert drawn == draw(data.joins, mixture, 20, 4, seed=3)
    assert drawn != draw(data.joins, mixture, 20, 4, seed=4)
    keys = sum(join.is_key for query in drawn for join in query.joins)
    assert keys == 60 if mixture is Mixture.KEYS else 0 < keys < 60
    for number, query in enumerate(drawn):
        assert len(set(query.tables)) == 4
        assert len(query.joins) == 3
        parsed = parse_sql(f"q{number}", query.query(f"q{number}").sql, data.streams)
        assert {member.label for member in parsed.members} == set(query.tables)
        assert set(map(part_mixed.equality, query.joins)) <= set(parsed.predicates)


def test_expected_results_of_one_join_are_exact(data: part_mixed.Data, tmp_path: Path) -> None:
    part_mixed.data_of(tmp_path, 0.001)
    with duckdb.connect() as db:
        for table in TABLES:
            db.read_parquet(str(tmp_path / f"{table}.parquet")).create_view(table)
        for query in draw(data.joins, Mixture.PAIRS, 30, 2, seed=1):
            one = query.query("q")
            (count,) = db.execute(f"SELECT count(*) FROM {one.source}").fetchall()[0]
            assert query.results(data.rows) == pytest.approx(count)


def test_costs_of_sets_and_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_mixed, "COUNTS", (3,))
    found = part_mixed.measure_mixed(part_mixed.Options(2, 0.001, 10.0))
    assert [group["mixture"] for group in found["groups"]] == list(Mixture)
    for group in found["groups"]:
        for ratios in group["objectives"].values():
            assert ratios["joint"]["low"] >= ratios["shared"]["low"] >= 1
            assert ratios["joint"]["runs"] == 2
    entry: dict[str, Any] = {"part": "mixed", "settings": {"seeds": 2}, **found}
    (grid,) = tables(json.loads(json.dumps(entry)))
    assert len(grid.rows) == 6
    assert all(len(row) == len(grid.head) for row in grid.rows)


def test_a_random_set_is_another_workload_than_the_same_number_of_queries() -> None:
    known = {"scale": 0.01, "queries": 5}
    drawn = {**known, "random": 1000}
    lines = [
        json.dumps({"benchmark": "runtime", "part": "sharing", "at": n, "workloads": [one]})
        for n, one in enumerate((known, drawn))
    ]
    assert newest(lines)["sharing"]["workloads"] == [known, drawn]
    assert name_of(drawn) == "random set 1000, 5 queries, SF 0.01"


def test_equal_rations_are_equal_at_every_budget() -> None:
    ranking = Ranking((("k", "int"),), by_batch=False)
    goals = tuple(RationedGoal(QueryId("q"), Label(name), ranking) for name in "rst")
    best = (
        SchedulePoint(0.0, (0.0, 0.0, 0.0)),
        SchedulePoint(0.4, (1.0, 0.0, 0.2)),
        SchedulePoint(1.0, (1.0, 1.0, 1.0)),
    )
    found = equalised(RationSchedule(3, 1, goals, best))
    assert (found.epoch, found.revision, found.goals) == (3, 1, goals)
    for budget in (0.0, 0.25, 0.7):
        assert {ration.share for ration in found.rations(budget)} == {budget}
    assert found.rations(1.0) == ()
