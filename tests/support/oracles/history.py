"""Recorded rows with their batch, arrival sequence, event time, and whether they are late or
invalid.

Rules, from ``docs/semantics.md``: a tuple with no event time on a stream that declares one is
invalid; a tuple below its stream's watermark at the start of its batch is late; the watermark is
the greatest event time of *earlier* batches (late ones included) less the lateness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.joins import Stream
from tests.support.oracles.evaluate import Value

#: One batch: stream name -> rows, in arrival order.
Batch = Mapping[str, Sequence[Mapping[str, Value]]]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One accepted tuple. ``sigma`` is a total order over all streams and batches."""

    stream: str
    sigma: int
    batch: int
    tau: int | None
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class History:
    """Arrivals of a run, batch by batch.

    Attributes:
        accepted: per batch the tuples that are neither late nor invalid.
        watermarks: per batch, each stream's watermark at its start (None: none yet).
        late, invalid: numbers of rejected tuples, per stream.
    """

    accepted: tuple[tuple[Arrival, ...], ...]
    watermarks: tuple[Mapping[str, int | None], ...]
    late: Mapping[str, int]
    invalid: Mapping[str, int]

    def of(self, stream: str) -> list[Arrival]:
        """Return every accepted tuple of ``stream``."""
        return [a for batch in self.accepted for a in batch if a.stream == stream]


def record(streams: Sequence[Stream], batches: Sequence[Batch]) -> History:
    """Feed ``batches`` into ``streams``, and record which rows are accepted, late or invalid."""
    greatest: dict[str, int] = {}
    late: dict[str, int] = {s.name: 0 for s in streams}
    invalid: dict[str, int] = {s.name: 0 for s in streams}
    accepted: list[tuple[Arrival, ...]] = []
    watermarks: list[Mapping[str, int | None]] = []
    sigma = 0
    for number, batch in enumerate(batches):
        marks: dict[str, int | None] = {}
        for stream in streams:
            seen = greatest.get(stream.name)
            marks[stream.name] = (
                None if seen is None or stream.lateness is None else seen - stream.lateness
            )
        arrived = []
        for stream in streams:
            mark = marks[stream.name]
            for values in batch.get(stream.name, ()):
                sigma += 1
                tau = None
                if stream.event_time is not None:
                    moment = values[stream.event_time]
                    if moment is None:
                        invalid[stream.name] += 1
                        continue
                    assert isinstance(moment, int)
                    tau = moment
                    greatest[stream.name] = max(greatest.get(stream.name, tau), tau)
                    if mark is not None and tau < mark:
                        late[stream.name] += 1
                        continue
                arrived.append(Arrival(stream.name, sigma, number, tau, values))
        accepted.append(tuple(arrived))
        watermarks.append(marks)
    return History(tuple(accepted), tuple(watermarks), late, invalid)


def covers(activation: Activation, batch: int) -> bool:
    """Whether arrivals of ``batch`` can complete a result."""
    ended = activation.expired_batch
    return activation.activated_batch <= batch and (ended is None or batch < ended)


def sees(activation: Activation, alias: str, row: Arrival) -> bool:
    """Whether ``row`` is visible to the query's ``alias`` (one that is not named sees all)."""
    start = activation.visible_from.get(alias)
    if row.batch >= activation.activated_batch or start is None:
        return True
    if row.batch < start.batch:
        return False
    return start.event_time is None or row.tau is None or row.tau >= start.event_time
