"""Assignment of partitions to hosts, which changes little when hosts or sizes do.

Partitions are assigned by *rendezvous hashing*: a partition prefers the host with the least hash of
both names (Thaler and Ravishankar, 1998). A host gets little more than its share of the weight: if
the preferred host is full, the next one with room is taken. An assigned partition stays on its host
as long as this host runs, unless loads differ too much. Stores with the same number of partitions
have the same assignment, so that rows with equal values of a key are on one host in every store.

The hosts where tuples arrive may be better than hosts chosen by hashes, for example if a value is
frequent in a stream that is read at one site. A partition then moves to the host on which its
tuples arrive, or two partitions are swapped, if the savings exceed the cost and no host gets far
more, or less, than its share. The best move is made first, until no move is left (a local optimum).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import Bools, Floats
from anabranch_runtime.state.placement import Placement

#: Greatest load assigned to a host, as a multiple of its share; and the factor by which a host's
#: load may be above or below its share before partitions are moved.
SLACK, MOST = 1.1, 1.25
#: Least fraction by which a move has to reduce the difference between two hosts.
CLOSER = 1e-6
#: Least fraction of a partition's traffic that a move has to save, since less may be noise.
WORTH = 0.1


@dataclass(frozen=True, slots=True)
class Demand:
    """Benefit and cost of moving partitions to hosts, in one unit.

    Attributes:
        arriving: shape (partitions, hosts): the partition's tuples that arrive on the host, in the
            time within which a move must pay off.
        moving: per partition, cost of moving it to another host.
    """

    arriving: Floats
    moving: Floats


def place(
    counts: Collection[int],
    hosts: Collection[str],
    before: Placement | None = None,
    weights: Mapping[int, Sequence[float]] | None = None,
    demands: Mapping[int, Demand] | None = None,
    sizes: Mapping[str, float] | None = None,
) -> Placement:
    """Assign partitions to ``hosts``.

    Args:
        counts: the numbers of partitions that stores have.
        hosts: at least one.
        before: the placement so far.
        weights: number of partitions -> weight of each partition, in any unit; if a number is
            missing, its partitions have equal weights. None: no partition leaves a host that stays.
        demands: number of partitions -> demand, with ``hosts`` in sorted order.
        sizes: host -> its size, to which its share is proportional; 1 for a missing host.
    """
    names = tuple(sorted(hosts))
    size = [(sizes or {}).get(name, 1.0) for name in names]
    part = np.array(size) / sum(size)
    owners = []
    for count in sorted(counts):
        known = None if weights is None else weights.get(count, ())
        weight = _weighed(known, count)
        share = part * sum(weight)
        found = _deal_partitions(count, names, before, weight, share, balanced=weights is not None)
        demand = None if demands is None else demands.get(count)
        if demand is not None:
            at = [None if before is None else before.host_of(count, p) for p in range(count)]
            were = np.array([names.index(name) if name in names else -1 for name in at])
            found = draw(found, were, np.array(weight), share, demand)
        owners.append((count, tuple(found)))
    return Placement(names, tuple(owners))


def draw(
    found: Sequence[int], before: NDArray[np.int64], weight: Floats, share: Floats, demand: Demand
) -> list[int]:
    """Move partitions to hosts on which their tuples arrive, where that saves traffic.

    Args:
        found: host index of each partition. ``before``: its former host; -1: none.
        weight: weight of each partition. ``share``: target sum of weights per host.
    """
    at, hosts = np.array(found), len(share)
    load: Floats = np.bincount(at, weights=weight, minlength=hosts).astype(np.float64)
    within = np.minimum(load, share / MOST), np.maximum(load, share * MOST)
    # Cost of each partition on each host: moving it there, and sending its tuples from other hosts.
    total = demand.arriving.sum(axis=1, keepdims=True)
    is_new = np.arange(hosts) != before[:, None]
    cost = total - demand.arriving + is_new * demand.moving[:, None]
    for _ in range(cost.size):
        load = np.bincount(at, weights=weight, minlength=hosts).astype(np.float64)
        spared = np.take_along_axis(cost, at[:, None], 1) - cost - WORTH * total
        moves = np.where(_may_move(at, weight, load, within), spared, -np.inf)
        both = spared[:, at]
        pairs = np.where(_may_change(at, weight, load, within), both + both.T, -np.inf)
        partition, host = np.unravel_index(moves.argmax(), moves.shape)
        one, other = np.unravel_index(pairs.argmax(), pairs.shape)
        if max(moves[partition, host], pairs[one, other]) <= 0:
            break
        if moves[partition, host] >= pairs[one, other]:
            at[partition] = host
        else:
            at[one], at[other] = at[other], at[one]
    return [int(host) for host in at]


def _may_move(
    at: NDArray[np.int64], weight: Floats, load: Floats, within: tuple[Floats, Floats]
) -> Bools:
    """Return, by partition and host, whether this move would keep loads ``within`` their bounds."""
    least, most = within
    leaves = (load - least)[at] >= weight
    return leaves[:, None] & (load + weight[:, None] <= most)


def _may_change(
    at: NDArray[np.int64], weight: Floats, load: Floats, within: tuple[Floats, Floats]
) -> Bools:
    """Return, by pair of partitions, whether swapping their hosts would keep loads within their
    bounds; False for partitions on the same host."""
    least, most = within
    after = load[at][:, None] - weight[:, None] + weight
    fits: Bools = (after >= least[at][:, None]) & (after <= most[at][:, None])
    fits &= fits.T & (at[:, None] != at)
    return fits


def _weighed(weights: Sequence[float] | None, count: int) -> list[float]:
    known = weights if weights and sum(weights) > 0 else [1.0] * count
    # Empty partitions get a small weight, since rows may follow.
    return [w + sum(known) / count * 1e-3 for w in known]


def _deal_partitions(
    count: int,
    hosts: Sequence[str],
    before: Placement | None,
    weight: Sequence[float],
    share: Floats,
    *,
    balanced: bool,
) -> list[int]:
    load = [0.0] * len(hosts)
    found = [-1] * count
    order = sorted(range(count), key=lambda p: (-weight[p], p))
    for partition in order:
        name = None if before is None else before.host_of(count, partition)
        if name in hosts:
            found[partition] = hosts.index(name)
            load[found[partition]] += weight[partition]
    for partition in order:
        if found[partition] < 0:
            liked = sorted(range(len(hosts)), key=lambda h: _score(hosts[h], count, partition))
            free = [h for h in liked if load[h] + weight[partition] <= share[h] * SLACK]
            found[partition] = free[0] if free else min(liked, key=lambda h: load[h] / share[h])
            load[found[partition]] += weight[partition]
    if balanced or before is None or before.of(count) is None:
        _balance(found, load, weight, share, hosts)
    return found


def _balance(
    found: list[int],
    load: list[float],
    weight: Sequence[float],
    share: Floats,
    hosts: Sequence[str],
) -> None:
    """Move partitions from the host with the greatest load relative to its share to the one with
    the least, until both are near their shares. Each move reduces the difference by more than
    rounding errors, so the loop ends."""
    while True:
        filled = [has / wanted for has, wanted in zip(load, share, strict=True)]
        heavy, light = filled.index(max(filled)), filled.index(min(filled))
        if filled[heavy] <= MOST and filled[light] >= 1 / MOST:
            return
        gap, each = filled[heavy] - filled[light], 1 / share[heavy] + 1 / share[light]
        some = [
            p
            for p, host in enumerate(found)
            if host == heavy and abs(gap - weight[p] * each) < gap * (1 - CLOSER)
        ]
        if not some:
            return
        moved = min(
            some, key=lambda p: (abs(gap - weight[p] * each), _score(hosts[light], len(found), p))
        )
        found[moved] = light
        load[heavy] -= weight[moved]
        load[light] += weight[moved]


def _score(host: str, count: int, partition: int) -> bytes:
    """Return the rendezvous hash of host and partition; a partition prefers the least one."""
    return hashlib.blake2b(f"{host}/{count}/{partition}".encode(), digest_size=8).digest()
