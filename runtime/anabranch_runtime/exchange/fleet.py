"""The tasks of a batch by host, and the owner of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.state.placement import Placement, place

if TYPE_CHECKING:  # Arrow Flight is for several hosts only
    from anabranch_runtime.exchange.meeting import CoordinatorAddress


@dataclass(frozen=True, slots=True)
class BatchHosts:
    """The hosts of a batch, where they share nothing but the object store.

    Attributes:
        placement: partition -> host; None: there has been one host. ``coming``: placement of an
            epoch that began now; None: the same.
        meeting: address of the coordinator of tasks; None: they share the state directory.
        cache: the directory that serves the tasks of one host as the state directory; if relative,
            below their executors' own. ``cache_size``: bytes of packs in it; None: any number.
    """

    placement: Placement | None = None
    coming: Placement | None = None
    meeting: CoordinatorAddress | None = None
    cache: str = ""
    cache_size: int | None = None


@dataclass(slots=True)
class Fleet:
    """The tasks of a batch as one of them sees them; the same for all but for ``task``.

    A partition belongs to its host in the placement, if that takes part; else to another, which all
    tasks compute alike. A host's tasks write the rows sent to it, and read all of them.

    Attributes:
        hosts: of every task, in task order.
        task: number of this task.
        placement: placement as the batch began; None: nothing was placed.
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
        """Whether all tasks are on one host, so that nothing has to be sent."""
        return len(self.names) == 1

    @property
    def mates(self) -> list[int]:
        """The tasks of this host."""
        return self._tasks[self.here]

    def peer(self, host: int) -> int:
        """The task of ``host`` that this task sends partial results to."""
        tasks = self._tasks[host]
        return tasks[self.task % len(tasks)]

    def owners(self, partitions: int) -> Ints:
        """The host of each partition, for stores with ``partitions`` partitions."""
        found = self._owners.get(partitions)
        if found is None:
            ((_, owners),) = place([partitions], self.names, self.placement).owners
            found = self._owners[partitions] = np.array(owners, np.int64)
        return found

    def own(self, partitions: int) -> Bools:
        """Mask of this host's partitions, for stores with ``partitions`` partitions."""
        found = self._own.get(partitions)
        if found is None:
            found = self._own[partitions] = self.owners(partitions) == self.here
        return found
