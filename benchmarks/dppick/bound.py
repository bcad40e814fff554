"""Upper bound of the savings by probe orders if keys are independent, calculated without a run.

Let ``n`` tuples of each input arrive evenly over the stream, with keys that are independent and
uniform over ``keys`` values. Let ``m`` be the rows with a key divided by ``keys``: the partners
that a probe finds at the end. A tuple that arrives at a share ``t`` of the stream finds ``t m``.
So the prefix of an order that has probed ``k`` inputs has ``n * m_1 ... m_k / (k + 1)`` partial
results over the whole stream (the mean of ``t^k``). They are the matches of its last step and the
probes of the next one. All orders end with the same results.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of ``rows`` of an input, and of its rows ``with_key`` (a key that is not NULL)."""

    rows: int
    with_key: int


@dataclass(frozen=True, slots=True)
class Saving:
    """Savings by the best orders, as shares of the mean and of the worst permutation's number of
    partial results; ``least``: number of partial results of the best orders.
    """

    mean: float
    worst: float
    least: float


def savings(sizes: Mapping[str, Size], keys: int) -> dict[str, Saving]:
    """Return the savings of ``probes``, and of probes and matches together (``both``).

    >>> even = {name: Size(100, 100) for name in "abcd"}
    >>> savings(even, 50)["probes"].worst
    0.0
    """
    each = [_sum(sizes, keys, permutation) for permutation in permutations(sizes)]
    # The best permutation probes the inputs with the fewest partners first.
    best = _sum(sizes, keys, sorted(sizes, key=lambda name: sizes[name].with_key))
    found = {}
    for name, at in (("probes", 0), ("both", 1)):
        of = [one[at] for one in each]
        mean = 1 - best[at] / statistics.fmean(of)
        found[name] = Saving(mean, 1 - best[at] / max(of), best[at])
    return found


def _sum(sizes: Mapping[str, Size], keys: int, permutation: Sequence[str]) -> tuple[float, float]:
    """Return the probes, and the sum of probes and matches, of the orders of a permutation."""
    probes = matches = 0.0
    for start, size in sizes.items():
        partners = 1.0
        probes += size.rows
        others = [name for name in permutation if name != start]
        for k, name in enumerate(others, 1):
            partners *= sizes[name].with_key / keys
            results = size.with_key * partners / (k + 1)
            matches += results
            probes += results if k < len(others) else 0.0
    return probes, probes + matches
