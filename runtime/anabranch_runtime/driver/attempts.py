"""The attempts at a batch: its job runs again if it fails or if some input can't be read."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sinks.parquet import STAGING
from anabranch_runtime.sources.batch_input import BatchInput
from anabranch_runtime.task.context import BatchContext

Job = Callable[[BatchContext], list[TaskReport]]


#: Codes of errors after which a batch is not retried: a retry would repeat their long wait.
_FINAL = frozenset(("no-executors",))

_LOG = structlog.get_logger("anabranch.runtime")


def attempt(
    context: BatchContext,
    job: Job,
    read: BatchInput | None,
    *,
    results: Path,
    attempts: int,
    stopping: Callable[[], bool],
    discard: Callable[[set[str]], None],
) -> tuple[BatchContext, list[TaskReport]]:
    """Run ``job``, the Spark job of a batch, until it succeeds; each attempt has a name of its own.

    Args:
        context: the batch. ``read``: its input; None: the job produces its input itself.
        results: the results directory, which contains the staging folder.
        attempts: number of failures after which the error is raised. Unreadable input is not a
            failure: ``discard`` gets the packs of the attempt, and the next one skips the input.
        stopping: whether a stop is requested, so that a failure is final.

    Returns:
        The context and the reports of the successful attempt.
    """
    while True:
        name = uuid.uuid4().hex[:12]
        context = replace(context, attempt=name, staging=str(results / STAGING / name))
        if read is not None:
            shares = replace(context.input, shares=read.shares(), sites=read.sites())
            context = replace(context, input=shares)
        try:
            reports = job(context)
            if read is None or read.accept([note for r in reports for note in r.unread]):
                return context, reports
            discard(written(reports))
        except Exception as error:
            attempts -= 1
            if not attempts or stopping() or getattr(error, "code", "") in _FINAL:
                raise
            _LOG.warning("batch attempt failed", batch=context.batch, error=str(error)[:2000])


def written(reports: list[TaskReport]) -> set[str]:
    """Return the names of the packs that the tasks of an attempt at a batch have written."""
    return set().union(*(r.packs for r in reports))
