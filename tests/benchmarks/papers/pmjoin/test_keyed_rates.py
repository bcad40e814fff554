"""Compare PMJoin's rates by several keys with counting over all combinations of the
keys' values.
"""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from benchmarks.papers.pmjoin.keyed_rates import KeyedRates, by_input, key_masks
from benchmarks.papers.pmjoin.rates import members, windowed


def drawn(seed: int) -> KeyedRates:
    """Return random rates of four streams; keys a: 0 1 2, b: 1 3, of three and of two values."""
    rng = np.random.default_rng(seed)
    shares = [
        {stream: rng.dirichlet(np.ones(values)) for stream in having}
        for having, values in (((0, 1, 2), 3), ((1, 3), 2))
    ]
    return KeyedRates(list(rng.uniform(1, 9, 4)), list(rng.uniform(1, 9, 4)), shares)


def counted(rates: KeyedRates, streams: int, value: int | None = None) -> float:
    """The rate by Eq. 2, summed over each combination of values; ``value``: of the first key."""
    inside, total = members(streams), 0.0
    for last in inside:
        for values in product(*(range(3) if key == 0 else range(2) for key in (0, 1))):
            if value is not None and values[0] != value:
                continue
            brought = 1.0
            for one in inside:
                brought *= rates.rates[one] if one == last else rates.windows[one]
                for key, shares in enumerate(rates.shares):
                    if one in shares and sum(other in shares for other in inside) > 1:
                        brought *= shares[one][values[key]]
            total += brought
    free = [
        len(next(iter(shares.values())))
        for shares in rates.shares
        if sum(one in shares for one in inside) < 2
    ]
    # A key that does not join these streams was counted once per value.
    return total / float(np.prod(free))


@pytest.mark.parametrize("seed", range(20))
def test_rates_are_those_of_all_combinations_of_values(seed: int) -> None:
    rates = drawn(seed)
    assert key_masks(rates.shares) == (0b0111, 0b1010)
    for streams in (0b0001, 0b0011, 0b0110, 0b0111, 0b1010, 0b1011, 0b1111):
        assert rates.rate(streams) == pytest.approx(counted(rates, streams))


@pytest.mark.parametrize("seed", range(20))
def test_rates_by_value_of_a_result_that_another_key_joins(seed: int) -> None:
    rates = drawn(seed)
    inputs = (0b0001, 0b1010, 0b0100)
    found = by_input(rates, rates.shares[0], inputs)
    assert (found.count, found.values) == (3, 3)
    for some in (0b011, 0b101, 0b110, 0b111):
        union = sum(inputs[one] for one in members(some))
        assert found.rate(some) == pytest.approx(rates.rate(union))
        assert found.each(some) == pytest.approx([counted(rates, union, v) for v in range(3)])
        part = found.of(np.array([0, 2]))
        assert part.rate(some) == pytest.approx(found.each(some)[[0, 2]].sum())
    assert found.arriving.sum(axis=1) == pytest.approx([rates.rate(one) for one in inputs])


def test_of_one_key_they_are_the_rates_by_value() -> None:
    rng = Random(3)
    arriving = np.array([[rng.uniform(0, 9) for _ in range(5)] for _ in range(3)])
    windows = arriving * np.array([[2.0], [3.0], [5.0]])
    whole = windowed(arriving, windows)
    shares = [{one: arriving[one] / arriving[one].sum() for one in range(3)}]
    keyed = KeyedRates(list(arriving.sum(axis=1)), list(windows.sum(axis=1)), shares)
    found = by_input(keyed, shares[0], (1, 2, 4))
    for streams in range(1, 8):
        assert found.each(streams) == pytest.approx(whole.each(streams))
        assert found.rate(streams) == pytest.approx(whole.rate(streams))


def test_inputs_whose_values_never_meet_bring_nothing() -> None:
    shares = [{0: np.array([1.0, 0.0]), 1: np.array([0.0, 1.0])}]
    found = by_input(KeyedRates([5.0, 5.0], [9.0, 9.0], shares), shares[0], (1, 2))
    assert found.rate(0b11) == 0
    assert found.each(0b11).tolist() == [0, 0]
