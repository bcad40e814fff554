"""A placed plan: operators, each on a host, over streams and the results of other operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.papers.pmjoin.rates import Mask, Rates


@dataclass(frozen=True, slots=True)
class Operator:
    """A stream where it arrives, or a join of all its inputs (an MJoin) on one host.

    Attributes:
        streams: that it is over.
        host: where it is, and where what it brings is.
        inputs: of a join, two or more; the last, PMJoin's right child, is on ``host`` if any is,
            and is a stream if a stream is there.
    """

    streams: Mask
    host: int
    inputs: tuple[Operator, ...] = ()

    def label(self, names: Sequence[str], hosts: Sequence[str]) -> str:
        """The plan as text.

        >>> plan = Operator(3, 1, (Operator(1, 0), Operator(2, 1)))
        >>> plan.label(["R", "S"], ["n0", "n1"])
        '(R ⋈ S)@n1'
        """
        if not self.inputs:
            return names[self.streams.bit_length() - 1]
        inside = " ⋈ ".join(one.label(names, hosts) for one in self.inputs)
        return f"({inside})@{hosts[self.host]}"


def arrivals(sites: Sequence[int]) -> list[Operator]:
    """The streams where they arrive; ``sites``: the host of each."""
    return [Operator(1 << number, host) for number, host in enumerate(sites)]


def joined(host: int, inputs: Sequence[Operator]) -> Operator:
    """The join of ``inputs`` on ``host``."""
    ordered = sorted(inputs, key=lambda one: (one.host == host, not one.inputs, one.streams))
    streams = 0
    for one in inputs:
        streams |= one.streams
    return Operator(streams, host, tuple(ordered))


def cost(plan: Operator, rates: Rates) -> float:
    """Rate of tuples that the plan sends between hosts, in units of ``rates`` per second."""
    total = 0.0
    for one in plan.inputs:
        total += cost(one, rates)
        if one.host != plan.host:
            total += rates.rate(one.streams)
    return total
