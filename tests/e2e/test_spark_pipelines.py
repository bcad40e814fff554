"""Test of the declarative pipeline in docs/examples, run twice by ``spark-pipelines``."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from tests.support.documents.pages import ROOT
from tests.support.worlds.processes import LivePipeline, live_pipeline

EXAMPLE = ROOT / "docs" / "examples" / "spark_pipeline"
PROGRAM = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
JOINED = "FROM clicks c JOIN sales s ON s.page = c.page"
QUERIES = {
    "bought": f"SELECT c.visitor, s.page, s.price {JOINED}",
    "revenue": f"SELECT s.page, count(*) AS sold, sum(s.price) AS revenue {JOINED} GROUP BY s.page",
}
pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Datasets:
    """A copy of the example in ``folder``, with a Spark warehouse there."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.warehouse = folder / "project", folder / "warehouse"
        # A persistent catalog, in which a second run finds the tables of the first.
        self.metastore = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
        (self.folder / "transformations").mkdir(parents=True)
        for path in (p for p in EXAMPLE.rglob("*") if p.suffix in (".yml", ".py")):
            text = path.read_text().replace("file:///data/shop", f"file://{folder}/storage")
            (self.folder / path.relative_to(EXAMPLE)).write_text(text)
        self.environment = {**os.environ, "ANABRANCH_URL": url, "PYSPARK_PYTHON": sys.executable}

    def spark(self, command: str) -> str:
        """Run a command of ``spark-pipelines``, which must succeed; return its output."""
        settings = {
            "spark.sql.warehouse.dir": str(self.warehouse),
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": self.metastore,
        }
        conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [str(PROGRAM), command, "--remote", "local[1]", *conf],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def rows(self, name: str) -> Counter[tuple[Any, ...]]:
        """Return the rows in a dataset's files."""
        return counted(pq.read_table(self.warehouse / name))


def counted(table: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def push(live: LivePipeline, chance: random.Random, count: int) -> None:
    """Push random rows, and wait for their results."""
    client, before = live.client, live.progress().streams
    read = {name: before[name]["input"] if name in before else 0 for name in ("clicks", "sales")}
    rows: dict[str, list[dict[str, Any]]] = {"clicks": [], "sales": []}
    for _ in range(count):
        ts = f"2026-01-31T10:00:{chance.randint(10, 59)}Z"
        page = chance.randint(0, 4)
        rows["clicks"].append({"page": page, "visitor": f"v{chance.randint(0, 3)}", "ts": ts})
        rows["sales"].append({"page": page, "price": str(chance.randint(1, 9)), "ts": ts})
    for name, found in rows.items():
        client.push(name, found)

    def read_all() -> bool:
        now = live.progress().streams
        return all(name in now and now[name]["input"] >= read[name] + count for name in rows)

    live.wait("all rows", read_all)

    def newest() -> set[int]:
        return {client.table_columns(name).batch for name in QUERIES}

    live.wait("one batch", lambda: newest() == {live.progress().committed - 1})


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_status") is None, reason="Spark Connect needs grpcio-status"
)
def test_queries_as_datasets(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    with live_pipeline(tmp_path / "live") as live:
        client, chance = live.client, random.Random(11)
        columns = {"clicks": ("visitor", "string"), "sales": ("price", "decimal(9,2)")}
        for name, column in columns.items():
            client.create_stream(
                name,
                [("page", "bigint"), column, ("ts", "timestamp")],
                source={"format": "redis-stream"},
                event_time="ts",
                lateness="1 hour",
            )
        datasets = Datasets(tmp_path, client.base_url)
        for name, sql in QUERIES.items():
            client.create_query(sql, name=name, window="1 day")
        live.wait("queries", lambda: all(client.query(n).status == "active" for n in QUERIES))
        for _ in range(3):
            push(live, chance, 20)
        assert "Run is COMPLETED" in datasets.spark("dry-run")
        assert not datasets.warehouse.exists() or not any(datasets.warehouse.iterdir())
        assert "Run is COMPLETED" in datasets.spark("run")
        first = check(live, datasets)
        # A second run continues the streaming table, and recomputes the views.
        push(live, chance, 20)
        assert "Run is COMPLETED" in datasets.spark("run")
        assert check(live, datasets) > first


def check(live: LivePipeline, datasets: Datasets) -> int:
    """Compare the datasets with the queries' tables; return the table's number of results."""
    bought = counted(live.client.query("bought").arrow())
    assert bought
    assert datasets.rows("purchases") == bought
    assert datasets.rows("revenues") == counted(live.client.query("revenue").arrow())
    sums: Counter[str] = Counter()
    for (visitor, _, price), times in bought.items():
        sums[visitor] += times * price
    assert datasets.rows("visitors") == Counter(
        {(visitor, Decimal(total)): 1 for visitor, total in sums.items()}
    )
    return bought.total()


def test_the_page_has_the_example() -> None:
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shown = [block for block in blocks if "@dp." in block]
    assert shown
    code = (EXAMPLE / "transformations" / "shop.py").read_text(encoding="utf-8")
    for part in "".join(shown).split("\n\n\n"):
        assert part.strip() in re.sub(r'^    """.*\n', "", code, flags=re.MULTILINE)
