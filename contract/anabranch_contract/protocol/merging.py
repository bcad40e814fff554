"""The merging policy of stores: the runtime follows it, and plans are priced by it.

``FANOUT`` segments of one level, the oldest first, become one of the next (a tiered LSM tree per
store partition). A batch adds a segment, so a level ``k`` segment holds the rows of ``FANOUT**k``
batches, and each row is rewritten once per level. Where rows expire after ``lifetime`` batches,
only segments are merged that expire within a ``SPANS``-th of it: the ``FANOUT`` parts of level
``k`` begin ``(FANOUT - 1) * FANOUT**(k - 1)`` batches apart, which bounds ``k``.
"""

from __future__ import annotations

import math

#: Segments of one level that become one of the next.
FANOUT = 6
#: Into so many spans at least the time is divided for which the rows of a store are needed.
SPANS = 4
#: A store of ``FANOUT**k`` to ``FANOUT**(k + 1)`` batches has ``k`` levels above the first: so much
#: less than the logarithm of its size, on average.
_PHASE = 0.5


def rewrites(batches: float, lifetime: float | None = None) -> float:
    """Times that merges rewrite a row of a store, on average over a long run.

    Args:
        batches: batches that have added rows to the store.
        lifetime: batches for which a row is needed; None: for ever.

    >>> [round(rewrites(n), 6) for n in (1, 6, 36, 216)]
    [0.0, 0.5, 1.5, 2.5]
    >>> [rewrites(1e4, n) for n in (19, 20, 120)]
    [0, 1, 2]
    """
    levels = math.log(max(batches, 1.0), FANOUT) - _PHASE
    if lifetime is not None:
        apart = SPANS * (FANOUT - 1)
        most = 1 + math.floor(math.log(lifetime / apart, FANOUT) + 1e-9) if lifetime >= apart else 0
        levels = min(levels, most)
    return max(levels, 0.0)


def merges(levels: float) -> float:
    """Merges per segment added, where rows are rewritten ``levels`` times.

    >>> round(merges(1.0), 6), round(merges(0.0), 6)
    (0.166667, 0.0)
    """
    return float(1.0 - FANOUT**-levels) / (FANOUT - 1)
