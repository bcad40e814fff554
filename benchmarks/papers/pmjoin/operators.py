"""Placed plans of joins: operators, each on a host, over streams and results of other operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.papers.pmjoin.rates import Mask, Rates


@dataclass(frozen=True, slots=True)
class Operator:
    """A stream at the host where it arrives, or a join of all its inputs (an MJoin) on one host.

    Attributes:
        streams: set of the streams that it reads.
        host: host of the operator and of its output.
        inputs: two or more inputs of a join. If any inputs are on ``host``, the last input
            (PMJoin's right child) is one of them, and it is a stream if any of them is.
    """

    streams: Mask
    host: int
    inputs: tuple[Operator, ...] = ()

    def label(self, names: Sequence[str], hosts: Sequence[str]) -> str:
        """Return the plan as text.

        >>> plan = Operator(3, 1, (Operator(1, 0), Operator(2, 1)))
        >>> plan.label(["R", "S"], ["n0", "n1"])
        '(R ⋈ S)@n1'
        """
        if not self.inputs:
            return names[self.streams.bit_length() - 1]
        inside = " ⋈ ".join(one.label(names, hosts) for one in self.inputs)
        return f"({inside})@{hosts[self.host]}"


def arrivals(sites: Sequence[int]) -> list[Operator]:
    """Return the streams as operators at their hosts of arrival ``sites``."""
    return [Operator(1 << number, host) for number, host in enumerate(sites)]


def joined(host: int, inputs: Sequence[Operator]) -> Operator:
    """Return the join of ``inputs`` on ``host``."""
    ordered = sorted(inputs, key=lambda one: (one.host == host, not one.inputs, one.streams))
    streams = 0
    for one in inputs:
        streams |= one.streams
    return Operator(streams, host, tuple(ordered))


def cost(plan: Operator, rates: Rates) -> float:
    """Return the rate of tuples that the plan sends between hosts, in units of ``rates``."""
    total = 0.0
    for one in plan.inputs:
        total += cost(one, rates)
        if one.host != plan.host:
            total += rates.rate(one.streams)
    return total
