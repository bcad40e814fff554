"""Messages of one task to and from others within a batch.

Messages go out as they fill up, while their sender works on. A round (:meth:`Traffic.settle`) ends
when all its messages have arrived; a stage of a batch is over after a round without messages. A
message may be read in the round in which it was sent or in the next: nothing depends on it.
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

#: Bytes that wait for one receiver before they are sent.
FULL = 4 << 20


class Letter(NamedTuple):
    """A message: rows, and the work to do on them.

    Attributes:
        address: the kind of work, its subject, and more.
        of: number of rows that these were selected from.
    """

    address: tuple[str, ...]
    rows: pa.RecordBatch
    of: int

    @property
    def about(self) -> str:
        """The edge, relation or store whose tuples these are."""
        return self.address[1]


class Gather(Protocol):
    """An all-gather of messages."""

    def __call__(self, message: str, group: str = "") -> list[str]:
        """Every task's message, in task order; an empty one of tasks of another group."""


class Post(Protocol):
    """Transport of messages from task to task."""

    def send(self, task: int, letters: Sequence[Letter]) -> int:
        """Begin to send messages to ``task``.

        Returns:
            The bytes that are sent.

        Raises:
            PipelineError: earlier ones could not be sent.
        """

    def settled(self) -> None:
        """Wait until the receivers have all messages sent so far.

        Raises:
            PipelineError: one can't be reached.
        """

    def receive(self) -> Iterator[Letter]:
        """Messages that arrived since the last call."""


@dataclass(slots=True)
class Traffic:
    """Router of a task's messages.

    Attributes:
        gather: all-gather of the tasks' messages; called equally often by all.
        rows: edge, relation or store of messages -> tuples sent. ``bytes``: of all.
        demand: number of partitions -> bytes of tuples that arrived on this host, by the partition
            that needs them, here or elsewhere.
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
        """Add ``tuples`` of ``width`` bytes each to the demand, per partition that needs them."""
        count = len(tuples)
        self.demand[count] = self.demand.get(count, np.zeros(count)) + tuples * width

    def settle(self) -> bool:
        """End a round; True if any task sent a message in it."""
        for task in sorted(self._boxes):
            self._flush(task)
        self.post.settled()
        sent, self._sent = self._sent, 0
        return any(json.loads(message) for message in self.gather(json.dumps(sent)))

    def share(self, message: str) -> list[str]:
        """The messages of this host's tasks."""
        told = self.gather(message, self.fleet.names[self.fleet.here])
        return [told[task] for task in self.fleet.mates]

    def receive(self) -> Iterator[Letter]:
        """Messages that arrived since the last call."""
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
