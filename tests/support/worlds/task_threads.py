"""Run the tasks of a batch as threads of this process, with scripted failures."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.scenarios.script import Fault, Point
from tests.support.worlds.mail import Mail


class FaultError(Exception):
    """A scripted failure of a task."""


def fail(fault: Fault | None, point: Point, number: int) -> None:
    """Raise the fault if it is to occur at ``point`` in task ``number``."""
    if fault is not None and fault.point is point and fault.nth == number:
        raise FaultError(point)


def run_tasks(
    context: BatchContext,
    rules: Ruleset,
    hosts: Sequence[str],
    blocks: Callable[[int, Fault | None], Iterator[Block]],
    fault: Fault | None,
) -> list[TaskReport]:
    """Run one task (thread) per host name.

    Args:
        blocks: input of a task, in which its fault may strike.

    Raises:
        BaseException: the first failure of a task that is not another one's.
    """
    tasks = len(hosts)
    barrier = threading.Barrier(tasks)
    messages = [("", "")] * tasks
    mail = Mail(tasks)
    reports: list[TaskReport | BaseException] = [RuntimeError("unfinished")] * tasks

    def work(task: int) -> None:
        here = fault if fault is not None and fault.task % tasks == task else None
        meetings = itertools.count()

        def exchange(message: str, group: str = "") -> list[str]:
            fail(here, Point.MEET, next(meetings))
            messages[task] = (group, message)
            barrier.wait(60)
            everybody = [text if theirs == group else "" for theirs, text in messages]
            barrier.wait(60)
            return everybody

        try:
            report = run_task(
                context,
                rules,
                blocks(task, here),
                task=task,
                tasks=tasks,
                exchange=exchange,
                hosts=tuple(hosts),
                post=mail.of(task),
            )
            report.host.name = hosts[task]
            reports[task] = report
            # A fault at a point that this task did not reach occurs here.
            if here is not None:
                raise FaultError(here.point)
        except BaseException as error:  # noqa: BLE001 - handed to the caller below
            reports[task] = error
            barrier.abort()

    threads = [threading.Thread(target=work, args=(t,)) for t in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for report in reports:
        if isinstance(report, BaseException) and not isinstance(
            report, threading.BrokenBarrierError
        ):
            raise report
    return [r for r in reports if isinstance(r, TaskReport)]
