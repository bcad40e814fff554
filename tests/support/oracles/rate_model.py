"""PMJoin's rate model as printed (a recursion), and counts of joins one by one; the cost model's
closed form is compared with both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True, slots=True)
class Flow:
    """A stream or a join of streams: tuples per unit of time, and tuples in its window."""

    rate: float
    window: float


def joined(left: Flow, right: Flow, f: float) -> Flow:
    """Return the join of two flows, by Eq. 2 and 3.

    >>> joined(Flow(25, 250), Flow(30, 300), 0.001)
    Flow(rate=15.0, window=75.0)
    """
    rate = f * (left.rate * right.window + right.rate * left.window)
    return Flow(rate, f * left.window * right.window)


def counted(times: Sequence[Sequence[float]], bounds: Mapping[tuple[int, int], float]) -> list[int]:
    """Return, per stream, the number of combinations that it completes with all differences within
    ``bounds``.

    ``bounds[i, j]``: maximum time of ``j``'s tuple after ``i``'s; infinite if missing.
    """
    last = [0] * len(times)
    for combination in product(*times):
        if all(combination[j] - combination[i] <= most for (i, j), most in bounds.items()):
            last[combination.index(max(combination))] += 1
    return last
