"""The planner's process from within: it answers one request after the other.

See :mod:`.planner_process`, which starts it.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import BinaryIO, cast

from anabranch_contract.collection import collect_rarely
from anabranch_contract.plans.ruleset import digest, renumbered
from anabranch_planner.cost.sampling import estimate
from anabranch_planner.search.assemble import gap
from anabranch_service.planning.epoch import finite
from anabranch_service.planning.follower import Follower
from anabranch_service.planning.pace import Pace
from anabranch_service.planning.planner_process import Answer, Asked, HandOver, Plan, Queries
from anabranch_service.planning.request import (
    PlanningAnswer,
    PlanningRequest,
    Prepared,
    explained,
    plan_only,
)
from anabranch_service.planning.what_if import Running
from anabranch_service.registry.patching import Base, seal_patched
from anabranch_service.registry.publication import Sealed, seal_again
from anabranch_service.registry.records import EpochRecord

#: The method of an epoch whose plan goes on because planning rests.
RESTS = "as before, planning rests"


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
    """The process from within: it answers, and keeps its last plan for the next one."""

    def __init__(self) -> None:
        self._follower = Follower()
        self._last: _Last | None = None
        self._sent: Queries = {}
        self._pace = Pace()

    def answer(self, asked: Asked) -> Answer:
        """The answer to one request."""
        if isinstance(asked, Plan):
            return self._prepare(asked)
        if isinstance(asked, HandOver):
            return self._hand_over(asked.epoch)
        return explained(pickle.loads(asked.plan)).explanation()

    def _prepare(self, asked: Plan) -> Sealed | None:
        last = self._last
        if last is not None and last.record.epoch != asked.after:
            # What this process has planned was not published, or something else has been since.
            last, self._last, self._follower = None, None, Follower()
        request, self._sent = asked.whole(self._sent)
        request = replace(request, queries=self._follower.known(request.queries))
        if last is not None:
            request = replace(request, running=last.running())
        elif asked.after is not None and request.running is None:
            return None
        self._follower.weight = request.task.options.switching
        if last is not None and _goes_on(last, request):
            if self._stays(request):
                return self._again(last, request, asked.now)
            if asked.rests and self._rests(last, request):
                return self._again(last, request, asked.now, rests=True)
        began = time.process_time()
        answer = plan_only(request, self._follower)
        for part in self._follower.parts:
            part.validate()
        made = Prepared.of(answer, asked.now)
        base = None if last is None else last.base
        sealed, base = seal_patched(made.record, made.text, base)
        self._last = _Last(made.record, made.text, request, answer, base)
        self._pace.planned(time.monotonic(), time.process_time() - began)
        return sealed

    def _stays(self, request: PlanningRequest) -> bool:
        """Whether no figure has moved either."""
        figures = estimate(request.task.statistics, request.queries, request.samples)
        return self._follower.stays(request.queries, figures)

    def _rests(self, last: _Last, request: PlanningRequest) -> bool:
        """Whether the last plan goes on although figures have moved. One without any does not."""
        return (
            last.record.statistics_epoch is not None
            and self._follower.is_of(request.queries)
            and self._pace.rests(time.monotonic())
        )

    def _again(
        self, last: _Last, request: PlanningRequest, now: datetime, *, rests: bool = False
    ) -> Sealed:
        """The last plan under another number; where planning ``rests``, by its own figures."""
        epoch = request.task.epoch
        record = last.record.again(epoch, now)
        plan = last.answer.planned.plan
        bound = plan.bound - plan.switching
        text = renumbered(last.text, epoch)
        record = record.model_copy(
            update={
                "statistics_epoch": last.record.statistics_epoch
                if rests
                else request.statistics_epoch,
                "ruleset_digest": digest(text),
                "method": RESTS if rests else "as before",
                "solve_ms": 0.0,
                "bound": finite(min(bound, last.record.cost)),
                "gap": gap(last.record.cost, bound) if math.isfinite(bound) else None,
            }
        )
        whole = record.with_details(last.record.details())
        self._last = replace(last, record=whole, text=text)
        return seal_again(record)

    def _hand_over(self, epoch: int) -> bytes | None:
        last = self._last
        if last is None or last.record.epoch != epoch:
            return None
        return pickle.dumps(last.answer.without_rules(), pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class _Last:
    """The last plan of the process.

    Attributes:
        record, text: of its newest epoch, and of its ruleset.
        request, answer: by which it was made. ``base``: of which the next ruleset is a patch.
    """

    record: EpochRecord
    text: str
    request: PlanningRequest
    answer: PlanningAnswer
    base: Base

    def running(self) -> Running:
        """The plan as what the next one is compared with, and charged for changing."""
        return Running(self.record, self.answer.planned.queries)


def _goes_on(last: _Last, request: PlanningRequest) -> bool:
    """Whether what was planned last is still what is wanted, but for queries and figures."""
    fallback = last.answer.planned.fallback
    return not fallback and _but_for_figures(request) == _but_for_figures(last.request)


def _but_for_figures(request: PlanningRequest) -> tuple[object, ...]:
    """What a plan depends on but its queries and statistics."""
    task = request.task
    terms = (task.options, task.sinks, task.freshness, task.past, task.formulation, task.widths)
    return (task.streams, request.rejected, *terms)


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
