"""A second process with a local Spark session, for sinks that Spark writes.

The input of sinks is on the driver's machine, where a cluster's executors can't read it, and one
task can process it. So on a cluster, sinks use a local Spark session. It needs its own process,
because a process can have only one Spark session.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.driver.tables import OF_SPARK, picklable
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.sinks.delivery import Delivery, Write
from anabranch_runtime.sinks.spark import spark_writer
from anabranch_runtime.spark.session import of_any_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_writers(
    session: SparkSession, settings: DriverSettings, namespace: str
) -> dict[SinkKind, Write]:
    """Return the writers of the kinds of sinks that only Spark can write."""
    write = spark_writer(
        session, results=settings.results, namespace=namespace, access=settings.access
    )
    return dict.fromkeys(OF_SPARK, write)


@dataclass(slots=True)
class Beside:
    """The driver's proxy of the second process with Spark, which starts with the first delivery."""

    settings: DriverSettings
    namespace: str
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _calls: Connection = field(init=False)
    _process: Any = field(init=False, default=None)

    def write(self, delivery: Delivery) -> None:
        """Have the process write a delivery to its sink; raises errors of the sink's writer.

        Raises:
            PipelineError: ``sinks-lost``: the process has ended.
        """
        with self._lock:
            if self._process is None:
                self._start()
            try:
                self._calls.send(delivery)
                error: Exception | None = self._calls.recv()
            except (EOFError, OSError) as cause:
                raise PipelineError(
                    "sinks-lost",
                    "the process that writes sinks by Spark has ended",
                    remedy="see the log above for why; start the runtime again, nothing is lost",
                ) from cause
        if error is not None:
            raise error

    def close(self) -> None:
        """Stop the process that writes Spark's sinks."""
        if self._process is not None:
            self._calls.close()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        # A fork would inherit locks held by threads, and the JVM's connection, of this process.
        context = multiprocessing.get_context("spawn")
        self._calls, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self.settings, self.namespace), name="sinks", daemon=True
        )
        self._process.start()
        theirs.close()


def _serve(calls: Connection, settings: DriverSettings, namespace: str) -> None:
    """Main loop of the second process: write deliveries until the driver closes the connection."""
    # If spark-submit has started the driver, these variables lead to its JVM.
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)
    session = spark_session("local[1]", of_any_session(settings.spark))
    (write, *_) = spark_writers(session, settings, namespace).values()
    while True:
        try:
            delivery = calls.recv()
        except (EOFError, OSError):
            # The driver has ended or closed the connection: interrupted deliveries will be
            # repeated.
            os._exit(0)
        calls.send(_error_of(write, delivery))


def _error_of(write: Callable[[Delivery], None], delivery: Delivery) -> Exception | None:
    try:
        write(delivery)
    except Exception as error:  # noqa: BLE001 - raised by the caller
        return picklable(error)
    return None
