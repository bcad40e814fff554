"""Placement of partitions on hosts, from one epoch to the next.

The weight of a partition is its share of all bytes plus its share of the CPU time of all probes.
The sum over all hosts is constant, so each host should have an equal part of it; a host that has
more of one has less of the other. Seconds of earlier epochs count half as much with each.

Within these bounds partitions go to where their tuples arrive (``state.placement.draw``): tasks
count the bytes that arriving tuples have for each partition, whether they were sent or not. Partial
results are not counted, for their hosts follow from the placement. To bring a partition to another
host costs the bytes that it has stored, and has to pay in a few epochs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.placement import Demand, Hosts, Placement, place

#: Least CPU seconds of probes, of all partitions together, that tell anything about one.
LEAST_SECONDS = 1.0
#: Bytes added to each partition's own: the little that one batch has stored must not decide the
#: first placement.
PRIOR = 1 << 20
#: Digits of seconds and bytes that are kept.
_DIGITS = 6
#: Epochs in which it has to pay that a partition moves.
HORIZON = 4


def met(state: State, reports: Sequence[TaskReport]) -> State:
    """``state`` with the hosts of a batch, and the cost of its probes."""
    known = state.hosts
    load = dict(known.load)
    demand = {host: dict(wanted) for host, wanted in known.demand.items()}
    for one in (report.host for report in reports):
        for count, seconds in one.load.items():
            load[str(count)] = _added(load.get(str(count), ()), seconds)
        wanted = demand.setdefault(one.name, {}) if one.demand else {}
        for count, sizes in one.demand.items():
            wanted[str(count)] = _added(wanted.get(str(count), ()), sizes)
    tasks = dict(Counter(r.host.name for r in reports if r.host.name))
    return replace(state, hosts=Hosts(known.placement, tasks, load, demand))


def placed(state: State) -> State:
    """``state`` with its partitions assigned to the hosts of the last batch, by their bytes, the
    seconds of their probes, and the arrivals of their tuples; unchanged where tasks share a state
    directory.
    """
    known = state.hosts
    if not known.tasks:
        return state
    sizes: dict[int, list[float]] = defaultdict(list)
    for store in state.stores.values():
        count = store.spec.partitions
        stored = sizes[count] = sizes[count] or [0.0] * count
        for segment in store.segments:
            stored[segment.partition] += segment.bytes
    weights = {
        count: weighed(bytes_, known.load.get(str(count), ())) for count, bytes_ in sizes.items()
    }
    demands = {count: _demand(known, bytes_) for count, bytes_ in sizes.items()}
    found = place(weights.keys(), known.tasks, known.placement, weights, demands, known.tasks)
    load = {count: _half(seconds) for count, seconds in known.load.items() if int(count) in sizes}
    demand = {
        host: {count: _half(some) for count, some in wanted.items() if int(count) in sizes}
        for host, wanted in known.demand.items()
        if host in known.tasks
    }
    return replace(state, hosts=Hosts(found, known.tasks, load, demand))


def _demand(hosts: Hosts, stored: Sequence[float]) -> Demand:
    """Demand per partition and host; ``stored``: bytes of each partition."""
    count, nothing = str(len(stored)), np.zeros(len(stored))
    arriving = [hosts.demand.get(host, {}).get(count, nothing) for host in sorted(hosts.tasks)]
    # Half the count of an epoch earlier, and so on, is twice an epoch's in the long run.
    return Demand(np.array(arriving).T * (HORIZON / 2), np.array(stored))


def locality(state: State) -> float | None:
    """The share of bytes of arriving tuples whose partitions are where they arrive; None: nothing
    of that is known.
    """
    placement = state.hosts.placement
    if placement is None:
        return None
    here = total = 0.0
    for host, wanted in state.hosts.demand.items():
        for sizes in wanted.values():
            total += sum(sizes)
            here += sum(
                size
                for partition, size in enumerate(sizes)
                if placement.host_of(len(sizes), partition) == host
            )
    return here / total if total else None


def coming(state: State) -> Placement | None:
    """Expected placement of the next epoch; None: the present one.

    Hosts can fetch packs of their coming partitions beforehand.
    """
    placement = state.hosts.placement
    if placement is None or set(placement.hosts) == state.hosts.tasks.keys():
        return None
    return placed(state).hosts.placement


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
