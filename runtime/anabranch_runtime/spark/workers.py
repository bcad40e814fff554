"""Workers that stay: one barrier stage whose tasks run batch after batch.

A Spark job per batch costs more than a small batch does. So one job runs for as long as nothing
fails: each of its tasks connects to a Unix socket of the driver, receives the contexts of batches
one after the other, and sends a report for each. A task that fails ends the stage, as in a job per
batch, and the next attempt at the batch starts a new stage.

The socket lies in a folder that only this user may enter.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import select
import shutil
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.spark.job import barrier_task, run_task_here
from anabranch_runtime.spark.session import one_each
from anabranch_runtime.task.context import BatchContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A task's function of a batch, the task's number, and the addresses of all tasks.
Work = Callable[[BatchContext, int, list[str]], TaskReport]

#: Seconds between two checks of a stage's job while tasks start or work.
LOOK = 0.5
#: Seconds for which the tasks of a stage may take to end.
GRACE = 10.0
#: Batches between two garbage collections of a task.
BATCHES_PER_COLLECTION = 50


@dataclass(slots=True)
class Workers:
    """The driver's side: starts stages, and runs batches on them.

    Attributes:
        tasks: number of tasks of a stage. ``work``: what each of them does with a batch.
    """

    session: SparkSession
    tasks: int
    work: Work = run_task_here
    _stage: _Stage | None = None
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def start(self) -> None:
        """Start a stage, unless one runs."""
        with self._lock:
            if self._stage is None or self._stage.job.done():
                self._stage = _Stage(self.session, self.tasks, self.work)

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
            Py4JJavaError: a task has failed, and so the stage.
        """
        self.start()
        stage = self._stage
        assert stage is not None
        try:
            return stage.run(context)
        except BaseException:
            # A report that is still to come must not count as one of the next batch.
            self.close(cancel=True)
            raise

    def cancel(self) -> None:
        """Cancel the running stage: its batch fails."""
        stage = self._stage
        if stage is not None:
            self.session.sparkContext.cancelJobGroup(stage.group)

    def close(self, *, cancel: bool = False) -> None:
        """End the running stage, if any; ``cancel``: although its tasks may be working."""
        with self._lock:
            stage, self._stage = self._stage, None
        if stage is not None:
            stage.close(cancel=cancel)


class _Stage:
    """One stage: its job, and a connection to each of its tasks.

    Attributes:
        job: ends when the stage's job ends. ``group``: the job's group.
    """

    def __init__(self, session: SparkSession, tasks: int, work: Work) -> None:
        self._session, self._tasks, self._work = session, tasks, work
        self.group = f"workers-{uuid.uuid4().hex}"
        self.job: Future[None] = Future()
        self._folder = tempfile.mkdtemp(prefix="anabranch-")
        path = f"{self._folder}/workers"
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(tasks)
        self._lines: dict[int, Connection] = {}
        threading.Thread(target=self._run, args=(path,), name="workers", daemon=True).start()

    def _run(self, path: str) -> None:
        spark = self._session.sparkContext
        try:
            spark.setJobGroup(self.group, "workers of the pipeline")
            slots = one_each(self._session, self._tasks)
            slots.barrier().mapPartitions(partial(_follow, path, self._work)).collect()
        except BaseException as error:  # noqa: BLE001 - raised by those who wait for the job
            self.job.set_exception(error)
        else:
            self.job.set_result(None)

    def run(self, context: BatchContext) -> list[TaskReport]:
        """Run a batch; raises the error of the stage's job if a connection is lost."""
        self.connect()
        content = pickle.dumps(context)
        reports: dict[int, TaskReport] = {}
        try:
            for line in self._lines.values():
                line.send_bytes(content)
            waiting = {line: task for task, line in self._lines.items()}
            while waiting:
                for ready in wait(list(waiting), LOOK):
                    assert isinstance(ready, Connection)
                    reports[waiting.pop(ready)] = ready.recv()
                if waiting and self.job.done():
                    raise EOFError
        except (EOFError, OSError) as cause:
            raise self._failure() from cause
        return [report for _, report in sorted(reports.items())]

    def connect(self) -> None:
        """Wait until all tasks have connected."""
        if len(self._lines) == self._tasks:
            return
        while len(self._lines) < self._tasks:
            if self.job.done():
                raise self._failure()
            if select.select([self._server], [], [], LOOK)[0]:
                line = Connection(self._server.accept()[0].detach())
                self._lines[line.recv()] = line
        # A killed driver must leave nothing behind.
        shutil.rmtree(self._folder, ignore_errors=True)

    def _failure(self) -> BaseException:
        """Return the error of the job, which ends soon after a connection is lost."""
        try:
            found = self.job.exception(timeout=GRACE)
        except TimeoutError:
            found = None
        return found or PipelineError("workers-lost", "a task of the pipeline has ended")

    def close(self, *, cancel: bool) -> None:
        """End the tasks, and wait for the job: tasks that wait for a batch end by themselves, the
        others are killed.
        """
        for line in self._lines.values():
            with contextlib.suppress(OSError):
                line.send_bytes(pickle.dumps(None))
            line.close()
        self._server.close()
        for kill in (cancel or len(self._lines) < self._tasks, True):
            if kill and not self.job.done():
                # Without a JVM there is nothing to cancel.
                with contextlib.suppress(Py4JError, ConnectionError):
                    self._session.sparkContext.cancelJobGroup(self.group)
            with contextlib.suppress(TimeoutError):
                self.job.exception(timeout=GRACE)
                break
        shutil.rmtree(self._folder, ignore_errors=True)


def _follow(path: str, work: Work, _: Iterable[int]) -> Iterable[int]:
    """Run batches as one task until the driver sends no further one."""
    task, hosts = barrier_task()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        line = Connection(client.detach())
    batches = 0
    with line:
        line.send(task)
        while True:
            try:
                context = line.recv()
            except EOFError:
                # The driver has gone.
                return ()
            if context is None:
                return ()
            line.send(work(context, task, hosts))
            batches += 1
            if batches % BATCHES_PER_COLLECTION == 0:
                gc.collect()
                gc.freeze()
