"""A batch as a job of Spark: one barrier stage, whose tasks run the batch's tasks."""

from __future__ import annotations

import re
from functools import partial

from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange.complaints import own_version
from anabranch_runtime.exchange.lines import TaskLine
from anabranch_runtime.recovery.rulesets import task_ruleset
from anabranch_runtime.sources.blocks import read_pieces
from anabranch_runtime.sources.dealing import pieces_of
from anabranch_runtime.sources.feed import Piece, PieceError, UnreadNote
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task

#: Python's messages about a missing module, or a name that one of anabranch's modules lacks.
_OTHER = re.compile(
    r"No module named 'anabranch_\w+\.[\w.]+'"
    r"|Can't get attribute '\w+' on <module 'anabranch_[\w.]+'"
    r"|cannot import name '\w+' from 'anabranch_[\w.]+'"
)


def unfit_workers(error: BaseException) -> PipelineError | None:
    """Return an error if Spark's ``error`` is due to a module that an executor lacks; else None."""
    text = str(error)
    if (other := _OTHER.search(text)) is not None:
        return PipelineError(
            "other-package",
            f"an executor has another package than the driver's {own_version()}: {other[0]}",
            remedy="install the driver's release on every host that runs executors",
        )
    found = re.search(r"No module named '([\w.]+)'", text)
    if found is None:
        return None
    return PipelineError(
        "no-package",
        f"the Python of an executor has no {found[1]}",
        remedy="install the driver's release and its dependencies where executors run, or name a "
        "Python that has them (--spark-conf spark.pyspark.python=PATH); see docs/deployment.md",
    )


def barrier_task() -> tuple[int, list[str]]:
    """Return this task's number in its barrier stage of Spark, and each task's host address."""
    from pyspark import BarrierTaskContext

    here = BarrierTaskContext.get()
    return here.partitionId(), [i.address.rpartition(":")[0] for i in here.getTaskInfos()]


def run_task_here(context: BatchContext, line: TaskLine, hosts: list[str]) -> TaskReport:
    """Run a task of a batch in this process.

    Args:
        line: connection to the driver. ``hosts``: address of each task's host.
    """
    task, tasks = line.task, line.tasks
    unread: list[UnreadNote] = []

    def failed(piece: Piece, why: PieceError) -> None:
        unread.append(UnreadNote(piece.number, why))

    url, namespace = context.redis_url, context.namespace
    if context.hosts.apart:
        from anabranch_runtime.spark.apart import as_here, cache_directory, run_apart, told

        with told(context, line, hosts[task]):
            cache = str(cache_directory(context.hosts.cache))
            ruleset = task_ruleset(cache, url, namespace, context.ruleset)
            read = partial(read_pieces, failed=failed, here=partial(as_here, context))
            report = run_apart(context, ruleset, read, line, hosts[task])
        report.unread = unread
        return report
    report = run_task(
        context,
        task_ruleset(context.root, url, namespace, context.ruleset),
        read_pieces(pieces_of(context.input.shares, task, tasks), failed),
        task=task,
        tasks=tasks,
        exchange=line,
        sharing=hosts.count(hosts[task]),
        advanced=line.sign,
    )
    report.unread = unread
    return report
