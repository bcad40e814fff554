"""Event times by which the tasks of a batch judge its tuples."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch_runtime.epochs.retention import watermarks
from anabranch_runtime.event_time.newest_allowed import newest_allowed
from anabranch_runtime.state.manifest import State


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Limits of event times in one batch.

    Attributes:
        watermarks: stream -> microseconds, for streams that can have late tuples.
        newest_allowed: stream -> microseconds, for streams that can have future tuples.
        clock: microseconds that the pipeline had been running when the batch started; None: event
            time is the clock (``event_time.idleness``).
    """

    watermarks: dict[str, int] = field(default_factory=dict)
    newest_allowed: dict[str, int] = field(default_factory=dict)
    clock: int | None = None

    @classmethod
    def of(cls, state: State, planned: int | None, clock: int | None) -> BatchTimes:
        """The limits of the batch that starts in ``state``; ``planned``: its planning time."""
        return cls(watermarks(state), newest_allowed(state.streams, planned), clock)
