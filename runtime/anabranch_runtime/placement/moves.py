"""Placement of partitions on hosts, from one epoch to the next.

The weight of a partition is its share of all stored bytes plus its share of the CPU time of all
probes. The weights are divided equally over the hosts, so a host with more bytes has less probe
time. With each epoch, the measured seconds of earlier epochs count half as much.

As far as the equal weights permit, partitions are placed on the hosts where their tuples arrive
(:func:`~.assignment.draw`). Tasks count the bytes of arriving tuples per partition, whether or not
they were sent to another host. Partial results are not counted, as their hosts depend on the
placement. A move of a partition sends its stored bytes, and must save as many within a few epochs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.placement.assignment import Demand, place
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.placement import Hosts, Placement

#: Least total CPU seconds of probes for which the partitions' shares of them are meaningful.
LEAST_SECONDS = 1.0
#: Bytes added to each partition's stored bytes, so that the few rows of the first batch do not
#: determine the placement.
PRIOR = 1 << 20
#: Decimal places to which seconds and bytes are rounded.
_DIGITS = 6
#: Number of epochs within which the move of a partition must pay off.
HORIZON = 4


def met(state: State, reports: Sequence[TaskReport]) -> State:
    """Record the hosts of a batch's tasks, and the measured cost of its probes per partition."""
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
    """Return ``state`` with partitions placed on the hosts of the last batch, by stored bytes,
    seconds of probes, and hosts where tuples arrive; unchanged if tasks share a state directory."""
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
    """Return benefit and cost of moves of partitions; ``stored``: bytes of each partition."""
    count, nothing = str(len(stored)), np.zeros(len(stored))
    arriving = [hosts.demand.get(host, {}).get(count, nothing) for host in sorted(hosts.tasks)]
    # Counts are halved per epoch, so they are about twice as large as one epoch's count.
    return Demand(np.array(arriving).T * (HORIZON / 2), np.array(stored))


def locality(state: State) -> float | None:
    """Return the fraction of arriving bytes that arrive on their home's host; None: unknown."""
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
    """Return the expected placement of partitions in the next epoch; None: as at present.

    Hosts use it to prefetch packs of the partitions that they will get.
    """
    placement = state.hosts.placement
    if placement is None or set(placement.hosts) == state.hosts.tasks.keys():
        return None
    return placed(state).hosts.placement


def weighed(sizes: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Return each partition's weight: its fraction of the bytes plus its fraction of the seconds.

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
