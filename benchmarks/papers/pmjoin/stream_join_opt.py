"""StreamJoinOpt, PMJoin's placement heuristic (Algorithm 1): slow streams are sent to fast ones.

Eq. 4 as printed adds the rate of ``Sigma_p`` joined with ``S_i``; according to its text and example
it should be ``Sigma_p`` joined with ``S_j``, as here.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers.pmjoin.operators import Operator, arrivals, joined
from benchmarks.papers.pmjoin.rates import Mask, Rates


def stream_join_opt(rates: Rates, sites: Sequence[int]) -> Operator:
    """Return the plan of the heuristic, after O(n^2) computations of a join's rate.

    Args:
        sites: the host at which each stream arrives.
    """
    return _placed(rates, _reduced(rates, arrivals(sites)))


def simple(rates: Rates, sites: Sequence[int]) -> Operator:
    """Return the plan that sends all streams to the host of the fastest stream."""
    streams = arrivals(sites)
    fastest = max(streams, key=lambda one: (rates.rate(one.streams), -one.streams))
    return joined(fastest.host, streams) if len(streams) > 1 else fastest


def local(rates: Rates, sites: Sequence[int]) -> Operator:
    """Return the heuristic's plan, except that joinable streams of one host are always joined
    there, whatever the rate of the result (the rival in PMJoin's Fig. 7).
    """
    return _placed(rates, _reduced(rates, arrivals(sites), always=True))


def _reduced(rates: Rates, streams: Sequence[Operator], *, always: bool = False) -> list[Operator]:
    """Lines 2 to 9: join streams of a host if the result's rate is below that of the slower one."""
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
    """Lines 10 to 29: place the joins of all streams in ``left``, the slowest first."""
    while len(left) > 1:
        left.sort(key=lambda one: (rates.rate(one.streams), one.streams))
        left.append(_settled(rates, left))
    return left[0]


def _settled(rates: Rates, left: list[Operator]) -> Operator:
    """Lines 12 to 27: begin with the slowest stream and add others, until a host is chosen.

    The streams are removed from ``left``, which is sorted.
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
        # If no stream is left, the join must be placed on this host.
        if there or not left:
            return joined(best.host, pending)
