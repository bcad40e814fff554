"""Spark's session: its settings, its start, and the start of its workers.

Starting the JVM takes most of the time of the runtime's restart, so the JVM starts concurrently
with imports and the check of the state (:func:`starting`), and from an archive of its classes if
there is one (``class_archive``). So that the start begins early, this module imports little.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from anabranch_contract.connectors.user_functions import VARIABLE as FUNCTIONS
from anabranch_contract.spark_settings import is_local
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.spark.class_archive import archive_options
from anabranch_runtime.spark.interpreter import worker_interpreter

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

#: Seconds to wait for executors.
PATIENCE = 120.0
#: Setting of the driver's JVM options.
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: Setting of the Python interpreter of a cluster's workers.
PYTHON = "spark.pyspark.python"
_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
#: Seconds without executors after which a message is logged.
SILENCE = 5.0
#: Measured on small batches. A Unix socket to the workers avoids delayed acknowledgements; the
#: daemon avoids a garbage collection per task; this checkpoint manager over the raw local file
#: system avoids a forked process per permission; the first compiler tier suffices for short jobs. A
#: small initial heap saves 50 to 90 MB in a session with little work, without costing time.
SPARK_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "anabranch_runtime.spark.daemon",
    "spark.sql.streaming.checkpointFileManagerClass": _MANAGER,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    JAVA_OPTIONS: "-Xms64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    " -Djdk.lang.Process.launchMechanism=VFORK",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Spark does not retry a failed stage: the driver retries the batch in another stage.
    "spark.stage.maxConsecutiveAttempts": "1",
    # With Spark's defaults, it takes up to three minutes until Spark notices that an executor has
    # vanished, which blocks its batch. A slow executor still sends heartbeats, from another thread.
    "spark.executor.heartbeatInterval": "5s",
    # An executor that has lost its driver ends, so that the driver that takes over gets its slots.
    "spark.executor.heartbeat.maxFailures": "10",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "40s",
    "spark.network.timeoutInterval": "5s",
    # If an executor vanishes just before a batch, the next attempt uses the other ones. By default,
    # Spark would check for enough slots every 15 seconds, for ten minutes.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
}


def starting(master: str, given: Mapping[str, str] | None = None) -> Future[SparkSession]:
    """Start :func:`spark_session` in a thread; the future has the session or an error.

    The thread does not keep the process alive: the JVM ends with its driver process.
    """
    found: Future[SparkSession] = Future()

    def start() -> None:
        try:
            found.set_result(spark_session(master, given))
        except BaseException as error:  # noqa: BLE001 - raised at the reading of the result
            found.set_exception(error)

    threading.Thread(target=start, name="spark-session", daemon=True).start()
    return found


def spark_session(master: str, given: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session configured for small, frequent batches.

    Workers run under this process's interpreter, whatever ``python3`` the search path has; a
    cluster's workers under ``spark.pyspark.python``, if it is given.

    Args:
        master: Spark's master URL.
        given: further settings, which override :data:`SPARK_SETTINGS`.
    """
    from pyspark.sql import SparkSession

    local = is_local(master)
    # The driver's interpreter runs look-ups of data sources.
    here = worker_interpreter() if local else sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = here
    os.environ["PYSPARK_PYTHON"] = here if local else (given or {}).get(PYTHON, here)
    master, settings = settings_of(master, given or {})
    builder = SparkSession.builder.master(master).appName("anabranch")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def settings_of(master: str, given: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the master URL with spare slots, and all settings: ``given`` ones override
    :data:`SPARK_SETTINGS`, except that JVM options are appended."""
    master, tasks = with_spare_slots(master)
    settings = dict(SPARK_SETTINGS)
    if FUNCTIONS in os.environ:
        settings[f"spark.executorEnv.{FUNCTIONS}"] = os.environ[FUNCTIONS]
    if tasks is not None:
        settings["spark.default.parallelism"] = str(tasks)
    if is_local(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    java = (SPARK_SETTINGS[JAVA_OPTIONS] + archive_options(), given.get(JAVA_OPTIONS, ""))
    return master, {**settings, **given, JAVA_OPTIONS: " ".join(filter(None, java))}


def of_any_session(given: Mapping[str, str]) -> dict[str, str]:
    """Return the ``given`` settings independent of the cluster: libraries, file systems, SQL.

    >>> of_any_session({"spark.jars.packages": "a:b:1", "spark.executor.memory": "4g"})
    {'spark.jars.packages': 'a:b:1'}
    """
    about = ("spark.jars", "spark.hadoop.", "spark.sql.")
    return {key: value for key, value in given.items() if key.startswith(about)}


def free_slots(session: SparkSession) -> int:
    """Return the number of tasks that the present executors can run at once; waits for an executor.

    Raises:
        PipelineError: ``no-executors``: there was none for :data:`PATIENCE` seconds.
    """
    since, said = time.monotonic(), False
    while not (found := slots_now(session)):
        waited = time.monotonic() - since
        if waited > PATIENCE:
            raise PipelineError(
                "no-executors",
                f"Spark has had no executor for {PATIENCE:.0f} s",
                remedy="see that workers are registered with the master and have room for this "
                "application; nothing is lost",
            )
        if waited > SILENCE and not said:
            said = True
            import structlog  # The start of the JVM must not wait for it.

            structlog.get_logger("anabranch.runtime").warning(
                "no executors", seconds=round(waited), until=PATIENCE
            )
        time.sleep(0.1)
    return found


def slots_now(session: SparkSession) -> int:
    """Return the number of tasks that the present executors can run at once; 0: no executor."""
    spark = session.sparkContext._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def parallelism(session: SparkSession) -> int:
    """Return the number of tasks per batch: on a cluster, the present number of task slots."""
    spark = session.sparkContext
    local = is_local(spark.master or "local")
    return spark.defaultParallelism if local else free_slots(session)


def with_spare_slots(master: str) -> tuple[str, int | None]:
    """Return a local master URL with two slots more than batches use, and the batches' number.

    A batch's barrier stage needs all its slots at the same moment, so tasks of other jobs would
    delay it, or block it for ever if they run one after the other. So all sinks that Spark writes
    share one spare slot, all ingest queries the other. A cluster's master is returned unchanged,
    with None.

    >>> with_spare_slots("local[2]"), with_spare_slots("spark://host:7077")
    (('local[4]', 2), ('spark://host:7077', None))
    """
    found = re.fullmatch(r"local(?:\[(\d+|\*)(,\d+)?\])?", master)
    if found is None:
        return master, None
    given = found[1] or "1"
    slots = len(os.sched_getaffinity(0)) if given == "*" else int(given)
    return f"local[{slots + 2}{found[2] or ''}]", slots


def one_each(session: SparkSession, tasks: int) -> RDD[int]:
    """Return an RDD with ``tasks`` partitions, so that each task of a job gets one."""
    return session.sparkContext.parallelize(range(tasks), tasks)


def await_loss(session: SparkSession) -> int:
    """Wait for the end of the session's JVM; return its exit code.

    Never returns if another process has started the JVM, such as ``spark-submit``.
    """
    process = getattr(session.sparkContext._gateway, "proc", None)
    while process is None:
        threading.Event().wait()
    return int(process.wait())


def warm_up(session: SparkSession) -> None:
    """Start Spark's Python workers with their imports, so that no batch has to wait for them."""
    slots = one_each(session, parallelism(session))
    slots.barrier().mapPartitions(_nothing).collect()


def _nothing(slots: Iterable[int]) -> Iterable[int]:
    yield from ()
