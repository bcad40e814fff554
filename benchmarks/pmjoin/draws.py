"""Random streams of PMJoin's experiments: the arrival rate of each value of a key (section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


#: Default number of values of a key.
VALUES = 1000


@dataclass(frozen=True, slots=True)
class Kind:
    """Distribution of the rates of values.

    Attributes:
        similar: whether all streams have Zipf distributions with exponents from 0.1 to 0.3; else
            any distributions.
        contiguous: whether frequent values are next to each other; else they are anywhere.
    """

    similar: bool
    contiguous: bool = True

    def __str__(self) -> str:
        spot = "contiguous" if self.contiguous else "random"
        return f"{'similar' if self.similar else 'different'}, {spot} hot spots"


KINDS = [Kind(similar, contiguous) for contiguous in (True, False) for similar in (True, False)]


@dataclass(frozen=True, slots=True)
class Reading:
    """Assumptions on streams about which the paper says nothing.

    Attributes:
        deviations: least and greatest standard deviation of normal distributions, as shares of the
            range of values; drawn uniformly or, if ``even`` is false, with uniform logarithms.
        by_parameter: whether each distribution with each parameter (in tenths) has the same
            probability; else each family has.
        shifted: whether the contiguous hot spots of streams are at different places; else where the
            paper defines them.
        geometric: whether the streams' rates are a geometric series from 10 to 1,000; else they are
            drawn uniformly between these.
    """

    deviations: tuple[float, float] = (0.05, 0.5)
    even: bool = True
    by_parameter: bool = False
    shifted: bool = False
    geometric: bool = False


#: As the paper says, normal distributions have their mean in the middle, and others begin with
#: their frequent values; the other assumptions are ours.
OURS = Reading()
_FAMILIES = ("uniform", "normal", "zipf", "self-similar")
#: The distributions with their parameters: Zipf with exponents 0.1, 0.2 ... 1.5, self-similar with
#: 0.1 ... 0.9, and nine normal ones.
_BY_PARAMETER = ("uniform", *["normal"] * 9, *["zipf"] * 15, *["self-similar"] * 9)


def weights(rng: np.random.Generator, values: int, kind: Kind, reading: Reading = OURS) -> Floats:
    """Draw the share of each value in a stream's tuples."""
    number = np.arange(1, values + 1, dtype=np.float64)
    choices = _BY_PARAMETER if reading.by_parameter else _FAMILIES
    which = "zipf" if kind.similar else rng.choice(choices)
    if which == "uniform":
        found = np.ones(values)
    elif which == "normal":
        low, high = reading.deviations
        part = (
            rng.uniform(low, high)
            if reading.even
            else np.exp(rng.uniform(np.log(low), np.log(high)))
        )
        found = np.exp(-(((number - values / 2) / (values * part)) ** 2) / 2)
    elif which == "zipf":
        found = number ** -rng.uniform(0.1, 0.3 if kind.similar else 1.5)
    else:
        # The first h * n values have the share 1 - h of the tuples, and so on recursively within
        # these.
        h = rng.uniform(0.1, 0.9)
        ends = (np.arange(values + 1) / values) ** (np.log(1 - h) / np.log(h))
        found = np.diff(ends)
    total: Floats = found / found.sum()
    return total


def drawn(
    rng: np.random.Generator,
    kind: Kind,
    rates: Sequence[float],
    seconds: Sequence[float],
    values: int = VALUES,
    reading: Reading = OURS,
) -> tuple[Floats, Floats]:
    """Return rates and windows by stream and value. Random hot spots differ between streams if
    distributions do, else all streams have the same.
    """
    common = rng.permutation(values)
    rows = []
    for rate in rates:
        part = weights(rng, values, kind, reading)
        if not kind.contiguous:
            part = part[common if kind.similar else rng.permutation(values)]
        elif reading.shifted and not kind.similar:
            part = np.roll(part, int(rng.integers(values)))
        rows.append(rate * part)
    found = np.array(rows)
    return found, found * np.array(seconds)[:, None]


def rates_of(rng: np.random.Generator, count: int, reading: Reading = OURS) -> list[float]:
    """Draw the tuples per second of streams, "varying from 10 to 1000"."""
    if reading.geometric:
        return list(rng.permutation(np.geomspace(10, 1000, count)))
    return list(rng.uniform(10, 1000, count))
