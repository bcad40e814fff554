"""Tests of TPC-H joins and rules in other engines: statements, input, figures and the
report page.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pytest

from anabranch_client.replay.tpch import QUERIES
from benchmarks.command import made
from benchmarks.queries.rules import STREAM, rules
from benchmarks.report.targets import Verdict
from benchmarks.rivals import report, tpch
from benchmarks.rivals import rules as detection
from benchmarks.rivals.environment import RivalError, Spent
from benchmarks.rivals.flink.engine import ENVIRONMENT as FLINK
from benchmarks.rivals.flink.engine import Jvm, Mode, parts
from benchmarks.rivals.flink.statements import event_table
from benchmarks.rivals.ours import Cost
from benchmarks.rivals.pathway import engine as pathway
from benchmarks.rivals.pathway.engine import ENVIRONMENT as PATHWAY


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tpch.Input:
    return tpch.Input.of(0.001, 4, tmp_path_factory.mktemp("input"))


def _joined(name: str, columns: str) -> str:
    """Return SQL for Pathway's tree of joins."""
    (first, _), *others = tpch.STEPS[name]
    joins = "".join(
        f" JOIN {table} ON {' AND '.join(f'{a} = {b}' for a, b in pairs)}"
        for table, pairs in others
    )
    return f"SELECT {columns} FROM {first}{joins}"


def test_trees_of_joins_are_the_statements(given: tpch.Input) -> None:
    with duckdb.connect() as connection:
        for name, table in given.tables.items():
            connection.register(name, table)
        for query in QUERIES:
            tree = _joined(query.name, query.select)
            for one, other in ((tree, query.sql), (query.sql, tree)):
                rows = connection.execute(f"{one} EXCEPT ALL {other}").fetchall()
                assert rows == []
            assert given.rows[query.name] > 0
            joins = len(tpch.STEPS[query.name])
            assert joins == len(query.tables)


def test_files_hold_the_batches(given: tpch.Input, tmp_path: Path) -> None:
    pathway.write_input(given.tables, tmp_path / "every", files=4, used=4)
    pathway.write_input(given.tables, tmp_path / "first", files=4, used=1)
    lines = given.tables["lineitem"]
    read = [
        pa.csv.read_csv(tmp_path / "every" / "lineitem" / f"{number}.csv") for number in range(4)
    ]
    assert pa.concat_tables(read)["l_extendedprice"].equals(lines["l_extendedprice"])
    first = sum(pa.csv.read_csv(path).num_rows for path in (tmp_path / "first").glob("*/0.csv"))
    assert first == given.first
    assert given.tuples == sum(table.num_rows for table in given.tables.values())


def test_more_input_that_takes_less_time_gives_no_figures() -> None:
    every = [Spent(1, 1, 9), Spent(10, 5, 9), Spent(16, 8, 9)]
    with pytest.raises(RivalError, match="more input took less time: repeat this"):
        parts(every, [Spent(1, 1, 9), Spent(8, 5.5, 9), Spent(10, 6.5, 9)])


def _entry(scale: float) -> dict[str, Any]:
    names = ["DuckDB", "anabranch", "Pathway", "Flink, from the second batch", "Flink, warm"]
    seconds = dict(zip(names, (1.0, 2.0, 12.0, 20.0, 16.0), strict=True))
    ours = [Cost(1000, Spent(4, 2, 2**30)), Cost(1000, Spent(5, 2, 2**30))]
    return {
        "benchmark": "rivals",
        "part": "tpch",
        "at": "2030-01-01T00:00:00Z",
        "commit": "0" * 40,
        "changed": False,
        "versions": {"python": "3.11"},
        "machine": {"cpus": 2, "memory_gib": 24, "system": "Linux x86_64"},
        "load": {"before": [0, 0, 0], "after": [1, 1, 1]},
        "settings": {"scale": scale, "batches": 8, "runs": 2},
        "systems": {
            name: tpch.summary([Cost(1000, Spent(8, took, 2**30))] * 2, ours)
            for name, took in seconds.items()
        }
        | {"anabranch": tpch.summary(ours, ours)},
    }


