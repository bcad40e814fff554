"""Which host has which partition: a map that changes little when hosts or sizes do.

Partitions are dealt by *rendezvous hashing*: a partition prefers the host with the greatest hash of
both (Thaler and Ravishankar, 1998). No host gets more than its share and a little, so a partition
that its favourite has no room for goes to the next one that has. What has a host already stays
there while that host is there, unless some have far more than others. Stores with equally many
partitions are dealt alike, so that rows with equal values of a key are on one host whichever stores
they are in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: How much more than an equal share a host may be given; and how much more, or less, it may have
#: before something is moved.
SLACK, MOST = 1.1, 1.25
#: By what part of their difference two hosts have to come closer for a partition to be moved.
CLOSER = 1e-6


@dataclass(frozen=True, slots=True)
class Placement:
    """A map from partitions to hosts.

    Attributes:
        hosts: their names, sorted.
        owners: numbers of partitions that stores have, each with the host (by number) of every
            partition.
    """

    hosts: tuple[str, ...]
    owners: tuple[tuple[int, tuple[int, ...]], ...]

    def of(self, partitions: int) -> tuple[int, ...] | None:
        """The hosts of so many partitions; None: such stores have not been placed."""
        return next((owners for count, owners in self.owners if count == partitions), None)

    def host_of(self, partitions: int, partition: int) -> str | None:
        """The host of one of ``partitions`` partitions; None: such stores have not been placed."""
        known = self.of(partitions)
        return None if known is None else self.hosts[known[partition]]


def place(
    counts: Collection[int],
    hosts: Collection[str],
    before: Placement | None = None,
    weights: Mapping[int, Sequence[float]] | None = None,
) -> Placement:
    """Deal partitions to ``hosts``.

    Args:
        counts: the numbers of partitions that stores have.
        hosts: at least one.
        before: where they have been so far.
        weights: per number of partitions what each of them weighs, in any unit; a partition of
            none weighs as much as any other. None: nothing is taken from a host that stays.
    """
    names = tuple(sorted(hosts))
    owners = tuple(
        (count, _deal(count, names, before, None if weights is None else weights.get(count, ())))
        for count in sorted(counts)
    )
    return Placement(names, owners)


def _deal(
    count: int, hosts: Sequence[str], before: Placement | None, weights: Sequence[float] | None
) -> tuple[int, ...]:
    known = weights if weights and sum(weights) > 0 else [1.0] * count
    # A partition without rows is a place for some.
    weight = [w + sum(known) / count * 1e-3 for w in known]
    share = sum(weight) / len(hosts)
    room = share * SLACK
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
            free = [h for h in liked if load[h] + weight[partition] <= room]
            found[partition] = free[0] if free else min(liked, key=lambda h: load[h])
            load[found[partition]] += weight[partition]
    if weights is not None or before is None or before.of(count) is None:
        _balance(found, load, weight, hosts)
    return tuple(found)


def _balance(
    found: list[int], load: list[float], weight: Sequence[float], hosts: Sequence[str]
) -> None:
    """Move partitions from the host with the most to that with the least, where one of them has
    far from its share. Each move brings the two closer to each other, by more than sums are off, so
    that there is an end.
    """
    share = sum(load) / len(load)
    while True:
        heavy, light = load.index(max(load)), load.index(min(load))
        if load[heavy] <= share * MOST and load[light] >= share / MOST:
            return
        gap = load[heavy] - load[light]
        some = [
            p
            for p, host in enumerate(found)
            if host == heavy and abs(gap - 2 * weight[p]) < gap * (1 - CLOSER)
        ]
        if not some:
            return
        moved = min(
            some,
            key=lambda p: (abs(gap - 2 * weight[p]), _score(hosts[light], len(found), p)),
        )
        found[moved] = light
        load[heavy] -= weight[moved]
        load[light] += weight[moved]


def _score(host: str, count: int, partition: int) -> bytes:
    """Less is liked better."""
    return hashlib.blake2b(f"{host}/{count}/{partition}".encode(), digest_size=8).digest()
