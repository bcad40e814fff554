"""Tests of Delta and Iceberg tables of Spark's catalogs as streams, while Spark changes them.

The newest Delta and Iceberg need an older Spark than ours. So it is a server of Spark Connect in an
environment of its own, which ``python -m benchmarks.rivals install lakehouse`` makes;
``ANABRANCH_LAKEHOUSE`` names another folder with ``bin/python`` and ``jars``.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch_client.errors import UsageError
from anabranch_client.processes.children import free_port
from anabranch_client.spark import table
from benchmarks.rivals.environment import Environment
from tests.support.documents.pages import ROOT
from tests.support.surroundings.lakes import Lake
from tests.support.worlds.processes import live_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME = Path(os.environ.get("ANABRANCH_LAKEHOUSE", Environment("lakehouse").folder))
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("grpc_status") is None or not (HOME / "jars").is_dir(),
        reason="python -m benchmarks.rivals install lakehouse",
    ),
]
SERVER = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for setting in sys.argv[1:]:
    builder = builder.config(*setting.split("=", 1))
builder.getOrCreate()
print("ready", flush=True)
sys.stdin.read()
"""
JOINED = (
    "SELECT o.id, o.price, o.tags[0] AS tag, u.name FROM orders o JOIN users u ON o.user = u.id"
)


@contextmanager
def lakehouse(folder: Path) -> Iterator[SparkSession]:
    """Context with a Spark session whose catalogs have Delta tables, and in ``lake`` Iceberg
    tables.
    """
    from pyspark.sql.connect.session import SparkSession as Remote

    port = free_port()
    catalog = "spark.sql.catalog.lake"
    extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    settings = {
        "spark.jars": ",".join(map(str, sorted((HOME / "jars").glob("*.jar")))),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": folder / "spark warehouse",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": f"io.delta.sql.DeltaSparkSessionExtension,{extensions}",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": folder / "iceberg",
    }
    given = [f"{name}={value}" for name, value in settings.items()]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPARK_HOME")}
    command = [str(HOME / "bin" / "python"), "-c", SERVER, *given]
    log = folder / "spark.log"
    with log.open("w") as errors, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
        env=environment, stderr=errors,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n", log.read_text()
        session: Any = Remote.builder.remote(f"sc://127.0.0.1:{port}").create()
        try:
            yield session
        finally:
            session.stop()


class Orders:
    """Random changes of the table ``orders``."""

    def __init__(self, spark: SparkSession, seed: int) -> None:
        self.spark, self.chance, self.next = spark, random.Random(seed), 0

    def insert(self, count: int) -> None:
        """Insert rows, some out of order."""
        values = []
        for number in range(self.next, self.next + count):
            user = self.chance.choice([*"01234", "NULL"])
            at = f"TIMESTAMP '2026-01-31 10:{self.chance.randint(10, 59)}:00'"
            price = f"{self.chance.randint(0, 99)}.5"
            values.append(f"({number}, {user}, {price}, array('é{number % 3}'), {at})")
        self.next += count
        self.spark.sql(f"INSERT INTO orders VALUES {', '.join(values)}").collect()

    def change(self) -> None:
        """Delete and update some rows."""
        some = self.chance.randint(0, 4)
        self.spark.sql(f"DELETE FROM orders WHERE id % 5 = {some}").collect()
        self.spark.sql(f"UPDATE orders SET price = price + 1 WHERE id % 7 = {some}").collect()


def test_tables_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake("iceberg", tmp_path / "runtime").configured(monkeypatch)
    (tmp_path / "live").mkdir()
    with lakehouse(tmp_path) as spark, live_pipeline(tmp_path / "live") as live:
        client = live.client
        orders = Orders(spark, 4)
        spark.sql(
            "CREATE TABLE orders (id BIGINT, user BIGINT, price DECIMAL(9,2), tags ARRAY<STRING>, "
            "at TIMESTAMP) USING delta PARTITIONED BY (user)"
        ).collect()
        orders.insert(40)
        spark.sql("CREATE NAMESPACE lake.db").collect()
        spark.sql("CREATE TABLE lake.db.users (id BIGINT, name STRING) USING iceberg").collect()
        spark.sql("INSERT INTO lake.db.users VALUES (0, 'a'), (1, 'b'), (3, NULL)").collect()
        (metadata,) = (tmp_path / "iceberg/db/users/metadata").glob("v2.metadata.json")
        lake.catalog.create_namespace("db")
        lake.catalog.register_table("db.users", f"file://{metadata}")

        scope: dict[str, Any] = {"spark": spark, "client": client}
        exec(block(), scope)
        found = scope["orders"]
        assert found.source.path == str(tmp_path / "spark warehouse" / "orders")
        assert [c.name for c in found.columns] == ["id", "user", "price", "tags", "at", "op"]
        assert scope["users"].source.options == {"table": "lake.db.users"}
        given: dict[str, Any] = {"client": client, "event_time": "at", "lateness": "1 day"}
        assert table(spark, "default.orders", kind="changes", **given).name == "orders"
        for more, text in (
            ({"columns": ["id", "user"]}, "with other columns"),
            ({"source": {"on_loss": "skip"}}, "with another source, of format delta"),
            ({"columns": ["id", "usr"]}, "no column 'usr'"),
        ):
            with pytest.raises(UsageError, match=text):
                table(spark, "orders", kind="changes", **given, **more)

        client.create_query(JOINED, name="named", window="10 days")
        live.wait("the query", lambda: client.query("named").status == "active")

        def expected() -> Counter[tuple[Any, ...]]:
            sql = JOINED.replace("users u", "lake.db.users u")
            return Counter(tuple(row) for row in spark.sql(sql).collect())

        def present() -> Counter[tuple[Any, ...]]:
            rows = client.query("named").arrow().to_pylist()
            return Counter(tuple(row.values()) for row in rows)

        for _ in range(3):
            wanted = expected()
            assert wanted
            live.wait("Spark's answer", partial(agree, present, wanted))
            orders.insert(10)
            orders.change()


def agree(present: Callable[[], Counter[Any]], wanted: Counter[Any]) -> bool:
    return present() == wanted


def block() -> str:
    """Return the code block of the page's example."""
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (found,) = [one for one in blocks if "import table" in one]
    return str(found)
