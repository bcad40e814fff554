"""Ages of rows at the commit of their batch, as sparse histograms, which can be added up.

Bin ``n`` ends at ``2**(n / 4)`` milliseconds, so this upper bound exceeds an age in the bin by at
most 19 %.

>>> bin_of(0.9), bound_of("40"), percentile({"40": 99, bin_of(30.0): 1}, 99)
('40', 1.024, 1.024)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil, log2

#: Number of a bin (as text, for JSON) -> number of ages in the bin; a histogram.
AgeCounts = dict[str, int]
#: Bins per doubling; upper bound of bin 0 in seconds; number of the last bin, with all longer ages.
_PARTS, _LEAST, _LAST = 4, 0.001, 120


def bin_of(seconds: float) -> str:
    """Return the histogram's bin for an age in seconds; ages up to a millisecond are in bin 0."""
    return str(min(ceil(_PARTS * log2(max(seconds / _LEAST, 1.0))), _LAST))


def bound_of(bin: str) -> float:
    """Return the upper bound, in seconds, of a bin in the histogram of ages."""
    return float(_LEAST * 2 ** (int(bin) / _PARTS))


def summed(counts: Iterable[Mapping[str, int]]) -> AgeCounts:
    """Return the sum of histograms of ages."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def difference(before: Mapping[str, int], now: Mapping[str, int]) -> AgeCounts:
    """Return the histogram of the ages that ``now`` has in addition to ``before``."""
    return {bin: n - before.get(bin, 0) for bin, n in now.items() if n > before.get(bin, 0)}


def percentile(counts: Mapping[str, int], percent: float) -> float | None:
    """Return an upper bound in seconds of ``percent`` of the ages; None if there are no ages."""
    left = ceil(sum(counts.values()) * percent / 100)
    for bin in sorted(counts, key=int):
        left -= counts[bin]
        if left <= 0:
            return bound_of(bin)
    return None
