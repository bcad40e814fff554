"""Planning in a process of its own, so that requests never wait for a solver.

The process is started when a plan is first wanted of it, and ends with the service, however that
ends: its input does. Requests and answers are pickled, one after the other. One that takes longer
than it may, or in which the process dies, fails; the next one begins another process.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import BinaryIO, cast

import structlog

from anabranch_contract.errors import PlannerError
from anabranch_planner.cost.validate import validate_plan
from anabranch_service.collection import collect_rarely
from anabranch_service.planning.request import PlanningRequest, Prepared, answer_request

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for an epoch that would be published at a time."""

    request: PlanningRequest
    now: datetime


#: What comes back: an epoch, or why there is none.
_Answer = Prepared | Exception


class PlannerProcess:
    """The process. Thread-safe; one plan at a time."""

    def __init__(self, seconds: float) -> None:
        """``seconds``: how long a plan may take."""
        self.seconds = seconds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def prepare(self, request: PlanningRequest, now: datetime) -> Prepared:
        """Plan an epoch that is published at ``now``.

        Raises:
            PlannerError: ``planner-stopped``: it took too long, or the process died; or whatever
                planning raises.
        """
        with self._lock:
            child = self._child = self._child or _start()
            timer = threading.Timer(self.seconds, child.kill)
            timer.start()
            try:
                answer = _ask(child, _Asked(request, now))
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
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()


def _start() -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    _LOG.info("planner process started", pid=child.pid)
    return child


def _ask(child: subprocess.Popen[bytes], asked: _Asked) -> _Answer:
    assert child.stdin is not None
    assert child.stdout is not None
    pickle.dump(asked, child.stdin, pickle.HIGHEST_PROTOCOL)
    child.stdin.flush()
    return cast("_Answer", pickle.load(child.stdout))


def _stopped(seconds: float | None) -> PlannerError:
    why = "its process died" if seconds is None else f"it took more than {seconds:g} s"
    return PlannerError(
        "planner-stopped",
        f"planning was given up: {why}",
        remedy="the rules that run go on; see the service's log",
    )


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while True:
        try:
            asked = cast("_Asked", pickle.load(requests))
        except EOFError:
            return
        answers.write(_pickled(lambda asked=asked: _answer(asked)))  # type: ignore[misc]
        answers.flush()


def _answer(asked: _Asked) -> Prepared:
    answer = answer_request(asked.request)
    validate_plan(answer.planned.plan, answer.planned.queries)
    return replace(Prepared.of(answer, asked.now), answer=None)


def _pickled(work: Callable[[], _Answer]) -> bytes:
    """What ``work`` gives or raises; an error that can't be sent is described."""
    try:
        return pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
    except Exception as cause:  # noqa: BLE001 - it is raised where the plan was wanted
        try:
            text = pickle.dumps(cause, pickle.HIGHEST_PROTOCOL)
            pickle.loads(text)
        except Exception:  # noqa: BLE001
            return pickle.dumps(RuntimeError(repr(cause)))
        return text


def main() -> None:
    """Serve whoever started this process. What is printed goes to the service's errors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_rarely()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
