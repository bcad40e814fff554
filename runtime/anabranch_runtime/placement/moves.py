"""Which host has which partition, from one epoch to the next.

What a partition weighs is its share of all bytes and its share of the CPU time of all probes, one
added to the other. The sum of both over all hosts does not depend on how they go together, so that
an equal part of it is what each host should have; a host that has more of one has less of the
other. Seconds of earlier epochs count half as much with each.

Within these bounds partitions go to where their tuples arrive (``state.placement.draw``): tasks
count the bytes that arriving tuples have for each partition, whether they were sent or not. What
partial results weigh is not counted, for where they are follows from the placement. To bring a
partition to another host costs the bytes that it has stored, and has to pay in a few epochs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.placement import Demand, Placement, place

#: CPU seconds of probes, of all partitions together, that say anything about one.
LEAST_SECONDS = 1.0
#: Bytes that each partition is taken to have more than it has: nothing follows from what little one
#: batch has stored, by which the first placement goes.
PRIOR = 1 << 20
#: Digits of seconds and bytes that are kept.
_DIGITS = 6
#: Epochs in which it has to pay that a partition moves.
HORIZON = 4


def met(state: State, reports: Sequence[TaskReport]) -> State:
    """``state`` with the hosts of a batch, and what its probes took."""
    load = dict(state.load)
    demand = {host: dict(wanted) for host, wanted in state.demand.items()}
    for report in reports:
        for count, seconds in report.load.items():
            load[str(count)] = _added(load.get(str(count), ()), seconds)
        known = demand.setdefault(report.host, {}) if report.demand else {}
        for count, sizes in report.demand.items():
            known[str(count)] = _added(known.get(str(count), ()), sizes)
    hosts = Counter(report.host for report in reports if report.host)
    return replace(state, hosts=tuple(sorted(hosts)), tasks=dict(hosts), load=load, demand=demand)


def placed(state: State) -> State:
    """``state`` with its partitions dealt to the hosts of the last batch, by the bytes that they
    take, the seconds of their probes, and where their tuples arrive; as it is where tasks share a
    state directory.
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
    demands = {count: _demand(state, stored) for count, stored in sizes.items()}
    found = place(weights.keys(), state.hosts, state.placement, weights, demands, state.tasks)
    load = {count: _half(seconds) for count, seconds in state.load.items() if int(count) in sizes}
    demand = {
        host: {count: _half(some) for count, some in wanted.items() if int(count) in sizes}
        for host, wanted in state.demand.items()
        if host in state.hosts
    }
    return replace(state, placement=found, load=load, demand=demand)


def _demand(state: State, stored: Sequence[float]) -> Demand:
    """Demand per partition and host; ``stored``: bytes of each partition."""
    count, nothing = str(len(stored)), np.zeros(len(stored))
    arriving = [state.demand.get(host, {}).get(count, nothing) for host in state.hosts]
    # Half the count of an epoch earlier, and so on, is twice an epoch's in the long run.
    return Demand(np.array(arriving).T * (HORIZON / 2), np.array(stored))


def locality(state: State) -> float | None:
    """The share of bytes of arriving tuples whose partitions are where they arrive; None: nothing
    of that is known.
    """
    if state.placement is None:
        return None
    here = total = 0.0
    for host, wanted in state.demand.items():
        for sizes in wanted.values():
            total += sum(sizes)
            here += sum(
                size
                for partition, size in enumerate(sizes)
                if state.placement.host_of(len(sizes), partition) == host
            )
    return here / total if total else None


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


def _half(amounts: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(amount / 2, _DIGITS) for amount in amounts)


def _added(known: Sequence[float], more: Sequence[float]) -> tuple[float, ...]:
    before = known or [0.0] * len(more)
    return tuple(round(a + b, _DIGITS) for a, b in zip(before, more, strict=True))
