"""PMJoin's rate model as printed, by recursion, and joins counted one by one: the cost model's
closed form is compared with both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True, slots=True)
class Flow:
    """A stream, or the join of some: tuples per unit of time, and tuples in its window."""

    rate: float
    window: float


def joined(left: Flow, right: Flow, f: float) -> Flow:
    """Eq. 2 and 3.

    >>> joined(Flow(25, 250), Flow(30, 300), 0.001)
    Flow(rate=15.0, window=75.0)
    """
    rate = f * (left.rate * right.window + right.rate * left.window)
    return Flow(rate, f * left.window * right.window)


def counted(times: Sequence[Sequence[float]], bounds: Mapping[tuple[int, int], float]) -> list[int]:
    """Per stream how many combinations it completes: all differences within ``bounds``.

    ``bounds[i, j]`` is how much later than ``i``'s tuple ``j``'s may be; a missing one is infinite.
    """
    last = [0] * len(times)
    for combination in product(*times):
        if all(combination[j] - combination[i] <= most for (i, j), most in bounds.items()):
            last[combination.index(max(combination))] += 1
    return last
