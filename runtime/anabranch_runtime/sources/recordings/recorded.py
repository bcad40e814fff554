"""One Spark source that multiplexes all recorded streams: a Python data source, one step a batch.

Tasks map their pieces of the recordings into memory. Each task gets an equal share of every
stream's part of the batch, so they start with equal work. The offset is the number of rows read per
recording, so one that is registered later starts from its first row. The control plane's gate says
how many batches may start, so none is planned before it may.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadMaxFiles

from anabranch_runtime.sources.awaited import awaited
from anabranch_runtime.sources.blocks import SCHEMA
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.sources.planned import PlannedReader
from anabranch_runtime.sources.recordings.recording import Recording, piece_of

FORMAT = "anabranch-recorded"


class RecordedReader(PlannedReader):
    """Plans the batches of a set of recordings."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(int(options["tasks"]))
        self._recordings = [Recording(**r) for r in json.loads(options["recordings"])]
        self._url, self._namespace = options["redis"], options["namespace"]
        self._awaited: dict[str, str] = json.loads(options["awaited"])

    def getDefaultReadLimit(self) -> ReadMaxFiles:
        """One batch at a time."""
        return ReadMaxFiles(1)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """One batch of every stream on, if there is one and the gate lets it through."""
        # Planning runs in several processes; only this one needs the control plane.
        from anabranch_runtime.control import gate, retained

        opened = gate(self._url, self._namespace)
        if opened is not None and self._batches(start) >= opened:
            return start
        planned = retained(self._url, self._namespace) if self._awaited else {}
        unplanned = awaited(self._awaited, planned)
        end = dict(start)
        for recording in self._recordings:
            if recording.stream in unplanned:
                continue
            read = start.get(recording.key, 0)
            if read < recording.rows:
                end[recording.key] = min(read + recording.rows_per_batch, recording.rows)
        return end

    def _batches(self, offset: dict[str, int]) -> int:
        """Batches that have been read of the stream that has come furthest."""
        read = (-(-offset.get(r.key, 0) // r.rows_per_batch) for r in self._recordings)
        return max(read, default=0)

    def shares(self, start: dict[str, int], end: dict[str, int]) -> list[list[Piece]]:
        """An equal share of every stream's rows for each task; which task has a row more differs
        from stream to stream, or one would get all where there is a row each.
        """
        found: list[list[Piece]] = [[] for _ in range(self._tasks)]
        for number, recording in enumerate(self._recordings):
            first, last = start.get(recording.key, 0), end.get(recording.key, 0)
            count, ahead = last - first, number % self._tasks
            cuts = [first + (count * i + ahead) // self._tasks for i in range(self._tasks + 1)]
            for share, low, high in zip(found, cuts, cuts[1:], strict=False):
                if low < high:
                    share.append(piece_of(recording, low, high))
        return found


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
    recordings: Sequence[Recording],
    tasks: int,
    redis_url: str,
    namespace: str,
    waiting: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The options under which :class:`RecordedSource` reads ``recordings``; ``waiting``: marks of
    the streams that wait for their epoch (``awaited``).
    """
    return {
        "recordings": json.dumps([asdict(r) for r in recordings]),
        "tasks": str(tasks),
        "redis": redis_url,
        "namespace": namespace,
        "awaited": json.dumps(dict(waiting or {})),
    }
