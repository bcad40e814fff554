"""Spark doing nothing, as a separate process, for comparison in
:mod:`benchmarks.runtime.fixed_cost`.

It has the session settings of the runtime, Spark's ``rate-micro-batch`` source with as many rows
per batch as the runtime's batches, and a ``foreachBatch`` with one ``mapInArrow`` that reads its
input and returns nothing. The end time of each batch is appended to the file ``commits``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch_runtime.spark.session import spark_session, warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the batches and return no rows."""
    for _ in batches:
        pass
    yield from ()


def main(path: str) -> None:
    """Run without end, with the settings in the JSON document at ``path``."""
    given = json.loads(Path(path).read_text())
    home = Path(given["home"])
    session = spark_session(given["master"])
    warm_up(session)
    rows = sum(s["rows_per_batch"] for s in given["streams"])
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).name("rows")
    frame = source.option("numPartitions", session.sparkContext.defaultParallelism).load()
    with (home / "commits").open("a", buffering=1) as commits:

        def apply(blocks: DataFrame, batch: int) -> None:
            blocks.mapInArrow(nothing, "x long").collect()
            commits.write(f"{time.time()}\n")

        writer = frame.writeStream.foreachBatch(apply)
        query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
        (home / "ready").touch()
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
