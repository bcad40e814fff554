"""Test of set operations from the command line through service, planner and pipeline."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from tests.support.worlds.replay_check import replay
from tests.support.worlds.view_runs import comparable, current_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BOTH = "SELECT id, n FROM orders WHERE n > 1 UNION ALL SELECT id, n FROM sales"
QUERIES = {
    "rows": BOTH,
    "joined": f"SELECT u.n, i.n AS m FROM ({BOTH}) u JOIN items i ON i.id = u.id",
    "counted": f"SELECT u.n, count(*) AS c, sum(i.n) AS s FROM ({BOTH}) u JOIN items i "
    "ON i.id = u.id GROUP BY u.n",
    "all": "SELECT id FROM orders UNION SELECT id FROM sales INTERSECT SELECT id FROM items",
    "less": "SELECT id, n FROM orders EXCEPT ALL SELECT id, n FROM sales",
    "shared": "SELECT id FROM orders INTERSECT ALL SELECT id FROM sales ORDER BY id",
    "first": f"{BOTH} ORDER BY 2 DESC NULLS LAST, 1 NULLS FIRST LIMIT 5",
}


def test_rows_are_those_of_duckdb(tmp_path: Path) -> None:
    rng, tables = Random(1), dict[str, pa.Table]()
    for name in ("orders", "sales", "items"):
        ids = [None if rng.random() < 0.05 else rng.randrange(30) for _ in range(200)]
        numbers = [rng.randrange(5) for _ in ids]
        tables[name] = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(numbers)})
        pq.write_table(tables[name], tmp_path / f"{name}.parquet")
    scenario = {
        "streams": {n: {"path": f"{n}.parquet", "rows_per_batch": 40} for n in tables},
        "queries": {name: {"sql": sql} for name, sql in QUERIES.items()},
        "epochs": {"every": 2},
    }
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    done = replay(tmp_path / "scenario.yaml", tmp_path / "out")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    columns = (("id", parse_type("bigint")), ("n", parse_type("bigint")))
    streams = {name: Stream(StreamName(name), columns) for name in tables}
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for name, sql in QUERIES.items():
            folder, view = tmp_path / "out" / "results" / name, parse_sql(name, sql, streams).view
            if view is None:
                files = str(folder / "*.parquet")
                found = connection.execute("SELECT * FROM read_parquet(?)", [files]).fetchall()
            else:
                found = current_rows(folder, view)
            wanted = comparable(connection.execute(sql).fetchall())
            assert wanted, name
            assert comparable(found) == wanted, name
