"""Client of the planner's process: planning there never delays the service's REST requests.

The process starts with the first task. It ends when its input ends, at the latest with the service.
Tasks and results are pickled, one after the other. A task fails if it exceeds its time limit or the
process dies; the next task then starts a new process. Each query is sent to a process only once.

A plan is published before it is explained. The process then returns the plan in pickled form, which
the service passes to a second process for explanations.
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

#: Main module of the process.
WORKER = "anabranch_service.planning.process.worker"
#: Niceness of the process that explains plans.
NICE = 10


@dataclass(frozen=True, slots=True)
class TimedTask:
    """A task for the planner's process: plan an epoch.

    Attributes:
        now: time of publication. ``after``: the newest published epoch; None: none is published.
        order: ids of all queries of the task, in order; ``task`` contains only queries new to the
            process.
        rests: whether the last plan may be kept for a while (:class:`.pace.Pace`).
    """

    task: PlanTask
    now: datetime
    after: int | None
    order: tuple[QueryId, ...]
    rests: bool = False

    def beside(self, sent: Queries) -> TimedTask:
        """Return a copy without the queries that were ``sent`` to the process before."""
        new = tuple(q for q in self.task.queries if sent.get(q.id) is not q)
        return replace(self, task=replace(self.task, queries=new))

    def whole(self, sent: Queries) -> tuple[PlanTask, Queries]:
        """Restore the complete task; returns it, and its queries by id."""
        there = {**sent, **{q.id: q for q in self.task.queries}}
        queries = {name: there[name] for name in self.order}
        return replace(self.task, queries=tuple(queries.values())), queries


@dataclass(frozen=True, slots=True)
class HandOver:
    """A task for the planner's process: return the plan of an epoch, pickled."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Explain:
    """A task for the explaining process: explain a pickled plan."""

    plan: bytes


Asked = TimedTask | HandOver | Explain
#: Result of a task, or the exception that it raised.
Answer = Sealed | bytes | None | Explanation | Exception


#: Id -> query of the last task; the process keeps these queries.
Queries = Mapping[QueryId, JoinQuery]


class PlannerProcess:
    """A planner's process, as seen by the service. Thread-safe; runs one task at a time."""

    def __init__(self, seconds: float, nice: int = 0) -> None:
        """``seconds``: time limit of a task; ``nice``: niceness of the process."""
        self.seconds, self.nice = seconds, nice
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._sent: Queries = {}

    def prepare(
        self, task: PlanTask, now: datetime, after: int | None = None, *, rests: bool = False
    ) -> Sealed | None:
        """Plan an epoch to be published at ``now``, starting from the process's last plan.

        Args:
            task: input of the plan; its running epoch (``running``) may be None.
            after: the newest published epoch; None: none is published.
            rests: as in :class:`TimedTask`.

        Returns:
            The epoch in stored form; None if ``running`` is required, since the process did not
            plan epoch ``after`` itself.

        Raises:
            PlannerError: ``planner-stopped``: the plan took too long, or the process died; also any
                error of the planner.
        """
        order = tuple(q.id for q in task.queries)
        return cast("Sealed | None", self._answer(TimedTask(task, now, after, order, rests)))

    def hand_over(self, epoch: int) -> bytes | None:
        """Return the plan of ``epoch``, pickled for :meth:`explain`; None if the process has
        planned a later epoch meanwhile.

        Raises:
            PlannerError: ``planner-stopped``.
        """
        return cast("bytes | None", self._answer(HandOver(epoch)))

    def explain(self, plan: bytes) -> Explanation:
        """Explain a plan pickled by :meth:`hand_over`, and compare it with other plans.

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
        """Kill the process, even during a task."""
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
        f"planning was aborted: {why}",
        remedy="the running rules stay in force; see the service's log",
    )
