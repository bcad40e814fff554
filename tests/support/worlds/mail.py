"""Messages between tasks that are threads of this process, serialized as over a network."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch_runtime.exchange.traffic import Letter


@dataclass(slots=True)
class Mail:
    """The mailboxes of a batch's tasks.

    Attributes:
        letters: how many have been sent.
    """

    tasks: int
    letters: int = 0
    _boxes: list[queue.SimpleQueue[tuple[tuple[str, ...], bytes, int]]] = field(init=False)

    def __post_init__(self) -> None:
        self._boxes = [queue.SimpleQueue() for _ in range(self.tasks)]

    def of(self, task: int) -> Box:
        """Return the mailbox of ``task``."""
        return Box(self, task)

    def put(self, task: int, letters: Sequence[Letter]) -> int:
        """Put messages into the mailbox of ``task``; return their size in bytes."""
        size = 0
        for address, rows, of in letters:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_batch(rows)
            text = sink.getvalue().to_pybytes()
            size += len(text)
            self._boxes[task].put((address, text, of))
        self.letters += len(letters)
        return size

    def take(self, task: int) -> Iterator[Letter]:
        """Empty the mailbox of ``task``, and yield its messages."""
        while not self._boxes[task].empty():
            address, text, of = self._boxes[task].get()
            with pa.ipc.open_stream(text) as reader:
                yield Letter(address, reader.read_next_batch(), of)


@dataclass(frozen=True, slots=True)
class Box:
    """One task's interface to the exchange of messages."""

    mail: Mail
    task: int

    def send(self, task: int, letters: Sequence[Letter]) -> int:
        """Send messages to another task."""
        return self.mail.put(task, letters)

    def settled(self) -> None:
        """Messages are delivered at once: nothing to wait for."""

    def receive(self) -> Iterator[Letter]:
        """Receive the messages to this task."""
        return self.mail.take(self.task)
