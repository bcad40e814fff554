"""StreamJoinOpt, PMJoin's heuristic (Algorithm 1): slow streams travel to fast ones.

Eq. 4 as printed adds the rate of ``Sigma_p`` joined with ``S_i``; what its text and example compute
is ``Sigma_p`` joined with ``S_j``.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers.pmjoin.operators import Operator, arrivals, joined
from benchmarks.papers.pmjoin.rates import Mask, Rates


def stream_join_opt(rates: Rates, sites: Sequence[int]) -> Operator:
    """The plan that the heuristic finds, in O(n^2) rates of joins.

    Args:
        sites: the host at which each stream arrives.
    """
    return _placed(rates, _reduced(rates, arrivals(sites)))


def simple(rates: Rates, sites: Sequence[int]) -> Operator:
    """All streams are sent to the host of the fastest."""
    streams = arrivals(sites)
    fastest = max(streams, key=lambda one: (rates.rate(one.streams), -one.streams))
    return joined(fastest.host, streams) if len(streams) > 1 else fastest


def local(rates: Rates, sites: Sequence[int]) -> Operator:
    """As the heuristic, but streams of one host that can be joined there are, whatever they bring
    (the rival of PMJoin's Fig. 7).
    """
    return _placed(rates, _reduced(rates, arrivals(sites), always=True))


def _reduced(rates: Rates, streams: Sequence[Operator], *, always: bool = False) -> list[Operator]:
    """Lines 2 to 9: joins on the host of both sides that bring less than the slower of them."""
    found: list[Operator] = []
    for host in sorted({one.host for one in streams}):
        here = [one for one in streams if one.host == host]
        here.sort(key=lambda one: (rates.rate(one.streams), one.streams))
        at = 0
        while at < len(here):
            other = at + 1
            while other < len(here):
                one, two = here[at], here[other]
                if rates.joinable(one.streams, two.streams) and (
                    always or rates.rate(one.streams | two.streams) < rates.rate(one.streams)
                ):
                    here[at] = joined(host, (one, two))
                    del here[other]
                else:
                    other += 1
            at += 1
        found += here
    return found


def _placed(rates: Rates, left: list[Operator]) -> Operator:
    """Lines 10 to 29: all that is ``left``, the slowest first."""
    while len(left) > 1:
        left.sort(key=lambda one: (rates.rate(one.streams), one.streams))
        left.append(_settled(rates, left))
    return left[0]


def _settled(rates: Rates, left: list[Operator]) -> Operator:
    """Lines 12 to 27: begin with the slowest and take others along, until a host is chosen.

    Takes them out of ``left``, which is sorted.
    """
    pending = [left.pop(0)]
    streams: Mask = pending[0].streams
    while True:
        near = [one for one in left if rates.joinable(streams, one.streams)]
        sent = sum(rates.rate(one.streams) for one in pending)
        best, there, cheapest = near[0], True, float("inf")
        for one in near:
            to_it = sum(rates.rate(p.streams) for p in pending if p.host != one.host)
            to_it += rates.rate(streams | one.streams)
            elsewhere = sent + rates.rate(one.streams)
            if min(to_it, elsewhere) < cheapest:
                best, there, cheapest = one, to_it <= elsewhere, min(to_it, elsewhere)
        left.remove(best)
        pending.append(best)
        streams |= best.streams
        # With the last stream there is no third host to wait for.
        if there or not left:
            return joined(best.host, pending)
