"""Rates of joins of streams by several keys, for each value of one of the keys (PMJoin).

Keys are assumed to be independent of each other within a stream, as everywhere in the cost model.
Then the share of a join's results with the value ``v`` of a key is

    product of share_i(v)  /  sum over all values of that product      over the i in X with the key

for a join ``X``, whatever its other keys. ``share_i(v)`` is the share of stream ``i``'s tuples with
the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.pmjoin.rates import Floats, Mask, Rates, members


@dataclass(frozen=True)
class KeyedRates:
    """Streams with windows that are joined by keys whose values have known shares (Eq. 2 and 3).

    Attributes:
        rates, windows: tuples per second of each stream, and tuples in its window.
        shares: for each key: stream that has it -> the shares of its tuples by value.
    """

    rates: Sequence[float]
    windows: Sequence[float]
    shares: Sequence[Mapping[int, Floats]]
    _known: dict[Mask, float] = field(default_factory=dict, compare=False, repr=False)
    _selectivities: dict[tuple[int, Mask], float] = field(
        default_factory=dict, compare=False, repr=False
    )

    def rate(self, streams: Mask) -> float:
        """Return the tuples per second of the join of ``streams``."""
        found = self._known.get(streams)
        if found is None:
            found = self._known[streams] = self._rate(streams)
        return found

    def _rate(self, streams: Mask) -> float:
        inside = members(streams)
        stored, arriving = 1.0, 0.0
        for one in inside:
            arriving = arriving * self.windows[one] + stored * self.rates[one]
            stored *= self.windows[one]
        for number, key in enumerate(key_masks(self.shares)):
            joined = streams & key
            if joined & (joined - 1):
                arriving *= self._matching(number, joined)
        return arriving

    def _matching(self, key: int, streams: Mask) -> float:
        """Return the share of the combinations of tuples whose values of a key are equal."""
        found = self._selectivities.get((key, streams))
        if found is None:
            shares = [self.shares[key][one] for one in members(streams)]
            found = self._selectivities[key, streams] = float(np.prod(shares, axis=0).sum())
        return found

    def joinable(self, one: Mask, other: Mask) -> bool:
        """Whether some key has streams in both sets."""
        return any(one & key and other & key for key in key_masks(self.shares))


def key_masks(shares: Sequence[Mapping[int, Floats]]) -> tuple[Mask, ...]:
    """Return the set of streams that have each key.

    >>> key_masks([{0: np.ones(1), 2: np.ones(1)}])
    (5,)
    """
    return tuple(sum(1 << stream for stream in having) for having in shares)


@dataclass(frozen=True)
class InputRates:
    """Rates of joins of ``inputs`` (streams, or results of other joins) by one key, value by value.

    Sets of inputs are bit masks of positions.

    Attributes:
        rates: rates of joins of streams. ``inputs``: the streams of each input.
        shares: input x value -> the product of its streams' shares.
        total: set of inputs -> tuples per second of their join, divided by the sum of the product
            of their shares over all values; filled in on first use.
    """

    rates: Rates
    inputs: tuple[Mask, ...]
    shares: Floats
    total: dict[Mask, float]
    _products: dict[Mask, Floats] = field(default_factory=dict, compare=False, repr=False)

    @property
    def count(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    @property
    def values(self) -> int:
        """Number of values of the key."""
        return int(self.shares.shape[1])

    @property
    def arriving(self) -> Floats:
        """Array input x value of arrival rates."""
        return np.array([self.each(1 << one) for one in range(self.count)])

    def each(self, streams: Mask) -> Floats:
        """Return the tuples per second of the join of some inputs, by value."""
        return self.total[streams] * self._product(streams)

    def rate(self, streams: Mask) -> float:
        """Return the tuples per second of the join of some inputs, over all values."""
        return float(self.total[streams] * self._product(streams).sum())

    def joinable(self, one: Mask, other: Mask) -> bool:
        """Whether two sets of inputs are joined by the key: always, unless one is empty."""
        return bool(one and other)

    def of(self, values: NDArray[np.int64]) -> InputRates:
        """Return the rates restricted to some values."""
        return InputRates(self.rates, self.inputs, self.shares[:, values], self.total)

    def _product(self, streams: Mask) -> Floats:
        found = self._products.get(streams)
        if found is None:
            last = streams.bit_length() - 1
            rest = streams ^ (1 << last)
            found = self.shares[last] if not rest else self._product(rest) * self.shares[last]
            self._products[streams] = found
        return found


class _Totals(dict[int, float]):
    """Cache of ``InputRates.total``: a missing entry is computed."""

    def __init__(self, rates: Rates, inputs: Sequence[Mask], shares: Floats) -> None:
        super().__init__()
        self.rates, self.inputs, self.shares = rates, inputs, shares

    def __missing__(self, streams: Mask) -> float:
        inside = members(streams)
        matching = float(np.prod(self.shares[inside], axis=0).sum())
        union = sum(self.inputs[one] for one in inside)
        found = self[streams] = self.rates.rate(union) / matching if matching > 0 else 0.0
        return found


def by_input(rates: Rates, shares: Mapping[int, Floats], inputs: Sequence[Mask]) -> InputRates:
    """Return the rates of joins of ``inputs`` by the values of a key that every input has.

    Args:
        rates: rates of joins of streams.
        shares: stream that has the key -> the shares of its tuples by value.
        inputs: disjoint sets of streams.
    """
    rows = [
        np.prod([shares[stream] for stream in members(one) if stream in shares], axis=0)
        for one in inputs
    ]
    found = np.array(rows)
    # Rows can be scaled arbitrarily, since only the ratios of values matter.
    found /= found.sum(axis=1, keepdims=True).clip(min=np.finfo(float).tiny)
    return InputRates(rates, tuple(inputs), found, _Totals(rates, inputs, found))
