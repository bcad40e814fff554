"""Skewness and kurtosis of groups, from exact sums of powers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, nan, sqrt

import numpy as np
import pyarrow as pa

from anabranch_runtime.columns.arrays import Bools, Floats, Ints
from anabranch_runtime.tables import sums


def higher_moments(state: Ints, count: int, powers: Sequence[int]) -> pa.Array:
    """Return the skewness of each group, or with four powers the kurtosis; NULL for groups whose
    values are all equal.

    Args:
        count: position of the number of values. ``powers``: positions of the sums of their powers,
            from the first on.
    """
    totals: Floats = np.empty((len(powers), len(state)))
    for row, at in enumerate(powers):
        sums.float_sums(state.view(np.uint64), state.view(np.float64), at, totals[row])
    known: Bools = np.logical_and.reduce(np.isfinite(totals))
    found = [
        _moment(int(row[count]), [exact(row, at) for at in powers]) if finite else nan
        for row, finite in zip(state, known.tolist(), strict=True)
    ]
    return pa.array([None if n == 0 else x for n, x in zip(state[:, count], found, strict=True)],
                    pa.float64())  # fmt: skip


def exact(row: Ints, at: int) -> Fraction:
    """Return the exact value of the float sum at word ``at`` of a state row."""
    fixed = int.from_bytes(row[at : at + sums.FIXED].tobytes(), "little", signed=True)
    beside = row[at + sums.FIXED : at + sums.FIXED + 2].view(np.float64)
    return Fraction(fixed, 2**-sums.LAST_BIT) + sum((Fraction(v) for v in beside), Fraction())


def _moment(n: int, powers: list[Fraction]) -> float | None:
    if n <= 1:
        return None
    mean = powers[0] / n
    second = powers[1] / n - mean**2
    if second <= 0:
        return None
    third = powers[2] / n - 3 * mean * powers[1] / n + 2 * mean**3
    if len(powers) == 3:
        # The square of the skewness is rational.
        square = third**2 / second**3
        return (1 if third > 0 else -1) * sqrt(_float(square))
    fourth = powers[3] / n - 4 * mean * powers[2] / n + 6 * mean**2 * powers[1] / n - 3 * mean**4
    return _float(fourth / second**2 - 3)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf
