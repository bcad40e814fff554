"""Idle streams: whose watermark moves although they send nothing. Pure functions over the state.

The pipeline has a *clock*: one reading per batch, in microseconds, that never goes back. Live it is
the time that the driver has been running, read at the start of the batch; in step mode it is the
greatest event time of any stream up to and including the batch. A batch without tuples of a stream
shows that the stream had none until that batch's reading. So, after a batch with reading ``c``, a
stream whose last tuple came with reading ``a`` has been silent for ``c - a``; from its
``idle_timeout`` on it is *idle*, and its watermark is raised to the least one of the streams that
are not. All of it is decided when a batch commits and is part of its manifest, so that the next
batch starts with watermarks that no repetition can change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch_runtime.state.manifest import StreamState


def clock_reading(
    streams: Mapping[str, StreamState], running: int | None, last: int | None
) -> int | None:
    """The clock's reading of the batch after which ``streams`` stand.

    Args:
        streams: every stream after the batch.
        running: microseconds that the driver had been running at its start; None: event time is
            the clock.
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
    """The streams after a batch, with the clock's reading applied.

    ``before`` and ``after`` are the streams as the batch found and left them. A stream that has
    never sent anything is silent since the first batch in which it could have. An idle stream's
    watermark never goes back: rows that others have dropped by it are lost.
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
    """Whether ``stream`` has been silent for its time-out. One without a bounded lateness, of
    which nothing is ever late, is never idle.
    """
    spec = stream.spec
    if spec is None or spec.idle_timeout is None or spec.lateness is None:
        return False
    return stream.active_at is not None and clock - stream.active_at >= spec.idle_timeout