def test_ratios_are_those_of_each_round() -> None:
    entry = _entry(0.1)
    assert entry["systems"]["Flink, warm"]["rate_times"]["median"] == 8
    assert entry["systems"]["Pathway"]["rate_times"]["median"] == 6
    assert entry["systems"]["DuckDB"]["cpu_times"]["median"] == 1.8
    found = {target.what: target for target in tpch.targets(entry)}
    assert found["scale 0.1: CPU"].figure.value == 4.5
    assert len(found) == 5
    assert {target.verdict for target in found.values()} <= set(Verdict)
    large = {target.what: target for target in tpch.targets(_entry(1))}
    assert large["scale 1: time, of DuckDB's batch"].figure.value == 2


def _detected(counts: Mapping[int, int]) -> dict[str, Any]:
    costs = {name: {"median": 2.0, "low": 1.0, "high": 3.0} for name in ("anabranch", "Flink, x")}
    return {
        **_entry(1),
        "part": "rules",
        "settings": {"events": 1000},
        "results": {str(number): count for number, count in counts.items()},
        "cpu": {str(number): costs for number in counts},
    }


def test_a_page_shows_every_scale_and_rules(tmp_path: Path) -> None:
    assert report.main(["--docs", str(tmp_path)]) == 1
    made(tmp_path / "benchmarks")
    lines = [_entry(1), _entry(0.1), _detected({5: 3, 50: 2000}), _entry(1)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "benchmarks" / "rivals.jsonl").write_text(text, encoding="utf-8")
    assert report.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "benchmarks-rivals.md").read_text(encoding="utf-8")
    assert page.index("scale 0.1, 8 batches") < page.index("scale 1, 8 batches")
    assert "| 50 | 2,000 | 2.0 (1.0–3.0) | 2.0 (1.0–3.0) |" in page
    joins = (tmp_path / "benchmarks" / "rivals-joins.svg").read_text(encoding="utf-8")
    assert "scale 0.1, 2 CPUs" in joins
    assert joins.count("thousand tuples per second: ") == 3
    picture = (tmp_path / "benchmarks" / "rivals-rules.svg").read_text(encoding="utf-8")
    assert "Flink, x" in picture


def test_rules_have_the_same_results_in_both_dialects(tmp_path: Path) -> None:
    """Flink's statements also run in DuckDB, except for their quotes."""
    given = detection.Input.of(40_000, 30, 10, tmp_path)
    chosen, found = list(rules(200, 5)), 0
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register(STREAM, given.table)
        for rule in chosen:
            plain = detection.plain(rule)
            flink = detection.flink(rule).replace("`", '"').replace("TIMESTAMP(3)", "TIMESTAMP_MS")
            rows = [sorted(connection.execute(one).fetchall()) for one in (plain, flink)]
            assert rows[0] == rows[1]
            found += len(rows[0])
    assert found > 100
    assert sum(" e2" in detection.flink(rule) for rule in chosen) > 20
    table = event_table(STREAM, given.table.schema, tmp_path, "ts")
    assert "`ts` TIMESTAMP(3),\n  WATERMARK FOR `ts` AS `ts`)" in table


def test_repeated_runs_find_every_result_once(tmp_path: Path) -> None:
    given = detection.Input.of(20_000, 30, 10, tmp_path)
    assert detection.rerun(given, list(rules(40, 5)), 10, 1) > 0


@pytest.mark.slow
@pytest.mark.spark
def test_sparks_joins_have_duckdbs_rows(given: tpch.Input, tmp_path: Path) -> None:
    stock = tpch.Spark(given, tmp_path, 2, "1g")
    stock.check()
    assert stock.cost().tuples == given.tuples - given.first


@pytest.mark.slow
@pytest.mark.spark
def test_all_systems_have_duckdbs_rows(given: tpch.Input, tmp_path: Path) -> None:
    try:
        FLINK.require()
        PATHWAY.require()
    except RivalError as error:
        pytest.skip(str(error))
    flink = tpch.Flink(given, Jvm(), made(tmp_path / "flink"))
    for mode in Mode:
        flink.check(mode)
    beside = tpch.Pathway(given, made(tmp_path / "pathway"))
    beside.check()
    assert beside.cost().tuples == given.tuples - given.first
    assert tpch.ours(given, tmp_path / "run", 2).tuples == given.tuples - given.first
    parser = ArgumentParser()
    detection.BENCHMARK.options(parser)
    options = parser.parse_args(["--batches", "4"])
    events = detection.Input.of(20_000, 30, 4, made(tmp_path / "events"))
    chosen = list(rules(12, 5))
    detection.Flink(events, 4, Jvm(), made(tmp_path / "rules")).check(chosen)
    cost = detection.ours(events, chosen, tmp_path / "run", options)
    assert cost.tuples == 15_000
