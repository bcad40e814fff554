"""Workers that stay: one barrier stage whose tasks run batch after batch.

A Spark job per batch costs more than a small batch does. So one job runs for as long as nothing
fails and executors stay the same: each of its tasks connects to the driver (``exchange.lines``),
receives the contexts of batches one after the other, after the first as changes, and sends a report
for each. Between these the driver hands on the messages of the tasks' all-gather rounds. A task
that fails ends the stage, and the next attempt at the batch starts a new one.

Tasks of a stage hold their slots. Where other jobs need slots (ingest queries on a cluster), the
stage leaves some to them, or ends after every batch if there is only one.
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

#: A task's function of a batch, its line, and the addresses of the hosts of all tasks.
Work = Callable[[BatchContext, TaskLine, list[str]], TaskReport]
#: Number of tasks of a stage, and their preferred places in Spark's terms; None: any.
Places = tuple[int, Sequence[str] | None]

#: Batches between two garbage collections of a task.
BATCHES_PER_COLLECTION = 50
#: Part of the slots that other jobs get, at least one, where they need any.
OTHERS = 8


@dataclass(slots=True)
class Workers:
    """The driver's side: starts stages, and runs batches on them.

    Attributes:
        slots: returns the number and places of the slots of batches; waits until there is one.
        work: what each task does with a batch.
        shared: whether other jobs of Spark need slots too.
    """

    session: SparkSession
    listener: TaskListener
    slots: Callable[[], Places]
    work: Work = run_task_here
    shared: bool = False
    _stage: Stage | None = None
    #: The last context that the running stage has got.
    _sent: BatchContext | None = None
    #: Whether the running stage leaves no slot to other jobs that need one.
    _greedy: bool = False
    #: Time of the next check of the slots.
    _next: float = 0.0
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def start(self, *, idle: bool = False) -> None:
        """Start a stage, unless one runs that has all slots of batches. Waits for an executor.

        Args:
            idle: whether no batch waits. Then nothing is started before the first batch, without
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
            # At the first batch most executors have come.
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
        """Start a stage, unless one runs, and wait until its tasks are ready for a batch.

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
            AnabranchRuntimeError: the error of a task, if it is known.
            Py4JJavaError: a task has failed, and so the stage.
        """
        self.start()
        stage = self._stage
        assert stage is not None
        order = order_of(self._sent if stage.orders else None, context)
        self._sent = context
        try:
            reports = stage.run(order)
        except BaseException:
            # A report that is still to come must not count as one of the next batch.
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
        """Whether there are fewer slots than the running stage needs."""
        stage = self._stage
        return stage is not None and slots_now(self.session) < stage.tasks

    def cancel(self) -> None:
        """Cancel the running stage: its batch fails."""
        stage = self._stage
        if stage is not None:
            self._cancel(stage.id)

    def close(self, *, cancel: bool = False) -> None:
        """End the running stage, if any; ``cancel``: although its tasks may be working."""
        with self._lock:
            stage, self._stage = self._stage, None
        if stage is not None:
            stage.close(cancel=cancel)

    def _divided(self) -> Places:
        """The slots for a stage: all, except some for other jobs."""
        tasks, places = self.slots()
        self._greedy = self.shared and tasks == 1
        if self.shared:
            tasks = max(tasks - -(-tasks // OTHERS), 1)
        return tasks, None if places is None else places[:tasks]

    def _run(self, tasks: int, places: Sequence[str] | None, stage: str) -> None:
        """Run the job of a stage until it ends."""
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
    """Run batches as one task until the driver sends no further one."""
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
