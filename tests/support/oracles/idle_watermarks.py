"""Watermarks of every stream at the start of every batch, computed by definition, with idle
streams.

Rules, from ``docs/semantics.md`` (promise 5): in step mode the clock is event time. They are
evaluated batch by batch over all earlier event times, without code of the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.scenarios.file import StreamEntry


def watermarks(
    streams: Mapping[str, StreamEntry],
    seen: Mapping[str, Mapping[int, int | None]],
    batches: int,
) -> dict[str, dict[int, int | None]]:
    """Return stream -> batch -> watermark at the start of the batch.

    Args:
        streams: the streams' definitions.
        seen: stream -> batch with tuples of the stream -> greatest event time of these.
        batches: number of batches.
    """
    marks: dict[str, dict[int, int | None]] = {name: {0: None} for name in streams}
    for batch in range(1, batches):
        now = _clock(streams, seen, batch)
        own = {name: _own(streams[name], seen[name], batch) for name in streams}
        raised = {
            name: max(
                (m for m in (own[name], marks[name][batch - 1]) if m is not None), default=None
            )
            for name in streams
        }
        idle = {
            name
            for name, stream in streams.items()
            if stream.idle_timeout is not None
            and stream.lateness is not None
            and now is not None
            and now - _heard(streams, seen, name, batch) >= stream.idle_timeout
        }
        least = min(
            (m for name, m in raised.items() if name not in idle and m is not None), default=None
        )
        for name in streams:
            mark = raised[name]
            if name in idle and least is not None:
                mark = least if mark is None else max(mark, least)
            marks[name][batch] = mark
    return marks


def _own(stream: StreamEntry, seen: Mapping[int, int | None], batch: int) -> int | None:
    times = [t for b, t in seen.items() if b < batch and t is not None]
    if not times or stream.lateness is None or stream.event_time is None:
        return None
    return max(times) - stream.lateness


def _clock(
    streams: Mapping[str, StreamEntry], seen: Mapping[str, Mapping[int, int | None]], batch: int
) -> int | None:
    """Return the clock after all batches before ``batch``; None before the first event time."""
    times = [
        t
        for name, stream in streams.items()
        if stream.event_time is not None
        for b, t in seen[name].items()
        if b < batch and t is not None
    ]
    return max(times, default=None)


def _heard(
    streams: Mapping[str, StreamEntry],
    seen: Mapping[str, Mapping[int, int | None]],
    name: str,
    batch: int,
) -> int:
    """Return the clock after the last batch with rows of ``name``; without one, its first value."""
    brought = [b for b in seen[name] if b < batch]
    if brought:
        heard = _clock(streams, seen, max(brought) + 1)
        if heard is not None:
            return heard
    readings = [_clock(streams, seen, b) for b in range(1, batch + 1)]
    return next(r for r in readings if r is not None)
