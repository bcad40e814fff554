"""Main program of the planner's process, started by :mod:`.process`: runs one task at a time."""

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
from anabranch_contract.plans.rows import RowTexts
from anabranch_contract.plans.ruleset import digest, renumbered
from anabranch_planner.search.assemble import gap
from anabranch_service.planning.epoch import PlannedEpoch, finite, plan_epoch
from anabranch_service.planning.process.follower import Follower
from anabranch_service.planning.process.pace import Pace
from anabranch_service.planning.process.process import Answer, Asked, HandOver, Queries, TimedTask
from anabranch_service.planning.task import PlanTask, RunningEpoch
from anabranch_service.planning.what_if.explanation import explained
from anabranch_service.registry.publishing.patching import Base, seal_patched
from anabranch_service.registry.publishing.publication import Sealed, seal_again
from anabranch_service.registry.records import EpochRecord

#: ``method`` of an epoch that keeps the last plan because replanning is not due (:class:`Pace`).
RESTS = "as before, planning rests"
#: Maximum number of queries that are added to the last plan, and removed from it, under its
#: statistics.
EDITED = 16


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Run pickled tasks from ``requests``, and write pickled results, until the input ends."""
    planner = _Planner()
    while True:
        try:
            asked = cast("Asked", pickle.load(requests))
        except EOFError:
            return
        answers.write(_pickled(lambda asked=asked: planner.answer(asked)))  # type: ignore[misc]
        answers.flush()


class _Planner:
    """Runs tasks; keeps the last plan, from which the next one starts."""

    def __init__(self) -> None:
        self._follower = Follower()
        self._last: _LastEpoch | None = None
        self._sent: Queries = {}
        self._pace = Pace()
        self._texts = RowTexts()

    def answer(self, asked: Asked) -> Answer:
        """Run one task."""
        if isinstance(asked, TimedTask):
            return self._prepare(asked)
        if isinstance(asked, HandOver):
            return self._hand_over(asked.epoch)
        return explained(pickle.loads(asked.plan)).explanation

    def _prepare(self, asked: TimedTask) -> Sealed | None:
        last = self._last
        if last is not None and last.record.epoch != asked.after:
            # The last plan was not published, or the newest epoch was planned elsewhere.
            last, self._last, self._follower = None, None, Follower()
        task, self._sent = asked.whole(self._sent)
        task = replace(task, queries=self._follower.known(task.queries))
        if last is not None:
            task = replace(task, running=last.running)
        elif asked.after is not None and task.running is None:
            return None
        self._follower.weight = task.options.switching
        if last is not None and _goes_on(last, task):
            if self._follower.stays(task.queries, task.estimated().statistics):
                return self._again(last, task, asked.now)
            if asked.rests and self._rests(last, task):
                return self._again(last, task, asked.now, rests=True)
        edited = False
        if last is not None and asked.rests and self._edits(last, task):
            task, edited = _as_measured(last, task), True
        began = time.process_time()
        planned = plan_epoch(task, self._follower)
        for part in self._follower.parts:
            part.validate()
        record, text = planned.publish(asked.now, self._texts)
        sealed, base = seal_patched(record, text, None if last is None else last.base)
        running = RunningEpoch(record, planned.queries, planned.rules.decisions)
        self._last = _LastEpoch(text, planned, running, base)
        if edited:
            self._pace.edited(time.monotonic())
        else:
            self._pace.planned(time.monotonic(), time.process_time() - began)
        return sealed

    def _rests(self, last: _LastEpoch, task: PlanTask) -> bool:
        """Whether to keep the last plan because replanning must still wait (:class:`Pace`); false
        if the plan was made without statistics."""
        return (
            last.record.statistics_epoch is not None
            and self._follower.is_of(task.queries)
            and self._pace.rests(time.monotonic())
        )

    def _edits(self, last: _LastEpoch, task: PlanTask) -> bool:
        """Whether ``task`` only adds or removes a few queries over the last plan's relations, and
        that plan's statistics are recent. The change is then planned under these statistics, so
        that no other query is planned again and it soon takes effect."""
        if last.record.statistics_epoch is None or not self._pace.may_edit(time.monotonic()):
            return False
        there = {query.id: query for query in last.planned.queries}
        new = [query for query in task.queries if there.get(query.id) != query]
        gone = len(there) - (len(task.queries) - len(new))
        known = {relation.id for query in there.values() for relation in query.relations}
        return (
            len(new) + gone > 0
            and max(len(new), gone) <= EDITED
            and {relation.id for query in new for relation in query.relations} <= known
            and not last.planned.fallback
            and _settings(last.planned.task) == _settings(task)
        )

    def _again(
        self, last: _LastEpoch, task: PlanTask, now: datetime, *, rests: bool = False
    ) -> Sealed:
        """Publish the last plan again, as the epoch of ``task``; ``rests``: report the older
        statistics of the plan instead of the task's."""
        epoch = task.epoch
        record = last.record.again(epoch, now)
        plan = last.planned.plan
        bound = plan.bound - plan.switching
        text = renumbered(last.text, epoch)
        record = record.model_copy(
            update={
                "statistics_epoch": last.record.statistics_epoch
                if rests
                else task.statistics_epoch,
                "ruleset_digest": digest(text),
                "method": RESTS if rests else "as before",
                "solve_ms": 0.0,
                "bound": finite(min(bound, last.record.cost)),
                "gap": gap(last.record.cost, bound) if math.isfinite(bound) else None,
            }
        )
        whole = record.with_details(last.record.details())
        running = replace(last.running, record=whole)
        self._last = replace(last, text=text, running=running)
        return seal_again(record)

    def _hand_over(self, epoch: int) -> bytes | None:
        last = self._last
        if last is None or not last.planned.task.epoch <= epoch <= last.record.epoch:
            return None
        planned = last.planned.without_rules()
        figures = self._follower.taken or planned.task.statistics
        planned = replace(planned, task=replace(planned.task, statistics=figures))
        return pickle.dumps(planned, pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class _LastEpoch:
    """The last plan of the process, and the newest epoch with this plan.

    Attributes:
        text: the epoch's ruleset as JSON text.
        running: the epoch, in the form in which the next plan is compared with it.
        base: the ruleset from which the next one may be stored as a patch (a difference).
    """

    text: str
    planned: PlannedEpoch
    running: RunningEpoch
    base: Base

    @property
    def record(self) -> EpochRecord:
        """Record of the newest epoch with this plan."""
        return self.running.record


def _goes_on(last: _LastEpoch, task: PlanTask) -> bool:
    """Whether the last plan can be the base of ``task``: inputs differ in queries and statistics
    only."""
    return not last.planned.fallback and _terms(task) == _terms(last.planned.task)


def _settings(task: PlanTask) -> tuple[object, ...]:
    """Return the input of a plan without queries, statistics and the properties of queries
    (:func:`_terms`)."""
    return task.streams, task.options, task.formulation


def _as_measured(last: _LastEpoch, task: PlanTask) -> PlanTask:
    """Return ``task`` with the statistics of the last plan."""
    before = last.planned.task
    return replace(
        task,
        statistics=before.statistics,
        samples=before.samples,
        widths=before.widths,
        statistics_epoch=last.record.statistics_epoch,
        batches=before.batches,
    )


def _terms(task: PlanTask) -> tuple[object, ...]:
    """Return the input of a plan without queries and statistics, but with properties of queries
    such as sinks and freshness."""
    terms = (task.rejected, task.sinks, task.freshness, task.past, task.widths)
    return (*_settings(task), *terms)


def _pickled(work: Callable[[], Answer]) -> bytes:
    """Pickle the result or the exception of ``work``; of unpicklable exceptions only the text."""
    try:
        return pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
    except Exception as cause:  # noqa: BLE001 - the service raises it
        try:
            text = pickle.dumps(cause, pickle.HIGHEST_PROTOCOL)
            pickle.loads(text)
        except Exception:  # noqa: BLE001
            return pickle.dumps(RuntimeError(repr(cause)))
        return text


def main() -> None:
    """Serve the parent process; output of libraries is redirected to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(int(sys.argv[1]))
    collect_rarely()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
