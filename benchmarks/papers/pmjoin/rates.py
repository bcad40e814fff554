"""Rates of joins of streams by PMJoin's model (Eq. 2 and 3), unfolded.

A stream ``i`` has ``rate_i`` tuples per second and ``window_i`` tuples in its window. A join of a
set ``X`` produces a result when the last member of the result arrives:

    window(X) = f(X) * product of window_i
    rate(X)   = f(X) * sum over i of  rate_i * product of the other windows

``f`` is the selectivity. Neither depends on the order of the joins. Sets of streams are bit masks:
bit ``i`` is stream ``i``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


#: A set of streams as a bit mask.
Mask = int


class Rates(Protocol):
    """Interface: rates of joins of streams, which are numbered from 0."""

    def rate(self, streams: Mask) -> float:
        """Return the rate of the join of ``streams``, in units (tuples or bytes) per second."""

    def joinable(self, one: Mask, other: Mask) -> bool:
        """Whether a predicate links two disjoint sets of streams."""


class RatesByValue(Rates, Protocol):
    """Interface: rates of streams that are joined by one key, value by value."""

    @property
    def count(self) -> int:
        """Number of streams."""

    @property
    def values(self) -> int:
        """Number of values of the key."""

    @property
    def arriving(self) -> Floats:
        """Array stream x value of arrival rates."""

    def each(self, streams: Mask) -> Floats:
        """Return the units per second of the join of ``streams``, by value."""

    def of(self, values: NDArray[np.int64]) -> RatesByValue:
        """Return the rates restricted to some values."""


def members(streams: Mask) -> list[int]:
    """Return the numbers of the streams in a set.

    >>> members(0b1101)
    [0, 2, 3]
    """
    return [number for number in range(streams.bit_length()) if streams >> number & 1]


def connected(rates: Rates, streams: Mask) -> bool:
    """Whether predicates link all of ``streams``, directly or through each other."""
    reached = streams & -streams
    left = streams ^ reached
    while left:
        near = sum(1 << one for one in members(left) if rates.joinable(reached, 1 << one))
        if not near:
            return False
        reached |= near
        left &= ~near
    return True


@dataclass(frozen=True)
class GraphRates:
    """Streams whose joins have stated selectivities.

    Attributes:
        rates, windows: tuples per second of each stream, and tuples in its window.
        selectivities: (stream, stream) -> selectivity of their predicates; other pairs have none.
    """

    rates: Sequence[float]
    windows: Sequence[float]
    selectivities: Mapping[tuple[int, int], float]

    def rate(self, streams: Mask) -> float:
        """Return the tuples per second of the join of ``streams``."""
        inside = members(streams)
        factor = 1.0
        for (one, other), selectivity in self.selectivities.items():
            if streams >> one & 1 and streams >> other & 1:
                factor *= selectivity
        arriving = 0.0
        for last in inside:
            product = self.rates[last]
            for other in inside:
                product *= 1.0 if other == last else self.windows[other]
            arriving += product
        return factor * arriving

    def joinable(self, one: Mask, other: Mask) -> bool:
        """Whether there is a predicate between the two sets."""
        return any(
            (one >> a & 1 and other >> b & 1) or (one >> b & 1 and other >> a & 1)
            for a, b in self.selectivities
        )


@dataclass(frozen=True)
class ValueRates:
    """Rates of streams that are joined by one key, value by value: tuples match if the values are
    equal.

    Attributes:
        by_value: set of streams (a bit mask) x value -> units per second of their join.
    """

    by_value: Floats

    @property
    def arriving(self) -> Floats:
        """Array stream x value of arrival rates."""
        found: Floats = self.by_value[[1 << one for one in range(self.count)]]
        return found

    @property
    def count(self) -> int:
        """Number of streams."""
        return len(self.by_value).bit_length() - 1

    @property
    def values(self) -> int:
        """Number of values of the key."""
        return int(self.by_value.shape[1])

    def rate(self, streams: Mask) -> float:
        """Return the units per second of the join of ``streams``, over all values."""
        return float(self.by_value[streams].sum())

    def each(self, streams: Mask) -> Floats:
        """Return the units per second of the join of ``streams``, by value."""
        found: Floats = self.by_value[streams]
        return found

    def joinable(self, one: Mask, other: Mask) -> bool:
        """Whether two sets of streams are joined by the key: always, unless one is empty."""
        return bool(one and other)

    def of(self, values: NDArray[np.int64]) -> ValueRates:
        """Return the rates restricted to some values."""
        return ValueRates(self.by_value[:, values])


def windowed(rates: Floats, windows: Floats, widths: Sequence[float] | None = None) -> ValueRates:
    """Return the rates of streams with windows, by Eq. 2 and 3 with a selectivity of 1.

    Args:
        rates, windows: arrays stream x value of tuples per second, and of tuples in the window.
        widths: bytes per tuple of each stream; a result has their sum. None: units are tuples.
    """
    total = 1 << len(rates)
    brings = np.zeros((total, rates.shape[1]))
    stored = np.ones_like(brings)
    for streams in range(1, total):
        # Extend the product for the set without its last stream.
        last = streams.bit_length() - 1
        rest = streams ^ (1 << last)
        stored[streams] = stored[rest] * windows[last]
        brings[streams] = brings[rest] * windows[last] + stored[rest] * rates[last]
    if widths is not None:
        wide = [sum(widths[one] for one in members(streams)) for streams in range(total)]
        brings *= np.array(wide)[:, None]
    return ValueRates(brings)
