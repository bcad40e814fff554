"""A second process with a local Spark session, for views and for sinks that Spark writes.

The files of views and the input of sinks are on the driver's machine, where a cluster's executors
can't read them, and one task can process each. So on a cluster, views and sinks use a local Spark
session. It needs its own process, because a process can have only one Spark session.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation, LeftRows
from anabranch_contract.protocol.keys import Keys
from anabranch_runtime.control import Control
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.sinks.delivery import Delivery, Write
from anabranch_runtime.sinks.publisher import local_writers
from anabranch_runtime.sinks.spark import spark_writer
from anabranch_runtime.sinks.tail import Tails
from anabranch_runtime.sinks.view_inputs import HOME
from anabranch_runtime.spark.session import of_any_session, spark_session
from anabranch_runtime.storage.pipeline_lock import identity
from anabranch_runtime.views.counts import all_shown, all_written
from anabranch_runtime.views.upkeep import NO_QUERIES, Views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Method of ``Views`` -> its result before the first view.
_NOTHING: Mapping[str, Any] = {
    "problems": {},
    "lag": {},
    "shown": {},
    "written": {},
    "left_rows": {},
}
#: Folder in the results directory for Spark's checkpoints of views, if the state directory is a
#: cache.
CHECKPOINTS = ".views-checkpoints"


def spark_writers(
    session: SparkSession, settings: DriverSettings, namespace: str
) -> dict[SinkKind, Write]:
    """Writers of the sinks that only Spark can write, by ``session``."""
    write = spark_writer(
        session,
        results=settings.results,
        namespace=namespace,
        identity=lambda: identity(settings.state),
        access=settings.access,
    )
    return {SinkKind.FILES: write, SinkKind.TABLE: write}


def checkpoints_of(settings: DriverSettings) -> Path:
    """Folder of Spark's checkpoints of views. If the state directory is a cache, the folder is in
    the results directory, since checkpoints must last as long as the results.
    """
    if settings.object_store is None:
        return settings.state / "views"
    return settings.results / CHECKPOINTS


@dataclass(slots=True)
class Beside:
    """The driver's proxy of the second process: writes to sinks, and has the methods of ``Views``.
    The process starts with the first work.

    Raises (all methods):
        PipelineError: ``views-lost``: the process has ended.
    """

    settings: DriverSettings
    url: str
    namespace: str
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    #: Arguments of :meth:`begin`, for the process.
    _begun: tuple[int, dict[str, Activation]] = field(init=False, default=(0, {}))
    #: Whether the pipeline has views.
    _some: bool = field(init=False, default=False)
    #: Results of methods while the process does not run.
    _known: Mapping[str, Any] = field(init=False, default_factory=lambda: _NOTHING)
    _calls: Connection = field(init=False)
    _process: Any = field(init=False, default=None)

    def _start(self) -> None:
        if self._process is not None:
            return
        # A fork would inherit locks held by threads, and the JVM's connection, of this process.
        context = multiprocessing.get_context("spawn")
        self._calls, theirs = context.Pipe()
        arguments = (theirs, self.settings, self.url, self.namespace)
        self._process = context.Process(target=_serve, args=arguments, name="views", daemon=True)
        self._process.start()
        theirs.close()
        self._call("begin", *self._begun)

    def write(self, delivery: Delivery) -> None:
        """Write a delivery; raises the writer's errors."""
        self._start()
        self._call("write", delivery)

    def begin(self, next_batch: int, queries: Mapping[str, Activation] = NO_QUERIES) -> None:
        """As ``Views.begin``."""
        self._begun = next_batch, dict(queries)
        # Counts of ended views stay available.
        shown, written = all_shown(self.settings.results), all_written(self.settings.results)
        self._known = {**_NOTHING, "shown": shown, "written": written}
        if (self.settings.results / HOME).exists():
            # An earlier run had views.
            self._some = True
            self._start()

    def committed(
        self,
        next_batch: int,
        marks: Mapping[str, int],
        ruleset: Ruleset,
        queries: Mapping[str, Activation] = NO_QUERIES,
    ) -> None:
        """As ``Views.committed``."""
        wanted = tuple(q for q in ruleset.queries if q.has_post_join)
        if not wanted and not self._some:
            return
        # Views need no rules, and a ruleset may have thousands.
        few = replace(
            ruleset, queries=wanted, stores=(), store_rules=(), probe_rules=(), output_rules=()
        )
        known = {str(q.id): queries[q.id] for q in wanted if q.id in queries}
        self._start()
        self._call("committed", next_batch, dict(marks), few, known)
        self._some = bool(wanted) or bool(self.lag())

    def problems(self) -> dict[str, str]:
        """As ``Views.problems``."""
        found: dict[str, str] = self._call("problems")
        return found

    def lag(self) -> dict[str, int]:
        """As ``Views.lag``."""
        found: dict[str, int] = self._call("lag")
        return found

    def shown(self) -> dict[str, int]:
        """As ``Views.shown``."""
        found: dict[str, int] = self._call("shown")
        return found

    def written(self) -> dict[str, tuple[int, int]]:
        """As ``Views.written``."""
        found: dict[str, tuple[int, int]] = self._call("written")
        return found

    def left_rows(self) -> dict[str, LeftRows]:
        """As ``Views.left_rows``."""
        found: dict[str, LeftRows] = self._call("left_rows")
        return found

    def drain(self) -> None:
        """As ``Views.drain``."""
        if self._process is not None:
            self._call("drain")

    def close(self) -> None:
        """Stop views and the process; keep the last results of its methods."""
        if self._process is None:
            return
        process = self._process
        try:
            self._call("close")
            self._known = {name: self._call(name) for name in _NOTHING}
        finally:
            self._calls.close()
            self._process = None
            process.join()

    def _call(self, name: str, *arguments: object) -> Any:
        with self._lock:
            if self._process is None:
                return self._known[name]
            try:
                self._calls.send((name, arguments))
                done, answer = self._calls.recv()
            except (EOFError, OSError) as cause:
                raise PipelineError(
                    "views-lost",
                    "the process that keeps views and writes sinks has ended",
                    remedy="see the log above for why; start the runtime again, nothing is lost",
                ) from cause
        if not done:
            raise answer
        return answer


def _serve(calls: Connection, settings: DriverSettings, url: str, namespace: str) -> None:
    """Main loop of the process: serve one call after the other, until the connection closes."""
    # If spark-submit has started the driver, these point to its JVM.
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)
    session = spark_session("local[1]", of_any_session(settings.spark))
    writers: dict[SinkKind, Write] = dict(
        local_writers(url=url, namespace=namespace, state=settings.state, access=settings.access)
    )
    writers |= spark_writers(session, settings, namespace)
    views = Views(
        session,
        settings.results,
        checkpoints_of(settings),
        writers,
        Control(url, namespace).report_view,
        Tails(url, Keys(namespace), settings.results).feed_version,
    )
    while True:
        try:
            name, arguments = calls.recv()
        except EOFError:
            # Closed, or the driver has gone: the running call will be repeated.
            os._exit(0)
        try:
            if name == "write":
                (delivery,) = arguments
                answer = writers[delivery.sink.kind](delivery)
            else:
                answer = getattr(views, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - raised by the caller
            calls.send((False, _picklable(error)))
        else:
            calls.send((True, answer))


def _picklable(error: Exception) -> Exception:
    """``error``, or a RuntimeError with its text if it can't be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - pickling runs the error's own code
        return RuntimeError(str(error))
    return error
