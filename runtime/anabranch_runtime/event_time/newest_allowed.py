"""Rejection of event times too far in the future, which would make all later tuples late.

The greatest allowed event time of a batch is fixed before it starts, from the state and the time at
which Spark planned the batch, which is part of its offsets. So a repeated batch rejects the same
tuples, and whether a tuple is rejected does not depend on other tuples of its batch or task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch_runtime.epochs.retention import watermarks
from anabranch_runtime.state.manifest import State, StreamState


def newest_allowed(streams: Mapping[str, StreamState], clock: int | None) -> dict[str, int]:
    """Return the greatest event time that tuples of the next batch may have, in microseconds, for
    each stream that has a limit.

    Args:
        streams: the streams before the batch.
        clock: time at which the batch was planned, microseconds since 1970; None: no clock is used.
    """
    found = {}
    for name, stream in streams.items():
        limits = []
        spec = stream.spec
        if spec is None:
            continue
        if spec.ahead_of_clock is not None and clock is not None:
            limits.append(clock + spec.ahead_of_clock)
        # An idle stream's raised watermark counts as its greatest event time.
        reached = [t for t in (stream.max_tau, stream.floor) if t is not None]
        if spec.ahead_of_stream is not None and reached:
            limits.append(max(reached) + spec.ahead_of_stream)
        if limits:
            found[name] = min(limits)
    return found


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Limits of event times in one batch.

    Attributes:
        watermarks: stream -> least event time that is not late, in microseconds, if it can be late.
        newest_allowed: stream -> greatest event time, in microseconds, if the stream has a limit.
        clock: microseconds for which the pipeline had been running when the batch started; None:
            event time is the clock (``event_time.idleness``).
        now: value of ``current_timestamp`` (Unix time, microseconds).
    """

    watermarks: dict[str, int] = field(default_factory=dict)
    newest_allowed: dict[str, int] = field(default_factory=dict)
    clock: int | None = None
    now: int = 0

    @classmethod
    def of(cls, state: State, now: int, planned: int | None, clock: int | None) -> BatchTimes:
        """Compute the limits of event times of the batch that starts in ``state``."""
        return cls(watermarks(state), newest_allowed(state.streams, planned), clock, now)
