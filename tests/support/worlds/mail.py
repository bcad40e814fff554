"""Letters between tasks that are threads of this process; by value, as over a network."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch_runtime.exchange.traffic import Letter


@dataclass(slots=True)
class Mail:
    """The boxes of a batch's tasks.

    Attributes:
        letters: how many have been sent.
    """

    tasks: int
    letters: int = 0
    _boxes: list[queue.SimpleQueue[tuple[tuple[str, ...], bytes, int]]] = field(init=False)

    def __post_init__(self) -> None:
        self._boxes = [queue.SimpleQueue() for _ in range(self.tasks)]

    def of(self, task: int) -> Box:
        """Box of ``task``."""
        return Box(self, task)

    def put(self, task: int, letters: Sequence[Letter]) -> int:
        """Put letters into the box of ``task``; their bytes."""
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
        """Empty the box of ``task``, and yield its letters."""
        while not self._boxes[task].empty():
            address, text, of = self._boxes[task].get()
            with pa.ipc.open_stream(text) as reader:
                yield Letter(address, reader.read_next_batch(), of)


@dataclass(frozen=True, slots=True)
class Box:
    """One task's side."""

    mail: Mail
    task: int

    def send(self, task: int, letters: Sequence[Letter]) -> int:
        """Hand letters to another task."""
        return self.mail.put(task, letters)

    def settled(self) -> None:
        """They have it."""

    def receive(self) -> Iterator[Letter]:
        """Take the received letters."""
        return self.mail.take(self.task)
