"""Spark's Python worker daemon with shared imports and less frequent garbage collection.

``pyspark.daemon`` runs a full collection after every task. It includes all imported modules, so it
takes tens of milliseconds, several times a batch. This daemon imports everything that workers need
before the first fork, excludes it from collections (``gc.freeze``), and collects only after every
:data:`TASKS_PER_COLLECTION` tasks. Spark starts it by ``spark.python.daemon.module``.
"""

from __future__ import annotations

import gc
import sys
import traceback
import types

#: Number of tasks between two garbage collections in one worker.
TASKS_PER_COLLECTION = 50


def main() -> None:
    """Fork Python workers as Spark requests them, until Spark closes the pipe."""
    import pandas  # noqa: F401 - for its import time only
    import pyarrow.parquet  # noqa: F401
    import pyspark.daemon
    import pyspark.worker

    import anabranch_runtime.spark.apart
    import anabranch_runtime.spark.job  # noqa: F401
    from anabranch_contract.collection import collect_rarely
    from anabranch_runtime.expressions.functions import json_scan
    from anabranch_runtime.index import warming
    from anabranch_runtime.tags import arrival_sets

    collect_rarely()
    warming.warm()
    json_scan.warm()
    arrival_sets.warm()
    gc.collect()
    gc.freeze()
    tasks = 0

    def collect() -> None:
        nonlocal tasks
        tasks += 1
        if tasks == 1 or tasks % TASKS_PER_COLLECTION == 0:
            gc.collect()
            gc.freeze()

    # The daemon looks up its collector and its printer of tracebacks by these names.
    pyspark.daemon.gc = types.SimpleNamespace(collect=collect)  # type: ignore[assignment, attr-defined]
    printing = types.SimpleNamespace(print_exc=print_error, format_exc=traceback.format_exc)
    pyspark.daemon.traceback = printing  # type: ignore[assignment, attr-defined]
    pyspark.daemon.manager()


def print_error() -> None:
    """Print the traceback of a worker's last error, unless the JVM has closed the connection, as
    happens after a worker has been idle for a minute."""
    if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
        traceback.print_exc()


if __name__ == "__main__":
    main()
