"""Planning in a process of its own, so that requests never wait for a solver.

The process is started when a plan is first wanted of it, and ends with the service, however that
ends: its input does. Requests and answers are pickled, one after the other. One that takes longer
than it may, or in which the process dies, fails; the next one begins another process. A process is
sent each query once.

A plan is published before it is explained. A second process explains it, which the first one hands
the plan over to.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

import structlog

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import JoinQuery, QueryId
from anabranch_service.planning.task import PlanTask
from anabranch_service.registry.publishing.publication import Sealed
from anabranch_service.registry.records import Explanation

_LOG = structlog.get_logger(__name__)

#: The module that the process runs.
WORKER = "anabranch_service.planning.process.worker"
#: By how much the process that explains gives way to others.
NICE = 10


@dataclass(frozen=True, slots=True)
class TimedTask:
    """A task whose epoch would be published at a time.

    Attributes:
        after: the newest epoch that has been published; None: none has.
        order: the queries of the task, which itself has only those new to the process.
        rests: whether the last plan may go on for a while where only figures have moved.
    """

    task: PlanTask
    now: datetime
    after: int | None
    order: tuple[QueryId, ...]
    rests: bool = False

    def beside(self, sent: Queries) -> TimedTask:
        """The task without the queries that have been ``sent``."""
        new = tuple(q for q in self.task.queries if sent.get(q.id) is not q)
        return replace(self, task=replace(self.task, queries=new))

    def whole(self, sent: Queries) -> tuple[PlanTask, Queries]:
        """The task with all queries; and these."""
        there = {**sent, **{q.id: q for q in self.task.queries}}
        queries = {name: there[name] for name in self.order}
        return replace(self.task, queries=tuple(queries.values())), queries


@dataclass(frozen=True, slots=True)
class HandOver:
    """A request for what explains the plan of an epoch, pickled."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Explain:
    """A request for the explanation of a plan that has been handed over."""

    plan: bytes


Asked = TimedTask | HandOver | Explain
#: The answer, or the reason of its absence.
Answer = Sealed | bytes | None | Explanation | Exception


#: Content of the last request to a process.
Queries = Mapping[QueryId, JoinQuery]


class PlannerProcess:
    """The process. Thread-safe; one plan or explanation at a time."""

    def __init__(self, seconds: float, nice: int = 0) -> None:
        """``seconds``: how long an answer may take; ``nice``: how much it gives way to others."""
        self.seconds, self.nice = seconds, nice
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._sent: Queries = {}

    def prepare(
        self,
        task: PlanTask,
        now: datetime,
        after: int | None = None,
        *,
        rests: bool = False,
    ) -> Sealed | None:
        """Plan an epoch that is published at ``now``, from the last one that was planned here.

        Args:
            task: the running epoch (``running``) may be left out.
            after: the newest epoch that has been published; None: none has.
            rests: as in :class:`TimedTask`.

        Returns:
            None: ``running`` is left out, and the process has not planned the epoch ``after``.

        Raises:
            PlannerError: ``planner-stopped``: it took too long, or the process died; or whatever
                planning raises.
        """
        order = tuple(q.id for q in task.queries)
        return cast("Sealed | None", self._answer(TimedTask(task, now, after, order, rests)))

    def hand_over(self, epoch: int) -> bytes | None:
        """The input of :meth:`explain` for the plan of ``epoch``; None: not the process's newest
        plan.

        Raises:
            PlannerError: ``planner-stopped``.
        """
        return cast("bytes | None", self._answer(HandOver(epoch)))

    def explain(self, plan: bytes) -> Explanation:
        """Compare and explain a plan that another process has handed over.

        Raises:
            PlannerError: ``planner-stopped``.
        """
        return cast("Explanation", self._answer(Explain(plan)))

    def _answer(self, asked: Asked) -> Answer:
        with self._lock:
            child = self._child = self._child or _start(self.nice)
            timer = threading.Timer(self.seconds, child.kill)
            timer.start()
            try:
                if isinstance(asked, TimedTask):
                    answer = _ask(child, asked.beside(self._sent))
                    self._sent = {q.id: q for q in asked.task.queries}
                else:
                    answer = _ask(child, asked)
            except (EOFError, OSError, pickle.UnpicklingError) as cause:
                late = not timer.is_alive()
                self._end()
                raise _stopped(self.seconds if late else None) from cause
            finally:
                timer.cancel()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """End the process, whatever it is at."""
        child = self._child
        if child is not None:
            child.kill()
        with self._lock:
            self._end()

    def _end(self) -> None:
        child, self._child, self._sent = self._child, None, {}
        if child is not None:
            child.kill()
            child.communicate()


def _start(nice: int) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-m", WORKER, str(nice)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    _LOG.info("planner process started", pid=child.pid)
    return child


def _ask(child: subprocess.Popen[bytes], asked: Asked) -> Answer:
    assert child.stdin is not None
    assert child.stdout is not None
    pickle.dump(asked, child.stdin, pickle.HIGHEST_PROTOCOL)
    child.stdin.flush()
    return cast("Answer", pickle.load(child.stdout))


def _stopped(seconds: float | None) -> PlannerError:
    why = "its process died" if seconds is None else f"it took more than {seconds:g} s"
    return PlannerError(
        "planner-stopped",
        f"planning was given up: {why}",
        remedy="the rules that run go on; see the service's log",
    )
