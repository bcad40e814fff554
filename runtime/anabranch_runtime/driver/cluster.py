"""A pipeline on hosts that share nothing but the object store, as its driver sees it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch_runtime.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_runtime.epochs.task_report import TaskReport
    from anabranch_runtime.exchange.meeting import Meeting
    from anabranch_runtime.storage.durable import Durable
    from anabranch_runtime.task.context import BatchContext

#: Staged files that are fetched at once.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where tasks meet, and the directory that each host has for itself."""

    meeting: Meeting
    cache: str

    def enter(self, context: BatchContext) -> BatchContext:
        """``context`` for tasks that share nothing."""
        return replace(context, meeting=self.meeting.place, cache=self.cache)


def take_staged(
    context: BatchContext, reports: Sequence[TaskReport], durable: Durable
) -> list[str]:
    """Fetch the files that tasks have put into the object store to where results are staged, and
    let ``reports`` have them there.

    Returns:
        The objects, which nobody needs any more.

    Raises:
        StateError: ``missing-result``.
    """
    staging = Path(context.staging)
    wanted = {
        name: staging / str(number) / Path(name).name
        for number, report in enumerate(reports)
        for name in (*report.files.values(), *report.late.values())
    }

    def fetch(name: str) -> None:
        if not durable.bring(name, wanted[name]):
            raise StateError(
                "missing-result",
                f"{name} is not in the object store",
                remedy="see who deletes objects there; the batch is tried again",
            )

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="staged") as pool:
        list(pool.map(fetch, wanted))
    for report in reports:
        for files in (report.files, report.late):
            files.update({name: str(wanted[file]) for name, file in files.items()})
    return list(wanted)
