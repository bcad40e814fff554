"""Main program with an older Spark: commits to Delta and Iceberg tables, and reads of any such
tables.

``engine.py JARS FOLDER BATCHES [FORMAT=TABLE...]`` commits ``FOLDER/input.parquet`` ``BATCHES``
times to a table of either format, and reads the named tables. It prints a line of JSON per table:
the seconds and CPU seconds of each commit, or the number of rows read and the sum of their column
``x``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psutil
from pyspark.sql import SparkSession


def main(jars: str, folder: str, batches: int, tables: list[str]) -> None:
    """Commit to tables of both formats, then read ``tables``, each given as ``format=place``."""
    session = _session(jars, folder)
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]

    def cpu() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    for name in ("delta", "iceberg"):
        wall, used = [], []
        for number in range(batches):
            began, before = time.perf_counter(), cpu()
            rows = session.read.schema("x bigint, s string").parquet(f"{folder}/input.parquet")
            if name == "delta":
                marks = {"txnAppId": "benchmark", "txnVersion": str(number)}
                rows.write.format(name).mode("append").options(**marks).save(
                    f"{folder}/spark-delta"
                )
            elif number:
                rows.writeTo("lake.db.table").append()
            else:
                rows.writeTo("lake.db.table").create()
            wall.append(time.perf_counter() - began)
            used.append(cpu() - before)
        _tell({"format": name, "seconds": wall, "cpu_seconds": used})
    for table in tables:
        name, _, place = table.partition("=")
        (row,) = session.read.format(name).load(place).selectExpr("count(*)", "sum(x)").collect()
        _tell({"format": name, "read": list(row)})


def _session(jars: str, folder: str) -> SparkSession:
    catalog = "org.apache.iceberg.spark.SparkCatalog"
    # Spark's installation has all other jars.
    own = [*Path(jars).glob("delta-*.jar"), *Path(jars).glob("iceberg-*.jar")]
    settings = {
        "spark.jars": ",".join(map(str, sorted(own))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Number of tasks that read the state of a table; the default is 50.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.catalog.lake": catalog,
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"{folder}/spark-iceberg",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def _tell(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
