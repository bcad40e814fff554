"""The merging policy of stores, for the runtime's merges and the cost model.

``FANOUT`` segments of one level, the oldest first, become one of the next (a tiered LSM tree per
store partition). A batch adds a segment, so a level ``k`` segment holds the rows of ``FANOUT**k``
batches, and each row is rewritten once per level. If rows expire after ``lifetime`` batches,
segments are merged only if they expire within ``lifetime / SPANS`` batches of each other. The
``FANOUT`` segments that become one of level ``k`` belong to batches up to ``(FANOUT - 1) *
FANOUT**(k - 1)`` apart, so there is a greatest ``k``.
"""

from __future__ import annotations

import math

#: Number of segments of one level that a merge turns into one of the next level.
FANOUT = 6
#: Minimum number of spans into which segments divide the lifetime of a store's rows.
SPANS = 4
#: Mean rounding loss of levels. A store of ``FANOUT**k`` to ``FANOUT**(k + 1)`` batches has ``k``
#: levels above the first, which is on average this much less than the logarithm of its batches.
_PHASE = 0.5


def rewrites(batches: float, lifetime: float | None = None) -> float:
    """Return the number of times that merges rewrite a row of a store, as a long-run average.

    Args:
        batches: number of batches that have added rows to the store.
        lifetime: number of batches for which a row is needed; None: for ever.

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
    """Return the number of merges per added segment if rows are rewritten ``levels`` times.

    >>> round(merges(1.0), 6), round(merges(0.0), 6)
    (0.166667, 0.0)
    """
    return float(1.0 - FANOUT**-levels) / (FANOUT - 1)
