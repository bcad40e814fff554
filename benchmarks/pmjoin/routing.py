"""Cost of routing tuples by groups of values (PMJoin, Fig. 9).

For a second of stream time the tuples that arrive, and the results of joins that are inputs of
others, are drawn by their rates. Two look-ups are made for each: the group of its value, and the
host to which that group's plan sends its stream or join; if that is another host, it is appended to
that host's outgoing tuples. With one group there is nothing to look up first. This is the CPU time
of Python, so only its ratios are meaningful.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.command import cpu_milliseconds
from benchmarks.papers.pmjoin.operators import Operator
from benchmarks.papers.pmjoin.partitioners import Group
from benchmarks.papers.pmjoin.rates import Mask, RatesByValue

#: A tuple: what it is a join of, its value, and where it is.
Tuple = tuple[Mask, int, int]


#: Times that a second is routed.
ROUNDS = 99


@dataclass(frozen=True, slots=True)
class Routed:
    """A second of stream time.

    Attributes:
        tuples: routed ones. ``sent``: the ones sent to another host.
        milliseconds: of CPU, median.
    """

    tuples: int
    sent: int
    milliseconds: float


def route(rates: RatesByValue, groups: Sequence[Group], seed: int) -> Routed:
    """Route a second's tuples by the plans of ``groups``."""
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
    # In the order of arrival groups alternate.
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
    """Each input of an operator, and the host of that operator."""
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
