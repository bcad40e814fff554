"""Spark's Python worker daemon with shared imports and less frequent garbage collection.

``pyspark.daemon`` runs a full collection after every task; over the modules that a worker has
imported that takes tens of milliseconds, several times a batch. Here everything that workers need
is imported before the first fork and frozen out of the collector, and a task is followed by a
collection only now and then. Named in ``spark.python.daemon.module``.
"""

from __future__ import annotations

import gc
import types

#: Tasks between two collections in one worker.
TASKS_PER_COLLECTION = 50


def main() -> None:
    """Serve forks until Spark closes the pipe."""
    import pandas  # noqa: F401 - for its import time only
    import pyarrow.parquet  # noqa: F401
    import pyspark.daemon
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker

    import anabranch_runtime.spark.apart
    import anabranch_runtime.spark.job  # noqa: F401
    from anabranch_contract.collection import collect_rarely
    from anabranch_runtime.index import direct, kernels, rounds
    from anabranch_runtime.spark.planning_daemon import leave_out_closed_connections

    collect_rarely()
    kernels.warm()
    direct.warm()
    rounds.warm()
    gc.collect()
    gc.freeze()
    tasks = 0

    def collect() -> None:
        nonlocal tasks
        tasks += 1
        if tasks == 1 or tasks % TASKS_PER_COLLECTION == 0:
            gc.collect()
            gc.freeze()

    # The daemon looks its collector up by this name after each task.
    pyspark.daemon.gc = types.SimpleNamespace(collect=collect)  # type: ignore[assignment, attr-defined]
    leave_out_closed_connections()
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
