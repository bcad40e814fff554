"""One Spark source that multiplexes all recorded streams: a Python data source, one step a batch.

A row is a reference to rows of a recording (``blocks``), which its task maps into memory. Each
read partition gets an equal share of every stream's slice of the batch, so the tasks of a
batch start with equal work. The offset is the number of rows read per recording, so one that is
registered later starts from its first row. The control plane's gate says how many batches may
start, so none is planned before it may.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxFiles

from anabranch_runtime.sources.blocks import SCHEMA, reference_row
from anabranch_runtime.sources.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

FORMAT = "anabranch-recorded"


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows ``[first, last)`` of a recording."""

    stream: str
    path: str
    first: int
    last: int


class Share(InputPartition):
    """One partition's slices."""

    def __init__(self, slices: list[Slice]) -> None:
        super().__init__(None)
        self.slices = slices


class RecordedReader(DataSourceStreamReader):
    """Plans and reads the batches of a set of recordings."""

    def __init__(self, options: dict[str, str]) -> None:
        self._recordings = [Recording(**r) for r in json.loads(options["recordings"])]
        self._partitions = int(options["partitions"])
        self._url, self._namespace = options["redis"], options["namespace"]

    def initialOffset(self) -> dict[str, int]:
        """Nothing has been read of any stream."""
        return {}

    def getDefaultReadLimit(self) -> ReadMaxFiles:
        """One batch at a time."""
        return ReadMaxFiles(1)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """One batch of every stream on, if there is one and the gate lets it through."""
        # Planning runs in several processes; only this one needs the control plane.
        from anabranch_runtime.control import gate

        opened = gate(self._url, self._namespace)
        if opened is not None and self._batches(start) >= opened:
            return start
        end = dict(start)
        for recording in self._recordings:
            read = start.get(recording.key, 0)
            if read < recording.rows:
                end[recording.key] = min(read + recording.rows_per_batch, recording.rows)
        return end

    def _batches(self, offset: dict[str, int]) -> int:
        """Batches that have been read of the stream that has come furthest."""
        read = (-(-offset.get(r.key, 0) // r.rows_per_batch) for r in self._recordings)
        return max(read, default=0)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """An equal share of every stream's rows for each partition."""
        shares: list[list[Slice]] = [[] for _ in range(self._partitions)]
        for recording in self._recordings:
            first, last = start.get(recording.key, 0), end.get(recording.key, 0)
            count = last - first
            cuts = [first + count * i // self._partitions for i in range(self._partitions + 1)]
            for share, low, high in zip(shares, cuts, cuts[1:], strict=False):
                if low < high:
                    share.append(Slice(recording.stream, recording.path, low, high))
        return [Share(slices) for slices in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The partition's blocks."""
        assert isinstance(partition, Share)
        for piece in partition.slices:
            yield reference_row(piece.stream, piece.path, piece.first, piece.last)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget: recordings stay."""

    def stop(self) -> None:
        """Nothing to close."""


class RecordedSource(DataSource):
    """The data source's registration with Spark."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """The schema of blocks."""
        return SCHEMA

    def streamReader(self, schema: Any) -> RecordedReader:
        """A reader of the recordings in the options."""
        return RecordedReader(dict(self.options))


def source_options(
    recordings: Sequence[Recording], partitions: int, redis_url: str, namespace: str
) -> dict[str, str]:
    """The options under which :class:`RecordedSource` reads ``recordings``."""
    return {
        "recordings": json.dumps([asdict(r) for r in recordings]),
        "partitions": str(partitions),
        "redis": redis_url,
        "namespace": namespace,
    }
