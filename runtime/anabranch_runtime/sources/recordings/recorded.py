"""Spark source of all recorded streams: every batch has a fixed number of rows of each.

Tasks map their parts of the recordings into memory. Each task gets an equal share of every
stream's rows in the batch, so all tasks start with equal work. The offset is the number of rows
read per recording, so a recording that is registered later starts from its first row. A client may
limit the number of batches that start (``Keys.gate``).
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
        """Return Spark's limit of one batch at a time."""
        return ReadMaxFiles(1)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """Return the offset one batch later, if rows are left and the batch may start."""
        # Imported here, as only the process that plans batches needs Redis.
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
        """Return the greatest number of batches read of any stream."""
        read = (-(-offset.get(r.key, 0) // r.rows_per_batch) for r in self._recordings)
        return max(read, default=0)

    def shares(self, start: dict[str, int], end: dict[str, int]) -> list[list[Piece]]:
        """Give each task an equal share of every stream's rows. The task that gets a surplus row
        differs between streams, or else one task would get every stream's single row.
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
    """Spark's data source class for recordings."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name in Spark."""
        return FORMAT

    def schema(self) -> str:
        """Return Spark's schema of the source's rows (blocks of encoded rows)."""
        return SCHEMA

    def streamReader(self, schema: Any) -> RecordedReader:
        """Return a reader of the recordings in the options."""
        return RecordedReader(dict(self.options))


def source_options(
    recordings: Sequence[Recording],
    tasks: int,
    redis_url: str,
    namespace: str,
    waiting: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the Spark options of :class:`RecordedSource` for ``recordings``; ``waiting``: streams
    not read before their definition is in effect (``awaited``).
    """
    return {
        "recordings": json.dumps([asdict(r) for r in recordings]),
        "tasks": str(tasks),
        "redis": redis_url,
        "namespace": namespace,
        "awaited": json.dumps(dict(waiting or {})),
    }
