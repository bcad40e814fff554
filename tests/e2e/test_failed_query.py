"""Test of a query that fails while it runs: only it ends, and it is not planned again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.oracles.oracle import Oracle, OracleQuery, from_spark
from tests.support.scenarios.file import activation_in, read_report, read_scenario
from tests.support.worlds.replay_check import check, replay

BATCHES, ROWS, BAD = 8, 40, 130
JOIN = "FROM A a JOIN B b ON a.k = b.k"


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_fails_alone_and_leaves_the_next_epoch(tmp_path: Path) -> None:
    rows = BATCHES * ROWS
    values = [0 if r == BAD else 1 + r % 5 for r in range(rows)]
    keys = [r % 7 for r in range(rows)]
    pq.write_table(pa.table({"id": range(rows), "k": keys, "v": values}), tmp_path / "A.parquet")
    pq.write_table(pa.table({"id": range(rows), "k": keys}), tmp_path / "B.parquet")
    queries = {
        "sound": f"SELECT a.id, b.id AS b_id {JOIN}",
        "bad": f"SELECT a.id, b.id AS b_id {JOIN} AND 60 / a.v > 20",
        "worse": f"SELECT a.id, 60 % a.v AS rest {JOIN}",
    }
    document = {
        "streams": {n: {"path": f"{n}.parquet", "rows_per_batch": ROWS} for n in ("A", "B")},
        "queries": {name: {"sql": sql} for name, sql in queries.items()},
        "epochs": {"every": 2},
    }
    path = tmp_path / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))

    done = replay(path, tmp_path / "out")

    assert done.returncode == 1, done.stderr[-4000:]
    assert "refused or failed: bad, worse" in done.stderr
    report = read_report(tmp_path / "out")
    assert report["queries"]["sound"]["status"] == "active"
    assert [e["queries"] for e in report["epochs"]] == [
        ["sound", "bad", "worse"],
        ["sound", "bad", "worse"],
        ["sound"],
        ["sound"],
    ]
    oracle = Oracle(read_scenario(path))
    for name in ("bad", "worse"):
        said = report["queries"][name]
        assert (said["status"], said["error"]["code"]) == ("failed", "divide-by-zero")
        assert said["error"]["batch"] == said["expired_batch"] == BAD // ROWS
        assert "60" in said["error"]["expression"]
        entry, query = read_scenario(path).queries[name], queries[name]
        found = oracle.compare(
            _of(query), entry, activation_in(report, name), tmp_path / "out" / "results" / name
        )
        assert not found.problems
        assert found.got == said["results"] > 0
    oracle.close()
    verdict = check(path, tmp_path / "out")
    assert {p.split(":")[0] for p in verdict.problems} == {"bad", "worse"}


def _of(sql: str) -> OracleQuery:
    return from_spark(sql, {"A": ["id", "k", "v"], "B": ["id", "k"]})
