"""Stream-stream joins of Spark Structured Streaming: files of a job, and the process that
runs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from benchmarks.rivals.environment import Spent, file_parts, output

VERSION = pyspark.__version__
_PROGRAM = Path(__file__).with_name("joins.py")
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state."


class StateStore(StrEnum):
    """Spark's state stores for joins; the values are class names of their providers."""

    MEMORY = "HDFSBackedStateStoreProvider"
    ROCKSDB = "RocksDBStateStoreProvider"


def write_input(streams: Mapping[str, pa.Table], folder: Path, *, files: int, used: int) -> None:
    """Write each stream as Parquet files of equal length; arguments as for :func:`file_parts`."""
    for path, part in file_parts(streams, folder, files=files, used=used):
        pq.write_table(part, path.with_suffix(".parquet"))


def run(
    queries: Mapping[str, str],
    folder: Path,
    work: Path,
    *,
    tasks: int,
    heap: str,
    store: StateStore,
    answers: Path | None = None,
) -> Spent:
    """Run all queries over the files below ``folder`` in a new process; returns its resource usage.

    Args:
        queries: query -> its SQL statement.
        folder: the folder of :func:`write_input`.
        work: empty folder for checkpoints.
        tasks: number of Spark's tasks, and of partitions of the state.
        heap: size of the JVM's heap, as for ``java -Xmx``.
        store: state store to use.
        answers: folder for Parquet files of the results of each query.

    Raises:
        RivalError: the process failed.
    """
    job = {
        "queries": dict(queries),
        "tables": {path.name: str(path) for path in sorted(folder.iterdir()) if path.is_dir()},
        "work": str(work),
        "answers": str(answers) if answers else None,
        "master": f"local[{tasks}]",
        "settings": {
            "spark.driver.memory": heap,
            "spark.sql.shuffle.partitions": str(tasks),
            "spark.sql.streaming.stateStore.providerClass": f"{_PROVIDERS}{store}",
        },
    }
    path = work / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    printed = output([sys.executable, str(_PROGRAM), str(path)], work)
    return Spent.read(printed.splitlines()[-1])
