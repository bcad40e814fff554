"""Assignment of a batch's tasks, and of store partitions, to hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.placement.assignment import place
from anabranch_runtime.state.placement import Placement


@dataclass(frozen=True, slots=True)
class BatchHosts:
    """Settings of a batch on several hosts, sent from driver to tasks.

    Attributes:
        placement: partition -> host; None: no host has been assigned partitions yet.
        coming: expected placement of the next epoch, for prefetching; None: the same placement.
        apart: whether the hosts share only the object store, not the state directory.
        cache: state directory of the tasks of one host; a relative path is below the executor's
            working directory.
        cache_size: maximum bytes of packs in the cache; None: no limit.
    """

    placement: Placement | None = None
    coming: Placement | None = None
    apart: bool = False
    cache: str = ""
    cache_size: int | None = None


@dataclass(slots=True)
class Fleet:
    """Tasks of a batch and their hosts; equal in all tasks except for ``task``.

    A partition is owned by its host in the placement if that host takes part in the batch, else by
    another host, which all tasks compute in the same way. The tasks of a host write the rows that
    are sent to it, and each task can read all its rows.

    Attributes:
        hosts: name of each task's host, in task order.
        task: number of this task.
        placement: placement at the start of the batch; None: no partition is placed yet.
    """

    hosts: Sequence[str]
    task: int
    placement: Placement | None = None
    names: tuple[str, ...] = field(init=False)
    here: int = field(init=False)
    _owners: dict[int, Ints] = field(default_factory=dict)
    _own: dict[int, Bools] = field(default_factory=dict)
    _tasks: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(sorted(set(self.hosts)))
        self._tasks = [[t for t, h in enumerate(self.hosts) if h == n] for n in self.names]
        self.here = self.names.index(self.hosts[self.task])

    @property
    def alone(self) -> bool:
        """Whether all tasks are on one host, so that no tuples have to be sent."""
        return len(self.names) == 1

    @property
    def mates(self) -> list[int]:
        """Numbers of the tasks on this task's host."""
        return self._tasks[self.here]

    def peer(self, host: int) -> int:
        """Return the task of ``host`` to which this task sends partial results."""
        tasks = self._tasks[host]
        return tasks[self.task % len(tasks)]

    def owners(self, partitions: int) -> Ints:
        """Return the number of each partition's host, for stores with ``partitions`` partitions."""
        found = self._owners.get(partitions)
        if found is None:
            ((_, owners),) = place([partitions], self.names, self.placement).owners
            found = self._owners[partitions] = np.array(owners, np.int64)
        return found

    def own(self, partitions: int) -> Bools:
        """Return the mask of this host's partitions, for stores with ``partitions`` partitions."""
        found = self._own.get(partitions)
        if found is None:
            found = self._own[partitions] = self.owners(partitions) == self.here
        return found
