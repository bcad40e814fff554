"""Cheapest probe orders of an operator by dynamic programming over sets of visited streams.

**Why it is exact.** The cost of the remaining steps is determined by the start and the set ``V`` of
visited streams: ``C(V) = min over steps (l, r) of own + factor * C(V + r)``, ``C(all) = 0``;
factors are not negative. So the cheapest order is a shortest path in the graph of connected sets.
If selectivities do not depend on the start, one table serves all starts.

Sets of one size form a layer, which is processed as arrays. Ties go to the lower target, then to
the lower probing side. O(n 2^n) selectivities are computed if they do not depend on the probing
side, else O(n^2 2^n), for connected sets only (a chain of n streams has n (n+1) / 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from anabranch_contract.errors import PlannerError
from benchmarks.papers.dppick.figures import Flags, Masks
from benchmarks.papers.dppick.problem import Accounting, Operator

#: Maximum number of streams for which the tables of all sets fit into memory (some 300 MB).
MAX_STREAMS = 20


def exact_orders(operator: Operator) -> tuple[tuple[int, ...], ...]:
    """Return the cheapest order of each start, as a list of targets.

    Raises:
        PlannerError: there are more than :data:`MAX_STREAMS` streams.
    """
    streams = len(operator.names)
    if streams > MAX_STREAMS:
        raise PlannerError(
            "too-many-streams",
            f"{streams} streams are more than the {MAX_STREAMS} of an exact search",
            field="algorithm",
            remedy="use greedy",
        )
    if operator.figures.by_start:
        return tuple(_orders(operator, (start,))[0] for start in range(streams))
    return _orders(operator, range(streams))


def _orders(operator: Operator, starts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the orders of ``starts``, computed with the selectivities of the first one."""
    streams = len(operator.names)
    cost = np.zeros(1 << streams)
    choice = np.zeros(1 << streams, dtype=np.int8)
    bits = np.int64(1) << np.arange(streams, dtype=np.int64)
    prices = operator.prices
    query = prices.query * np.array([prices.lookup(k) for k in operator.keys], dtype=np.float64)
    for masks, around in reversed(_layers(operator, starts)[:-1]):
        best = np.full((len(masks), streams), np.inf)
        for rows, side, allowed in _sides(operator, masks, around):
            sets = masks[rows]
            gamma, mu = operator.figures.many(starts[0], sets, side, allowed)
            mean = gamma * mu
            factor = mean if operator.accounting is Accounting.TUPLE else gamma
            found = factor * cost[sets[:, None] | bits] + (query + prices.match * mean)
            best[rows] = np.minimum(best[rows], np.where(allowed, found, np.inf))
        choice[masks] = best.argmin(axis=1)
        cost[masks] = best.min(axis=1)
    orders = []
    for start in starts:
        visited, order = 1 << start, []
        for _ in range(streams - 1):
            order.append(int(choice[visited]))
            visited |= 1 << order[-1]
        orders.append(tuple(order))
    return tuple(orders)


def _layers(operator: Operator, starts: Sequence[int]) -> list[tuple[Masks, Flags]]:
    """Return the connected sets around ``starts`` by size, with the streams to probe next."""
    streams = len(operator.names)
    bits = np.int64(1) << np.arange(streams, dtype=np.int64)
    near = np.array(operator.near, dtype=np.int64)
    masks = np.array([1 << start for start in starts], dtype=np.int64)
    layers = []
    for _ in range(streams):
        inside = (masks[:, None] & bits) != 0
        around = np.bitwise_or.reduce(np.where(inside, near, 0), axis=1)
        allowed = ((around & ~masks)[:, None] & bits) != 0
        layers.append((masks, allowed))
        reached = np.zeros(1 << streams, dtype=np.bool_)
        reached[(masks[:, None] | bits)[allowed]] = True
        masks = np.flatnonzero(reached).astype(np.int64)
    return layers


def _sides(operator: Operator, masks: Masks, around: Flags) -> Iterator[tuple[Masks, int, Flags]]:
    """Yield (rows of ``masks``, probing side, streams it may probe); one side if all are alike."""
    if not operator.figures.by_side:
        yield np.arange(len(masks)), 0, around
        return
    bits = np.int64(1) << np.arange(len(operator.names), dtype=np.int64)
    for side, near in enumerate(operator.near):
        rows = np.flatnonzero((masks >> side) & 1)
        if len(rows):
            yield rows, side, around[rows] & ((near & bits) != 0)
