"""The planned source of all recorded streams: a batch has a fixed number of rows of each stream.

Tasks map their parts of the recordings into memory. Each task gets an equal share of every
stream's rows in the batch, so all tasks start with equal work. The offset is the number of rows
read per recording, so a recording that is registered later starts from its first row. A client may
limit the number of batches that start (``Keys.gate``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch_contract.protocol.keys import Keys
from anabranch_runtime.control import gate
from anabranch_runtime.sources.awaited import Mark, awaited
from anabranch_runtime.sources.feed import Feed, Piece
from anabranch_runtime.sources.planned import InputControl
from anabranch_runtime.sources.recordings.recording import Recording, piece_of


class Recorded:
    """Plans the batches of a set of recordings (``planned.PlannedSource``).

    Args:
        tasks: number of tasks that read the recordings.
        control: values exchanged with the driver.
        waiting: retained stream -> its registered definition (``awaited``).
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        tasks: int,
        redis_url: str,
        namespace: str,
        control: InputControl | None = None,
        waiting: Mapping[str, Mark] | None = None,
    ) -> None:
        self._recordings, self._tasks = tuple(recordings), tasks
        self._url, self._namespace = redis_url, namespace
        self._input, self._awaited = control or InputControl(), dict(waiting or {})

    @property
    def waking(self) -> frozenset[str]:
        """The Redis key that limits the number of batches (gate)."""
        return frozenset((Keys(self._namespace).gate,))

    def feeds_of(self, offset: dict[str, int]) -> Mapping[str, Feed]:
        """Return no feeds, since the source divides its input itself."""
        return {}

    def plan(self, start: dict[str, int]) -> dict[str, int]:
        """Return the offset one batch later, if rows are left and ``Keys.gate`` permits it."""
        opened = gate(self._url, self._namespace)
        if opened is not None and self._batches(start) >= opened:
            return start
        unplanned = awaited(self._awaited, self._input.definitions)
        end = dict(start)
        for recording in self._recordings:
            if recording.stream in unplanned:
                continue
            read = start.get(recording.key, 0)
            if read < recording.rows:
                end[recording.key] = min(read + recording.rows_per_batch, recording.rows)
        return end

    def _batches(self, offset: dict[str, int]) -> int:
        """Return the number of batches that the furthest recording has been read."""
        read = (-(-offset.get(r.key, 0) // r.rows_per_batch) for r in self._recordings)
        return max(read, default=0)

    def shares(self, start: dict[str, int], end: dict[str, int]) -> list[list[Piece]]:
        """Give each task an equal share of every stream's rows. Which task gets a surplus row
        differs from stream to stream; otherwise one task would get the single rows of all streams.
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
