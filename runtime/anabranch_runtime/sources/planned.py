"""Planned sources: Spark handles their offsets, but not their rows.

Spark gets a batch's end offsets from a source, logs them, and repeats a failed batch up to the same
offsets; this makes input exact. The rows do not pass through Spark. The driver derives a batch's
pieces from the offsets before and after it (``batch_input``), and each task reads its share of the
pieces (``blocks.read_pieces``), without a second Python process per task and copies in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from anabranch_runtime.sources.feed import Feed, Piece

#: Name of a source in the Spark query -> factory of its reader.
Planned = Mapping[str, Callable[[], "PlannedReader"]]


#: Key in the offset of all feeds for trials: id of a held feed -> number of planned trials to read
#: it.
TRIALS = "~"


class PlannedReader(DataSourceStreamReader):
    """Base of planned sources as Spark's data sources; subclasses define the offsets."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def initialOffset(self) -> dict[str, Any]:
        """Return the empty offset: no stream has been read."""
        return {}

    @property
    def feeds(self) -> Mapping[str, Feed]:
        """The feeds in the source's offsets, by id."""
        return {}

    def feeds_of(self, offset: dict[str, Any]) -> Mapping[str, Feed]:
        """Return :attr:`feeds`, and feeds of earlier table versions in ``offset``."""
        return self.feeds

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[list[Piece]]:
        """Return the input between two offsets that belongs to no feed, as one share per task.

        Every call gives the same shares, except that a removed stream has no pieces: no query reads
        it any more.

        Raises:
            SourceError: some of the input no longer exists.
        """
        return [[] for _ in range(self._tasks)]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one empty partition per task."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield no rows."""
        yield from ()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the source keeps its input."""

    def stop(self) -> None:
        """Do nothing."""
