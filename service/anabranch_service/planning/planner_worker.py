"""The planner's process from within: it answers one request after the other.

See :mod:`.planner_process`, which starts it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO, cast

from anabranch_planner.cost.validate import validate_plan
from anabranch_service.collection import collect_rarely
from anabranch_service.planning.planner_process import Answer, Asked, HandOver, Plan
from anabranch_service.planning.request import PlanningAnswer, Prepared, explained, plan_only


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    planner = _Planner()
    while True:
        try:
            asked = cast("Asked", pickle.load(requests))
        except EOFError:
            return
        answers.write(_pickled(lambda asked=asked: planner.answer(asked)))  # type: ignore[misc]
        answers.flush()


class _Planner:
    """The process from within: it answers, and keeps its last plan until it is handed over."""

    def __init__(self) -> None:
        self._last: PlanningAnswer | None = None

    def answer(self, asked: Asked) -> Answer:
        """The answer to one request."""
        if isinstance(asked, Plan):
            return self._prepare(asked)
        if isinstance(asked, HandOver):
            return self._hand_over(asked.epoch)
        return explained(pickle.loads(asked.plan)).explanation()

    def _prepare(self, asked: Plan) -> Prepared:
        answer = self._last = plan_only(asked.request)
        validate_plan(answer.planned.plan, answer.planned.queries)
        return replace(Prepared.of(answer, asked.now), answer=None)

    def _hand_over(self, epoch: int) -> bytes | None:
        last, self._last = self._last, None
        if last is None or last.planned.ruleset.epoch != epoch:
            return None
        return pickle.dumps(last.without_rules(), pickle.HIGHEST_PROTOCOL)


def _pickled(work: Callable[[], Answer]) -> bytes:
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
    os.nice(int(sys.argv[1]))
    collect_rarely()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
