"""Which host has which partition, from one epoch to the next.

What a partition weighs is its share of all bytes and its share of the CPU time of all probes, one
added to the other. The sum of both over all hosts does not depend on how they go together, so that
an equal part of it is what each host should have; a host that has more of one has less of the
other. Seconds of earlier epochs count half as much with each.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch_runtime.state.placement import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_runtime.epochs.task_report import TaskReport
    from anabranch_runtime.state.manifest import State
    from anabranch_runtime.state.placement import Placement

#: CPU seconds of probes, of all partitions together, that say anything about one.
LEAST_SECONDS = 1.0
#: Bytes that each partition is taken to have more than it has: nothing follows from what little one
#: batch has stored, by which the first placement goes.
PRIOR = 1 << 20
#: Digits of seconds that are kept.
_DIGITS = 6


def met(state: State, reports: Sequence[TaskReport]) -> State:
    """``state`` with the hosts of a batch, and what its probes took."""
    load = dict(state.load)
    for report in reports:
        for count, seconds in report.load.items():
            load[str(count)] = _added(load.get(str(count), ()), seconds)
    hosts = tuple(sorted({r.host for r in reports if r.host}))
    return replace(state, hosts=hosts, load=load)


def placed(state: State) -> State:
    """``state`` with its partitions dealt to the hosts of the last batch, by the bytes that they
    take and the seconds of their probes; as it is where tasks share a state directory.
    """
    if not state.hosts:
        return state
    sizes: dict[int, list[float]] = defaultdict(list)
    for store in state.stores.values():
        count = store.spec.partitions
        known = sizes[count] = sizes[count] or [0.0] * count
        for segment in store.segments:
            known[segment.partition] += segment.bytes
    weights = {
        count: weighed(bytes_, state.load.get(str(count), ())) for count, bytes_ in sizes.items()
    }
    found = place(weights.keys(), state.hosts, state.placement, weights)
    load = {
        count: tuple(round(s / 2, _DIGITS) for s in seconds)
        for count, seconds in state.load.items()
        if int(count) in sizes
    }
    return replace(state, placement=found, load=load)


def coming(state: State) -> Placement | None:
    """Where partitions will be once the next epoch begins, as far as that can be known now; None:
    where they are. Hosts can read beforehand what they will be dealt.
    """
    if state.placement is None or set(state.placement.hosts) == set(state.hosts):
        return None
    return placed(state).placement


def weighed(sizes: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Per partition its share of the bytes and of the seconds together.

    >>> weighed([0, 0, 1 << 20], [4.0, 0.0, 0.0])
    [1.25, 0.25, 0.5]
    >>> weighed([0, 0, 1 << 20], [0.4, 0.0, 0.0])
    [0.25, 0.25, 0.5]
    """
    shares = _shares([size + PRIOR for size in sizes])
    if sum(seconds) < LEAST_SECONDS:
        return shares
    return [one + other for one, other in zip(shares, _shares(seconds), strict=True)]


def _shares(amounts: Sequence[float]) -> list[float]:
    total = sum(amounts)
    return [amount / total for amount in amounts]


def _added(known: Sequence[float], more: Sequence[float]) -> tuple[float, ...]:
    before = known or [0.0] * len(more)
    return tuple(round(a + b, _DIGITS) for a, b in zip(before, more, strict=True))
