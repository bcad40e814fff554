"""CPU time of routing tuples by groups of values (PMJoin, Fig. 9).

The tuples that arrive in a second of stream time, and the results of joins that are inputs of other
joins, are drawn by their rates. Two look-ups are made for each tuple: the group of its value, and
the host to which this group's plan sends its stream or join. If that is another host, the tuple is
appended to the list of outgoing tuples for that host. With one group, the first look-up is omitted.
The measured code is Python, so only ratios of CPU times are meaningful.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.command import cpu_milliseconds
from benchmarks.papers.pmjoin.operators import Operator
from benchmarks.papers.pmjoin.partitioners import Group
from benchmarks.papers.pmjoin.rates import Mask, RatesByValue

#: A tuple: the streams that it joins, its value, and its host.
Tuple = tuple[Mask, int, int]


#: Number of repetitions with the same tuples.
ROUNDS = 99


@dataclass(frozen=True, slots=True)
class Routed:
    """Outcome of routing the tuples of one second.

    Attributes:
        tuples: number of routed tuples. ``sent``: number of tuples sent to another host.
        milliseconds: median CPU time.
    """

    tuples: int
    sent: int
    milliseconds: float


def route(rates: RatesByValue, groups: Sequence[Group], seed: int) -> Routed:
    """Route the tuples of one second by the plans of ``groups``."""
    group_of = np.zeros(rates.values, np.int64)
    tables: list[dict[Mask, int]] = []
    tuples: list[Tuple] = []
    rng = np.random.default_rng(seed)
    for number, group in enumerate(groups):
        group_of[group.values] = number
        table = {}
        for one, there in _edges(group.plan):
            table[one.streams] = there
            counts = rng.poisson(rates.each(one.streams)[group.values])
            for value, count in zip(group.values.tolist(), counts.tolist(), strict=True):
                tuples += [(one.streams, value, one.host)] * count
        tables.append(table)
    # Tuples of different groups alternate in the order of arrival.
    order = rng.permutation(len(tuples)).tolist()
    tuples = [tuples[at] for at in order]
    hosts = 1 + max(host for table in tables for host in table.values())
    found = group_of.tolist()
    sent = 0

    def work() -> None:
        nonlocal sent
        away = (
            _alike(tuples, tables[0], hosts)
            if len(tables) == 1
            else _apart(tuples, found, tables, hosts)
        )
        sent = sum(map(len, away))

    median = cpu_milliseconds(work, ROUNDS)["median"]
    return Routed(len(tuples), sent, median)


def _edges(plan: Operator) -> Iterator[tuple[Operator, int]]:
    """Yield each input of an operator, with the operator's host."""
    for one in plan.inputs:
        yield one, plan.host
        yield from _edges(one)


def _alike(tuples: Sequence[Tuple], table: dict[Mask, int], hosts: int) -> list[list[Tuple]]:
    away: list[list[Tuple]] = [[] for _ in range(hosts)]
    for one in tuples:
        streams, _, here = one
        there = table[streams]
        if there != here:
            away[there].append(one)
    return away


def _apart(
    tuples: Sequence[Tuple], group_of: list[int], tables: Sequence[dict[Mask, int]], hosts: int
) -> list[list[Tuple]]:
    away: list[list[Tuple]] = [[] for _ in range(hosts)]
    for one in tuples:
        streams, value, here = one
        there = tables[group_of[value]][streams]
        if there != here:
            away[there].append(one)
    return away
