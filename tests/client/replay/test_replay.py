"""Test of one small replay through the command line, the real service and the real runtime."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from tests.support.surroundings.kin import no_kin_left

SCENARIO = """
streams:
  orders: {path: orders.parquet, rows_per_batch: 2}
  customers: {path: customers.parquet, rows_per_batch: 1}
queries:
  first: {sql: "SELECT o.id, c.city FROM orders o JOIN customers c ON o.customer = c.id",
          expire_at: 3}
  second: {sql: "SELECT c.city, o.id FROM orders o JOIN customers c ON o.customer = c.id",
           register_at: 1}
  never: {sql: "SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id", register_at: 5}
epochs: {every: 2}
optimizer: {0: clash, 3: individual}
parallelism: 2
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_scenario_with_arrivals_and_departures(tmp_path: Path) -> None:
    orders = pa.table({"id": list(range(12)), "customer": [n % 4 for n in range(12)]})
    pq.write_table(orders, tmp_path / "orders.parquet")
    cities = pa.table({"id": [0, 1, 2, 3], "city": ["a", "b", "c", None]})
    pq.write_table(cities, tmp_path / "customers.parquet")
    (tmp_path / "s.yaml").write_text(SCENARIO)
    out = tmp_path / "out"
    with no_kin_left():
        result = CliRunner().invoke(
            app, ["replay", str(tmp_path / "s.yaml"), "--out", str(out), "--json"]
        )

    assert result.exit_code == 0, result.output
    assert "note: queries.never: never active" in result.stderr
    report = json.loads(result.stdout)
    assert report == json.loads((out / "report.json").read_text())
    assert sorted(p.name for p in out.iterdir()) == [
        ".anabranch-replay", "logs", "report.json", "results",
    ]  # fmt: skip

    assert (report["batches"], report["input_tuples"]) == (6, 16)
    assert [(e["epoch"], e["first_batch"], e["optimizer"]) for e in report["epochs"]] == [
        (0, 0, "clash"),
        (1, 2, "clash"),
        (2, 4, "individual"),
    ]
    assert report["cpu_seconds"] > 0
    assert report["peak_rss_bytes"] > 50_000_000
    queries = report["queries"]
    active = {n: (q["activated_batch"], q["expired_batch"]) for n, q in queries.items()}
    assert active == {
        "first": (0, 4),
        "second": (2, None),
        "never": (None, None),
    }
    seen = {alias: v["batch"] for alias, v in queries["second"]["visible_from"].items()}
    assert seen == {"o": 0, "c": 0}

    def rows(name: str) -> list[dict[str, object]]:
        table = pq.read_table(out / "results" / name)
        assert table.num_rows == queries[name]["results"]
        return sorted(table.to_pylist(), key=lambda r: int(str(r["id"])))

    # Order k arrives in batch k // 2, customer k in batch k.
    joined = [(k, "abc"[k % 4] if k % 4 < 3 else None, max(k // 2, k % 4)) for k in range(12)]
    assert rows("first") == [{"id": k, "city": c} for k, c, last in joined if last < 4]
    assert rows("second") == [{"city": c, "id": k} for k, c, last in joined if last >= 2]
    assert rows("never") == []
