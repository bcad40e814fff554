"""Merges of a backend's segments, in a thread beside the operator.

A merge reads immutable segments and writes a new pack file, which replaces its parts in the
manifest of the next commit. So a kill at any moment leaves at most one superfluous file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.ahead import give_way
from anabranch_runtime.storage.segment import IndexKey, Merge, Segment, SegmentReader
from anabranch_runtime.task.compact import merged_pack, rewrite
from anabranch_runtime.task.stores import ColumnsOf, merge_segments
from benchmarks.umjoin.backends.interface import TableSpec


@dataclass(frozen=True, slots=True)
class Task:
    """A merge of some segments of a table."""

    table: str
    spec: TableSpec
    merge: Merge


@dataclass(slots=True)
class Merger:
    """Executes merges, one after the other.

    Attributes:
        folder: folder of the backend.
        beside: whether merges run in a thread; else at once, so that a run depends only on its
            input.
    """

    folder: Path
    beside: bool
    _thread: threading.Thread | None = None
    _done: list[tuple[Task, Segment]] = field(default_factory=list)
    _failed: list[Exception] = field(default_factory=list)
    _leaving: threading.Event = field(default_factory=threading.Event)

    @property
    def busy(self) -> bool:
        """Whether a merge is running, or finished and not yet taken."""
        return bool(self._done) or (self._thread is not None and self._thread.is_alive())

    def begin(self, tasks: Sequence[Task]) -> None:
        """Start ``tasks``; not allowed while :attr:`busy`."""
        if not tasks:
            return
        if not self.beside:
            self._run(tasks)
            return
        self._thread = threading.Thread(
            target=self._run, args=(tasks,), name="merging", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait for the running merge."""
        if self._thread is not None:
            self._thread.join()

    def take(self) -> list[tuple[Task, Segment]]:
        """Return the merges finished since the last call.

        Raises:
            StateError: a segment is damaged, or the disk is full.
        """
        if self._failed:
            raise self._failed.pop(0)
        count = len(self._done)
        found, self._done[:count] = self._done[:count], []
        return found

    def close(self) -> None:
        """Stop after the running merge."""
        self._leaving.set()
        self.wait()

    def _run(self, tasks: Sequence[Task]) -> None:
        if self.beside:
            give_way()
        for task in tasks:
            if self._leaving.is_set():
                return
            try:
                self._done.append((task, merged(self.folder, task)))
            except (StateError, OSError) as error:
                self._failed.append(error)
                return


def merged(folder: Path, task: Task) -> Segment:
    """Merge the parts of ``task`` into one segment, in a new pack file.

    Raises:
        StateError: a part is damaged or missing.
        OSError: the pack can't be written.
    """
    indexes = [(key, columns_of(key)) for key in task.spec.indexes]
    (segment,) = rewrite(
        folder,
        merged_pack(),
        [task.merge],
        lambda writer, parts: merge_segments(writer, parts, (), indexes),
    )
    return segment


def columns_of(key: IndexKey) -> ColumnsOf:
    """Return how an index's key columns are read from a segment."""

    def columns(reader: SegmentReader) -> list[pa.Array]:
        return [reader.column(c) for c in key.columns]

    return columns
