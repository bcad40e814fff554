"""Optimal placement of a join: a dynamic program over sets of streams and hosts.

Let ``ready(X, h)`` be the least cost of having all streams of ``X`` at host ``h``, joined or in any
pieces, and ``made(X, h)`` the least cost of joining ``X`` there:

    made(X, h)  = min over parts A, B of X of  ready(A, h) + ready(B, h)
    ready(X, h) = min(made(X, h),  rate(X) + min over h' of made(X, h'))      X connected

A join on the host of its inputs is free, so a set in pieces need not be connected. Every tree of
placed operators corresponds to such choices. There are 3^n additions per host.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.errors import PlannerError
from benchmarks.papers.pmjoin.operators import Operator, arrivals, joined
from benchmarks.papers.pmjoin.rates import Mask, Rates, connected

#: Maximum number of streams; more would take over ten seconds.
MAX_STREAMS = 14


def exact(rates: Rates, sites: Sequence[int]) -> Operator:
    """Return a plan of least cost.

    Args:
        sites: the host at which each stream arrives. Other hosts need not be considered: instead of
            to a host without arrivals, tuples can be sent to a host at which one of the joined
            streams arrives.

    Raises:
        PlannerError: there are too many streams.
    """
    if len(sites) > MAX_STREAMS:
        raise PlannerError(
            "too-many-streams",
            f"{len(sites)} streams are placed, and an exact search takes {MAX_STREAMS}",
            remedy="use streamjoinopt",
        )
    return _Search(rates, sites).plan()


class _Search:
    def __init__(self, rates: Rates, sites: Sequence[int]) -> None:
        self.sites = sites
        self.hosts = sorted(set(sites))
        total = 1 << len(sites)
        self.made = np.full((total, len(self.hosts)), np.inf)
        self.ready = np.full((total, len(self.hosts)), np.inf)
        self.ready[0] = 0.0
        #: Host on which each set is joined before it is sent; -1: the set is not connected.
        self.source = np.full(total, -1)
        for streams in range(1, total):
            self._add(rates, streams)

    def _add(self, rates: Rates, streams: Mask) -> None:
        if streams & (streams - 1):
            parts = _parts(streams)
            self.made[streams] = (self.ready[parts] + self.ready[streams ^ parts]).min(axis=0)
        else:
            site = self.sites[streams.bit_length() - 1]
            self.made[streams, self.hosts.index(site)] = 0.0
        self.ready[streams] = self.made[streams]
        if connected(rates, streams):
            self.source[streams] = source = int(self.made[streams].argmin())
            sent = self.made[streams, source] + rates.rate(streams)
            self.ready[streams] = np.minimum(self.ready[streams], sent)

    def plan(self) -> Operator:
        whole = len(self.ready) - 1
        return self._made(whole, int(self.made[whole].argmin()))

    def _made(self, streams: Mask, at: int) -> Operator:
        pieces = self._pieces(streams, at)
        return pieces[0] if len(pieces) == 1 else joined(self.hosts[at], pieces)

    def _pieces(self, streams: Mask, at: int) -> list[Operator]:
        """Return the plans whose results are joined at host ``at``."""
        if not streams & (streams - 1):
            return [arrivals(self.sites)[streams.bit_length() - 1]]
        parts = _parts(streams)
        costs = self.ready[parts, at] + self.ready[streams ^ parts, at]
        one = int(parts[costs.argmin()])
        return [*self._there(one, at), *self._there(streams ^ one, at)]

    def _there(self, streams: Mask, at: int) -> list[Operator]:
        if self.made[streams, at] <= self.ready[streams, at]:
            return self._pieces(streams, at)
        return [self._made(streams, int(self.source[streams]))]


def _parts(streams: Mask) -> NDArray[np.int64]:
    """Yield the proper subsets of ``streams`` that contain its lowest stream."""
    lowest = streams & -streams
    rest = streams ^ lowest
    found, part = [], rest
    while part:
        part = (part - 1) & rest
        found.append(part | lowest)
    return np.array(found, np.int64)
