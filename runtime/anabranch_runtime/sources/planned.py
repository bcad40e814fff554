"""Sources of which Spark keeps the offsets and nothing else.

Spark asks a source how far a batch goes, writes that down, and repeats the batch up to the same
offsets if it fails: that is what makes input exact. The rows need not go through Spark as well.
From the offsets before and after a batch the driver works out its pieces, and each task reads its
share of them (``blocks.read_pieces``): no second Python process per task, no copies through the
JVM.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from anabranch_runtime.state.checkpoint import source_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from anabranch_runtime.sources.feed import Piece

    #: Name of a source in the Spark query -> what makes a reader that sees how things stand now.
    Planned = Mapping[str, Callable[[], "PlannedReader"]]


class PlannedReader(DataSourceStreamReader):
    """What Spark sees of such a source; subclasses say what the offsets are."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def initialOffset(self) -> dict[str, Any]:
        """Nothing has been read of any stream."""
        return {}

    @abstractmethod
    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[list[Piece]]:
        """What lies between two offsets, in as many shares as there are tasks.

        The same whenever it is asked for, but that a stream which has been removed meanwhile has no
        pieces: no query uses it any more.

        Raises:
            SourceError: something of it is not there any more.
        """

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As many as there are tasks, empty."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """No rows."""
        yield from ()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to forget: what is read stays where it is."""

    def stop(self) -> None:
        """Nothing to close."""


def shares(planned: Planned, before: str | None, upto: str, tasks: int) -> list[list[Piece]]:
    """The pieces of a batch, per task.

    Args:
        planned: the sources.
        before, upto: Spark's texts of the offsets before and after the batch.
        tasks: how many there are.

    Raises:
        SourceError: something that was to be read is not there any more.
        StateError: offsets that can't be read.
    """
    found: list[list[Piece]] = [[] for _ in range(tasks)]
    start, end = source_offsets(before), source_offsets(upto)
    for name, reader in planned.items():
        if name in end:
            parts = reader().shares(start.get(name, {}), end[name])
            found = [mine + part for mine, part in zip(found, parts, strict=True)]
    return found
