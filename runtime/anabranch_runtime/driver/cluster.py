"""The driver's view of a cluster whose hosts share only the object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import StateError
from anabranch_runtime.placement.assignment import place
from anabranch_runtime.state.placement import Placement
from anabranch_runtime.storage.durable import Durable
from anabranch_runtime.task.compact import Compaction
from anabranch_runtime.task.context import BatchContext

#: Number of staged result files that the driver fetches concurrently.
AT_ONCE = 8


@dataclass(slots=True)
class Cluster:
    """Coordination of a cluster's tasks.

    Attributes:
        token: token of the calls between processes. ``cache``: state directory on each host.
        placement: the next batch's placement. ``offices``: host -> address of its merging process.
    """

    token: str = field(repr=False)
    cache: str
    cache_size: int | None = None
    placement: Placement | None = None
    offices: Mapping[str, str] = field(default_factory=dict)

    def enter(self, context: BatchContext) -> BatchContext:
        """Return ``context`` (of a batch) with the directories that tasks of a cluster need."""
        known = context.hosts
        hosts = replace(known, apart=True, cache=self.cache, cache_size=self.cache_size)
        return replace(context, hosts=hosts)

    def met(self, placement: Placement | None, reports: Sequence[TaskReport]) -> None:
        """Record the hosts of a finished batch's tasks, and the placement of the next batch."""
        # The first task of a host names the process ("office") that does all merges of the host.
        self.placement = placement
        self.offices = {r.host.name: r.host.office for r in reversed(reports)}

    def office_of(self, work: Compaction) -> str | None:
        """Return the address of the merging process on the host where the placement of partitions
        has the segments of ``work`` (``exchange.fleet``); None if no host is known."""
        offices, part = self.offices, work.merge.segments[0]
        if not offices:
            return None
        count = work.layout.stores[part.store].partitions
        owner = place([count], offices, self.placement).host_of(count, part.partition)
        return None if owner is None else offices[owner]


def take_staged(
    context: BatchContext, reports: Sequence[TaskReport], durable: Durable
) -> list[str]:
    """Fetch the tasks' staged files from the object store into the staging folder, and replace the
    paths in ``reports``.

    Returns:
        Names of the fetched objects, which may be deleted after the commit.

    Raises:
        StateError: ``missing-result``: a staged file is not in the object store.
    """
    staging = Path(context.staging)
    wanted = {
        name: staging / str(number) / Path(name).parent.name / Path(name).name
        for number, report in enumerate(reports)
        for name in (*report.files.values(), *report.late.values())
    }

    def fetch(name: str) -> None:
        if not durable.bring(name, wanted[name]):
            raise StateError(
                "missing-result",
                f"{name} is not in the object store",
                remedy="find out who deletes objects there; the batch is tried again",
            )

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="staged") as pool:
        list(pool.map(fetch, wanted))
    for report in reports:
        for files in (report.files, report.late):
            files.update({name: str(wanted[file]) for name, file in files.items()})
    return list(wanted)
