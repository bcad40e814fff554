"""The executors of a Spark cluster: batches run only on executors that have been warmed up.

The first task on an executor waits for the imports of its Python process, which take as long as
several batches. So a new executor first gets tasks that do nothing, while batches continue on the
other executors. When these tasks are done, the executor takes part in batches.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from py4j.protocol import Py4JError

from anabranch_runtime.spark.session import free_slots

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

_LOG = structlog.get_logger("anabranch.runtime")


@dataclass(frozen=True, slots=True)
class Executor:
    """One of Spark's executors.

    Attributes:
        place: the executor's name as a preferred location of Spark's tasks.
        slots: number of tasks that the executor can run at once.
    """

    id: str
    place: str
    slots: int


@dataclass(slots=True)
class Executors:
    """Executors of a session; those present at the first :meth:`slots` count as warm."""

    session: SparkSession
    _warm: set[str] | None = None
    #: Id of an executor whose Python processes are starting -> the thread that waits for them.
    _starting: dict[str, threading.Thread] = field(default_factory=dict)

    def slots(self) -> tuple[int, Sequence[str] | None]:
        """Return the number of task slots for batches, and their preferred locations (None: any).
        Waits until there is an executor.

        Raises:
            PipelineError: ``no-executors``.
        """
        room, there = free_slots(self.session), present(self.session)
        if self._warm is None:
            self._warm = set(there)
        if self._warm.issuperset(there):
            return room, None
        found = [one for one in executors(self.session) if one.id in there]
        for one in found:
            if one.id not in self._warm and one.id not in self._starting:
                self._start(one)
        places = [one.place for one in found if one.id in self._warm for _ in range(one.slots)]
        return (len(places), places) if places else (room, None)

    def _start(self, one: Executor) -> None:
        warm = self._warm
        assert warm is not None

        def run() -> None:
            try:
                at(self.session, [one.place] * one.slots).mapPartitions(_ready).collect()
            except (Py4JError, ConnectionError) as error:
                # If the error persists, the first batch on this executor reports it.
                _LOG.warning("executor not warmed up", executor=one.id, error=str(error)[:500])
            warm.add(one.id)

        thread = threading.Thread(target=run, name=f"warm-up-{one.id}", daemon=True)
        self._starting[one.id] = thread
        thread.start()


def present(session: SparkSession) -> frozenset[str]:
    """Return the ids of the executors that can run Spark's tasks now."""
    found = session.sparkContext._jsc.sc().getExecutorIds().mkString(",")
    return frozenset(str(found).split(",")) - {""}


def executors(session: SparkSession) -> list[Executor]:
    """Return Spark's executors, without the driver."""
    listed = session.sparkContext._jsc.sc().statusStore().executorList(True)
    found = []
    for number in range(listed.size()):
        one = listed.apply(number)
        if one.id() != "driver":
            host = one.hostPort().rpartition(":")[0]
            found.append(Executor(one.id(), f"executor_{host}_{one.id()}", one.totalCores()))
    return found


def at(session: SparkSession, places: Sequence[str]) -> RDD[int]:
    """Return an RDD with one partition per preferred location in ``places``."""
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    spark = session.sparkContext
    jvm: Any = spark._jvm
    sequence = jvm.PythonUtils.toSeq
    pairs = [
        jvm.scala.Tuple2(pickle.dumps(number), sequence([place]))
        for number, place in enumerate(places)
    ]
    tags = jvm.java.lang.Class.forName("scala.reflect.ClassTag$").getField("MODULE$").get(None)
    made = spark._jsc.sc().makeRDD(sequence(pairs), tags.AnyRef())
    # Spark would end the process of a task that left input unread, so all input is read.
    return RDD(made.toJavaRDD(), spark, CPickleSerializer()).mapPartitions(_read)


def _read(numbers: Iterable[int]) -> Iterable[int]:
    """Read all input of a task in an executor, and return no values."""
    for _ in numbers:
        pass
    return ()


def _ready(_: Iterable[int]) -> Iterable[int]:
    """Return no values: the task need only start its Python process, with the imports."""
    return ()
