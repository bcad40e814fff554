"""Sources whose offsets, and nothing else, go through Spark.

Spark asks a source how far a batch goes, writes that down, and repeats the batch up to the same
offsets if it fails: that is what makes input exact. The rows need not go through Spark as well. The
driver derives a batch's pieces from the offsets before and after it (``batch_input``), and each
task reads its share of them (``blocks.read_pieces``): no second Python process per task, no copies
through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from anabranch_runtime.sources.feed import Feed, Piece

#: Name of a source in the Spark query -> factory of a reader of its present state.
Planned = Mapping[str, Callable[[], "PlannedReader"]]


#: Key of an offset's entry that is no feed: id of a feed that is held -> how many trials to read it
#: have been planned.
TRIALS = "~"


class PlannedReader(DataSourceStreamReader):
    """Such a source as Spark sees it; subclasses define the offsets."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def initialOffset(self) -> dict[str, Any]:
        """Nothing has been read of any stream."""
        return {}

    @property
    def feeds(self) -> Mapping[str, Feed]:
        """The feeds that its offsets are about, by their ids."""
        return {}

    def feeds_of(self, offset: dict[str, Any]) -> Mapping[str, Feed]:
        """:attr:`feeds`, and feeds of earlier versions of tables that ``offset`` has."""
        return self.feeds

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[list[Piece]]:
        """The input between two offsets outside the feeds, in as many shares as there are tasks.

        The same at every call, except that a stream which has been removed meanwhile has no pieces:
        no query uses it any more.

        Raises:
            SourceError: some of it is not there any more.
        """
        return [[] for _ in range(self._tasks)]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As many as there are tasks, empty."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """No rows."""
        yield from ()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to forget: read input stays where it is."""

    def stop(self) -> None:
        """Nothing to close."""
