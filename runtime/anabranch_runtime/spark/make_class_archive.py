"""``python -m anabranch_runtime.spark.make_class_archive``: make the archive of Spark's classes.

It runs a small streaming query, and the JVM dumps the classes that it has loaded. ``make setup``
and the image run it once; it takes about twenty seconds and 150 MB.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark import SparkContext

from anabranch_runtime.spark.class_archive import QUIET, archive_path
from anabranch_runtime.spark.session import JAVA_OPTIONS, SPARK_SETTINGS, spark_session, warm_up

#: Maximum seconds for the query, and again for the dump.
PATIENCE = 120.0


def make_archive() -> Path:
    """Make the archive of the JVM's classes, unless it exists, and return its path.

    Raises:
        RuntimeError: the JVM left no archive.
    """
    path = archive_path()
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        _load_classes(f" -XX:ArchiveClassesAtExit={draft} {QUIET}")
    finally:
        _end_jvm()
    if not draft.is_file():
        raise RuntimeError(f"the JVM left no archive of classes at {draft}")
    draft.replace(path)
    return path


def _load_classes(options: str) -> None:
    """Load the classes that the runtime needs: run a barrier stage, and a streaming query."""
    SPARK_SETTINGS[JAVA_OPTIONS] += options
    session = spark_session("local[1]")
    warm_up(session)
    seen: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        query = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1)
            .name("rows")
            .load()
            .writeStream.foreachBatch(lambda frame, batch: seen.append(frame.count()))
            .option("checkpointLocation", folder)
            .start()
        )
        deadline = time.monotonic() + PATIENCE
        while len(seen) < 2 and query.isActive and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()
    session.stop()


def _end_jvm() -> None:
    """End this process's JVM in an orderly way, and wait: it dumps its classes at its end."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait(PATIENCE)


if __name__ == "__main__":
    sys.stdout.write(f"{make_archive()}\n")
