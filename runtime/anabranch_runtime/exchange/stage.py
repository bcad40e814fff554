"""The driver's side of a stage: sends orders to tasks, answers all-gathers, collects reports."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange.complaints import first_cause, is_consequence, other_version
from anabranch_runtime.exchange.lines import (
    LARGEST,
    DriverMessage,
    MessageKind,
    TaskListener,
    TaskMessage,
)
from anabranch_runtime.faults import Point, reach

#: Seconds between two checks of a stage's job while tasks start or work.
LOOK = 0.5
#: Maximum seconds that the tasks of a stage may take to end.
GRACE = 10.0


@dataclass(slots=True)
class GatherRounds:
    """All-gather rounds of a stage's ``tasks`` tasks during one order."""

    tasks: int
    _open: dict[int, dict[int, TaskMessage]] = field(default_factory=dict)

    def add(self, task: int, message: TaskMessage) -> list[bytes]:
        """Add a task's message of an all-gather round. Once all tasks have sent theirs, return the
        encoded reply to each task, before that an empty list."""
        calls = self._open.setdefault(message.round, {})
        calls[task] = message
        if len(calls) < self.tasks:
            return []
        del self._open[message.round]
        everybody = [calls[n] for n in range(self.tasks)]
        # One encoding per group of tasks, since its replies are equal, and long with many tasks.
        texts = dict[str, bytes]()
        for group in {call.group for call in everybody}:
            messages = [c.content if c.group == group else "" for c in everybody]
            texts[group] = pickle.dumps(DriverMessage(message.order, messages, message.round))
        return [texts[call.group] for call in everybody]


class Stage:
    """One stage: a Spark job whose tasks connect to the driver, and the lines to the tasks.

    Attributes:
        id: name of the stage. ``tasks``: number of tasks.
        job: future that is done when the job has ended.
        signs: number of messages received so far. ``orders``: number of orders sent so far.
    """

    def __init__(
        self,
        listener: TaskListener,
        tasks: int,
        run: Callable[[str], None],
        cancel: Callable[[str], None],
    ) -> None:
        """Start the stage's job in a thread.

        Args:
            run: runs the job, given the stage's id. ``cancel``: cancels it.
        """
        self.id, self.tasks = f"workers-{uuid.uuid4().hex}", tasks
        self.job: Future[None] = Future()
        self.signs = 0
        self._listener, self._job, self._cancel = listener, run, cancel
        self._lines: dict[int, Connection] = {}
        self.orders = 0
        self._complaints: list[dict[str, Any]] = []
        threading.Thread(target=self._run, name="workers", daemon=True).start()

    def _run(self) -> None:
        try:
            self._job(self.id)
        except BaseException as error:  # noqa: BLE001 - raised by those who wait for the job
            self.job.set_exception(error)
        else:
            self.job.set_result(None)

    def run(self, content: object) -> list[Any]:
        """Send ``content`` (an order) to all tasks; return their reports, in task order.

        Raises:
            AnabranchRuntimeError: the error that a task has sent, or ``workers-lost``.
            Exception: the error of the job.
        """
        self.connect()
        self.orders += 1
        rounds, reports = GatherRounds(self.tasks), dict[int, Any]()
        text = pickle.dumps(DriverMessage(self.orders, content))
        try:
            for line in self._lines.values():
                line.send_bytes(text)
                reach(Point.SENDING)
            while len(reports) < self.tasks:
                for task, message in self._receive(self._lines.keys() - reports.keys(), LOOK):
                    if message.kind is MessageKind.REPORT:
                        reports[task] = message.content
                    elif message.kind is MessageKind.GATHER:
                        for other, reply in enumerate(rounds.add(task, message)):
                            self._lines[other].send_bytes(reply)
                    elif message.kind is MessageKind.COMPLAINT:
                        raise EOFError
                if self.job.done() and len(reports) < self.tasks:
                    raise EOFError
        except (EOFError, OSError) as cause:
            raise self._failure() from cause
        return [reports[task] for task in range(self.tasks)]

    def close(self, *, cancel: bool) -> None:
        """End the tasks, and wait for the job. Tasks that wait for an order end by themselves;
        tasks that are working end only if the job is cancelled."""
        for line in self._lines.values():
            with suppress(OSError):
                line.send_bytes(pickle.dumps(DriverMessage(self.orders + 1, None)))
            line.close()
        for kill in (cancel or len(self._lines) < self.tasks, True):
            if kill and not self.job.done():
                self._cancel(self.id)
            with suppress(TimeoutError):
                self.job.exception(timeout=GRACE)
                break

    def connect(self) -> None:
        """Wait until all tasks have connected.

        Raises:
            PipelineError: ``other-package``: a host has another version than the driver.
        """
        while len(self._lines) < self.tasks:
            if self.job.done():
                raise self._failure()
            called = self._listener.take(LOOK)
            if called is None:
                continue
            hello, line = called
            if hello.stage != self.id:
                # A task of an earlier stage that connects late.
                line.close()
                continue
            self._lines[hello.task] = line
            self.signs += 1
            error = other_version(hello.version, hello.host)
            if error is not None:
                raise error

    def _receive(self, tasks: Collection[int], seconds: float) -> list[tuple[int, TaskMessage]]:
        """Wait up to ``seconds`` for tasks' messages; return at most one from each of ``tasks``.
        Messages about earlier orders are dropped.

        Raises:
            EOFError, OSError: a line is lost.
        """
        lines = {self._lines[task]: task for task in tasks}
        found = []
        for ready in wait(list(lines), seconds):
            assert isinstance(ready, Connection)
            message: TaskMessage = pickle.loads(ready.recv_bytes(LARGEST))
            self.signs += 1
            if message.order != self.orders:
                continue
            if message.kind is MessageKind.COMPLAINT:
                self._complaints.append(message.content)
            found.append((lines[ready], message))
        return found

    def _failure(self) -> BaseException:
        """Return a task's error, or else the job's error; a job ends soon after a line is lost."""
        lost, deadline = set[int](), time.monotonic() + GRACE
        while True:
            ended = self.job.done() or time.monotonic() > deadline
            for task in self._lines.keys() - lost:
                try:
                    while self._receive([task], 0.0):
                        pass
                except (EOFError, OSError):
                    lost.add(task)
            if ended or any(not is_consequence(c) for c in self._complaints):
                break
            with suppress(TimeoutError, Exception):
                self.job.exception(timeout=LOOK / 10)
        found = first_cause(self._complaints)
        if found is not None:
            return found
        job = self.job.exception(timeout=0) if self.job.done() else None
        return job or PipelineError("workers-lost", "a task of the pipeline has ended")
