"""Messages between one task and the other tasks within a batch.

Messages are buffered per receiver and sent in the background. A round of messages ends when all of
them have arrived (:meth:`Traffic.settle`). A step of a batch ends after a round in which no task
sends any. Results do not depend on whether a message is read in its own round or in the next one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_runtime.exchange.fleet import Fleet

#: Bytes buffered for one receiver before they are sent.
FULL = 4 << 20


class Letter(NamedTuple):
    """A message: rows, and the operation to apply to them.

    Attributes:
        address: the operation: its kind, its edge, relation or store, and further arguments.
        of: number of rows from which the sender selected ``rows``.
    """

    address: tuple[str, ...]
    rows: pa.RecordBatch
    of: int

    @property
    def about(self) -> str:
        """Name of the edge, relation or store in the message's address."""
        return self.address[1]


class Gather(Protocol):
    """Callable that performs an all-gather: every task gets the messages of all tasks."""

    def __call__(self, message: str, group: str = "") -> list[str]:
        """Return every task's message in task order; empty for tasks of another group."""


class Post(Protocol):
    """Transport of messages from task to task, between hosts."""

    def send(self, task: int, letters: Sequence[Letter]) -> int:
        """Begin to send messages to ``task``.

        Returns:
            Number of bytes that are sent.

        Raises:
            PipelineError: earlier messages could not be sent.
        """

    def settled(self) -> None:
        """Wait until the receivers have all messages sent so far.

        Raises:
            PipelineError: a receiver can't be reached.
        """

    def receive(self) -> Iterator[Letter]:
        """Yield the messages that have arrived since the last call."""


@dataclass(slots=True)
class Traffic:
    """Router of a task's messages.

    Attributes:
        gather: all-gather of the tasks' messages; all tasks must call it equally often.
        rows: edge, relation or store -> number of tuples sent. ``bytes``: their total size.
        demand: number of a store's partitions -> per partition, bytes of the tuples that arrived on
            this host and probe the partition.
    """

    fleet: Fleet
    post: Post
    gather: Gather
    rows: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    demand: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    _boxes: dict[int, dict[tuple[str, ...], list[Letter]]] = field(default_factory=dict)
    _waiting: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _sent: int = 0

    def send(self, task: int, letter: Letter) -> None:
        """Send a message to ``task``, now or by the end of the round."""
        self._boxes.setdefault(task, {}).setdefault(letter.address, []).append(letter)
        self._waiting[task] += letter.rows.nbytes
        about = letter.about
        self.rows[about] = self.rows.get(about, 0) + letter.rows.num_rows
        if self._waiting[task] >= FULL:
            self._flush(task)

    def add_demand(self, tuples: NDArray[np.int64], width: float) -> None:
        """Add ``tuples`` (number per partition) of ``width`` bytes each to :attr:`demand`."""
        count = len(tuples)
        self.demand[count] = self.demand.get(count, np.zeros(count)) + tuples * width

    def settle(self) -> bool:
        """Send the buffered messages and wait for all tasks; True if any sent one in this round."""
        for task in sorted(self._boxes):
            self._flush(task)
        self.post.settled()
        sent, self._sent = self._sent, 0
        return any(json.loads(message) for message in self.gather(json.dumps(sent)))

    def share(self, message: str) -> list[str]:
        """Exchange messages among this host's tasks: return the tasks' messages, in task order."""
        told = self.gather(message, self.fleet.names[self.fleet.here])
        return [told[task] for task in self.fleet.mates]

    def receive(self) -> Iterator[Letter]:
        """Yield the messages that have arrived since the last call."""
        return self.post.receive()

    def _flush(self, task: int) -> None:
        box = self._boxes.pop(task, {})
        self._waiting[task] = 0
        letters = [
            Letter(
                address,
                pa.concat_batches([one.rows for one in found]) if len(found) > 1 else found[0].rows,
                sum(one.of for one in found),
            )
            for address, found in box.items()
        ]
        if letters:
            self.bytes += self.post.send(task, letters)
            self._sent += len(letters)
