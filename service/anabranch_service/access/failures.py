"""A rate limiter for failed authentications, bounded in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

#: Failures that an address may have in a burst, and how many seconds bring one back.
BURST, SECONDS = 10, 6.0
#: Addresses that are remembered; the one that failed longest ago is forgotten first.
MOST_ADDRESSES = 4096


class Failures:
    """Token buckets of failures, one per address.

    Secrets of 256 bits can't be guessed at any rate. The limiter bounds what a stream of bad
    requests writes: each failure within the limit is in the audit log, those beyond it are not.

    >>> failures = Failures(lambda: 0.0)
    >>> [failures.allow("10.0.0.1") for _ in range(BURST + 1)][-2:]
    [True, False]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        """Count a failure of ``address``; False if it has had too many."""
        now = self._clock()
        left, since = self._left.pop(address, (float(BURST), now))
        left = min(float(BURST), left + (now - since) / SECONDS)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left, now)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return allowed
