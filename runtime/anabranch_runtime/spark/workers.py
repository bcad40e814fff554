"""Long-running workers: one barrier stage whose tasks run batch after batch.

Starting a Spark job takes longer than a small batch. So one job runs for as long as nothing fails
and the executors stay the same: each of its tasks connects to the driver (``exchange.lines``),
receives the contexts of batches one after the other (after the first, only their changes), and
sends a report for each batch. In between, the driver answers the tasks' all-gathers. A failing task
ends the stage, and the next attempt at the batch starts a new stage.

Tasks of a stage occupy their slots. If other jobs need slots (ingest queries on a cluster), the
stage leaves some slots free, or ends after every batch if there is only one slot.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.exchange.lines import DriverAddress, TaskLine, TaskListener, call_driver
from anabranch_runtime.exchange.stage import LOOK, Stage
from anabranch_runtime.spark.executors import at
from anabranch_runtime.spark.job import barrier_task, run_task_here
from anabranch_runtime.spark.session import one_each, slots_now
from anabranch_runtime.task.context import BatchContext, context_of, order_of

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

#: Function that runs a task's part of a batch, given the context, the line to the driver and the
#: address of each task's host; returns the task's report.
Work = Callable[[BatchContext, TaskLine, list[str]], TaskReport]
#: Number of tasks of a stage, and their preferred locations in Spark (None: any).
Places = tuple[int, Sequence[str] | None]

#: Number of batches between two garbage collections of a task.
BATCHES_PER_COLLECTION = 50
#: If other jobs need slots, one of every ``OTHERS`` slots is left to them, at least one in all.
OTHERS = 8


@dataclass(slots=True)
class Workers:
    """The driver's side of long-running workers: starts their stages, and runs batches on them.

    Attributes:
        slots: returns number and locations of the task slots for batches; waits until there is one.
        work: runs a task's part of a batch.
        shared: whether other Spark jobs need slots too.
    """

    session: SparkSession
    listener: TaskListener
    slots: Callable[[], Places]
    work: Work = run_task_here
    shared: bool = False
    _stage: Stage | None = None
    #: The last context that was sent to the running stage.
    _sent: BatchContext | None = None
    #: Whether the running stage occupies the only slot, although other jobs need it too.
    _greedy: bool = False
    #: Time of the next check of the slots.
    _next: float = 0.0
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def start(self, *, idle: bool = False) -> None:
        """Start a stage, unless one runs in all slots for batches. Waits for an executor.

        Args:
            idle: whether no batch waits. Then no stage is started before the first batch, without
                executors, after a stage that failed before its first batch, or in a slot that
                another job may need.

        Raises:
            PipelineError: ``no-executors``.
        """
        with self._lock:
            stage, now = self._stage, time.monotonic()
            running = stage is not None and not stage.job.done()
            if (running or idle) and now < self._next:
                return
            self._next = now + LOOK
            # Wait for the first batch: by then most executors have registered.
            if idle and not running and (self.shared or stage is None or not stage.orders):
                return
            if idle and not slots_now(self.session):
                return
            tasks, places = self._divided()
            leave = idle and self._greedy
            if stage is not None:
                if running and stage.tasks == tasks and not leave:
                    return
                stage.close(cancel=False)
            run = partial(self._run, tasks, places)
            self._stage = None if leave else Stage(self.listener, tasks, run, self._cancel)

    def warm(self) -> None:
        """Start a stage of workers, unless one runs, and wait until they are ready for a batch.

        Raises:
            Py4JJavaError: a task does not start.
        """
        self.start()
        stage = self._stage
        assert stage is not None
        stage.connect()

    def run(self, context: BatchContext) -> list[TaskReport]:
        """Run the batch of ``context``; return one report per task, in the order of tasks.

        Raises:
            AnabranchRuntimeError: the error of a task, if a task has sent one.
            Py4JJavaError: the stage has failed.
        """
        self.start()
        stage = self._stage
        assert stage is not None
        order = order_of(self._sent if stage.orders else None, context)
        self._sent = context
        try:
            reports = stage.run(order)
        except BaseException:
            # Late reports on this batch must not count as reports on the next batch.
            self.close(cancel=True)
            raise
        if self._greedy:
            self.close()
        return reports

    def signs(self) -> int:
        """Return a number that grows with each sign of life of the running stage."""
        stage = self._stage
        return 0 if stage is None else stage.signs

    def short(self) -> bool:
        """Whether Spark has fewer slots than the running stage needs."""
        stage = self._stage
        return stage is not None and slots_now(self.session) < stage.tasks

    def cancel(self) -> None:
        """Cancel the running stage, so that its batch fails."""
        stage = self._stage
        if stage is not None:
            self._cancel(stage.id)

    def close(self, *, cancel: bool = False) -> None:
        """End the running stage, if any; ``cancel``: even while its tasks are working."""
        with self._lock:
            stage, self._stage = self._stage, None
        if stage is not None:
            stage.close(cancel=cancel)

    def _divided(self) -> Places:
        """Return the slots for a stage: all slots except some that are left to other jobs."""
        tasks, places = self.slots()
        self._greedy = self.shared and tasks == 1
        if self.shared:
            tasks = max(tasks - -(-tasks // OTHERS), 1)
        return tasks, None if places is None else places[:tasks]

    def _run(self, tasks: int, places: Sequence[str] | None, stage: str) -> None:
        """Run the Spark job of a stage until it ends."""
        spark = self.session.sparkContext
        spark.setJobGroup(stage, "workers of the pipeline")
        slots: RDD[int]
        slots = one_each(self.session, tasks) if places is None else at(self.session, places)
        follow = partial(_follow, self.listener.address, stage, self.work)
        slots.barrier().mapPartitions(follow).collect()

    def _cancel(self, stage: str) -> None:
        # Without a JVM there is nothing to cancel.
        with contextlib.suppress(Py4JError, ConnectionError):
            self.session.sparkContext.cancelJobGroup(stage)


def _follow(address: DriverAddress, stage: str, work: Work, _: Iterable[int]) -> Iterable[int]:
    """As one task of the stage, run batches until the driver ends the stage; returns no values."""
    task, hosts = barrier_task()
    batches, context = 0, None
    with closing(call_driver(address, stage, task, hosts)) as line:
        while (order := line.next_order()) is not None:
            context = context_of(context, order)
            line.report(work(context, line, hosts))
            batches += 1
            if batches % BATCHES_PER_COLLECTION == 0:
                gc.collect()
                gc.freeze()
    return ()
