"""Idle streams, whose watermark advances without tuples. Pure functions over the state.

The pipeline has a *clock*: one reading per batch, in microseconds, that never goes back. In live
mode it is the driver's running time at the start of the batch. In step mode it is the greatest
event time of any stream up to and including the batch. Suppose that a stream's last tuple came in a
batch with reading ``a``. After a batch with reading ``c`` the stream has been silent for ``c - a``.
Once this reaches its ``idle_timeout``, the stream is *idle*: its watermark is raised to the least
watermark of the streams that are not idle. This is decided when a batch commits and is part of its
manifest, so the next batch starts with the same watermarks however often it is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch_runtime.state.manifest import StreamState


def clock_reading(
    streams: Mapping[str, StreamState], running: int | None, last: int | None
) -> int | None:
    """Return the reading of the pipeline's clock for a batch.

    Args:
        streams: every stream's state after the batch.
        running: microseconds that the driver had been running at the start of the batch; None: step
            mode, where event time is the clock.
        last: the reading of the batch before.
    """
    if running is not None:
        readings = [running, last]
    else:
        readings = [*(s.newest for s in streams.values() if s.spec is not None), last]
    return max((r for r in readings if r is not None), default=None)


def pass_time(
    before: Mapping[str, StreamState], after: Mapping[str, StreamState], clock: int | None
) -> dict[str, StreamState]:
    """Return the streams' states after a batch, with watermarks of idle streams raised.

    ``before`` and ``after`` are the streams before and after the batch. A stream without any tuple
    has been silent since the first batch that could have had one. An idle stream's watermark never
    goes back, since stored rows of other streams have been removed according to it.
    """
    if clock is None:
        return dict(after)
    streams = {
        name: replace(stream, active_at=clock)
        if stream.active_at is None or name not in before or stream.input > before[name].input
        else stream
        for name, stream in after.items()
    }
    marks = [s.watermark() for s in streams.values() if not is_idle(s, clock)]
    least = min((m for m in marks if m is not None), default=None)
    if least is None:
        return streams
    return {
        name: replace(stream, floor=max(least, least if stream.floor is None else stream.floor))
        if is_idle(stream, clock)
        else stream
        for name, stream in streams.items()
    }


def is_idle(stream: StreamState, clock: int) -> bool:
    """Whether ``stream`` has been silent for its ``idle_timeout``. A stream with unbounded lateness
    has no late tuples and is never idle."""
    spec = stream.spec
    if spec is None or spec.idle_timeout is None or spec.lateness is None:
        return False
    return stream.active_at is not None and clock - stream.active_at >= spec.idle_timeout
