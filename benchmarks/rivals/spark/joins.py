"""Main program of a Spark process: SQL statements as streaming queries over Parquet files.

``python joins.py JOB``, a JSON file with

- ``tables``: table -> folder of its files; each micro-batch reads one file of each table;
- ``queries``: query -> its SQL statement;
- ``work``: folder for checkpoints;
- ``answers``: a folder for the results of each query, or null: results are dropped;
- ``master`` and ``settings`` of Spark.

All queries run at the same time in one session, until all files are read. The program prints CPU
seconds, seconds since its start, and the greatest resident memory in bytes, of Spark's JVM and this
process together.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def _started(spark: SparkSession, name: str, sql: str, work: Path, answers: str) -> StreamingQuery:
    writer = spark.sql(sql).writeStream.queryName(name).outputMode("append")
    writer = writer.option("checkpointLocation", str(work / "checkpoints" / name))
    if answers:
        writer = writer.format("parquet").option("path", f"{answers}/{name}")
    else:
        writer = writer.format("noop")
    return writer.trigger(availableNow=True).start()


def _usage(began: float) -> str:
    here = psutil.Process()
    every = [here, *here.children(recursive=True)]
    cpu = sum(sum(one.cpu_times()[:2]) for one in every)
    peak = sum(_peak(one.pid) for one in every)
    return f"{cpu} {time.monotonic() - began} {peak}"


def _peak(pid: int) -> int:
    """Return the greatest resident memory of a process in bytes (Linux); 0 if it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Run the job that the first argument names."""
    began = time.monotonic()
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    builder = SparkSession.builder.master(job["master"])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **job["settings"],
    }
    for name, text in settings.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    for name, folder in job["tables"].items():
        schema = spark.read.parquet(folder).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        reader.parquet(folder).createOrReplaceTempView(name)
    work, answers = Path(job["work"]), job["answers"] or ""
    running = [_started(spark, name, sql, work, answers) for name, sql in job["queries"].items()]
    for query in running:
        query.awaitTermination()
    sys.stdout.write(_usage(began) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
