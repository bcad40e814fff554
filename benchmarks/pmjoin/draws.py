"""Streams of PMJoin's experiments: how often each value of a key arrives (section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


#: Values of a key, where nothing else is said.
VALUES = 1000


@dataclass(frozen=True, slots=True)
class Kind:
    """How the rates of values are drawn.

    Attributes:
        similar: all streams follow Zipf distributions of exponents 0.1 to 0.3; else any.
        contiguous: frequent values are next to each other; else anywhere.
    """

    similar: bool
    contiguous: bool = True

    def __str__(self) -> str:
        spot = "contiguous" if self.contiguous else "random"
        return f"{'similar' if self.similar else 'different'}, {spot} hot spots"


KINDS = [Kind(similar, contiguous) for contiguous in (True, False) for similar in (True, False)]


@dataclass(frozen=True, slots=True)
class Reading:
    """Assumptions on streams where the paper is silent.

    Attributes:
        deviations: of normal distributions, from and to, as parts of the range of values; drawn
            evenly, or their logarithm where ``even`` is false.
        by_parameter: each distribution with each parameter (tenths) is as likely as any other;
            else each family is.
        shifted: each stream has its contiguous hot spot elsewhere; else where the paper defines it.
        geometric: rates are a geometric series from 10 to 1,000; else drawn evenly between these.
    """

    deviations: tuple[float, float] = (0.05, 0.5)
    even: bool = True
    by_parameter: bool = False
    shifted: bool = False
    geometric: bool = False


#: Normal distributions have their mean in the middle and others begin with their frequent values,
#: as the paper says; the rest is ours.
OURS = Reading()
_FAMILIES = ("uniform", "normal", "zipf", "self-similar")
#: Zipf's exponents are 0.1, 0.2 ... 1.5, self-similar ones 0.1 ... 0.9; as many normal ones.
_BY_PARAMETER = ("uniform", *["normal"] * 9, *["zipf"] * 15, *["self-similar"] * 9)


def weights(rng: np.random.Generator, values: int, kind: Kind, reading: Reading = OURS) -> Floats:
    """The part of a stream's tuples that each value has."""
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
        # The first h * n values have the part 1 - h of the weight, and so on within these.
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
    """Rates and windows by stream and value; random hot spots are each stream's own where streams
    differ, else common to all.
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
    """Tuples per second of streams, "varying from 10 to 1000"."""
    if reading.geometric:
        return list(rng.permutation(np.geomspace(10, 1000, count)))
    return list(rng.uniform(10, 1000, count))
