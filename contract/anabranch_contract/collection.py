"""Thresholds of Python's cyclic garbage collector.

With a thousand queries, the service, its planner and the runtime each hold millions of objects for
as long as they run, and every plan or batch makes many that reference counts soon free. With
Python's default thresholds the collector scans all of them again and again: it takes a quarter of
the CPU time of a decision on a revision, and a third of a batch's, and frees almost nothing. Cycles
are rare here, so the collector runs less often.
"""

from __future__ import annotations

import gc

#: New objects before the youngest are looked through, and how many times that happens before the
#: next older ones are, twice.
THRESHOLDS = (20_000, 50, 20)


def collect_rarely() -> None:
    """Set the thresholds of this process."""
    gc.set_threshold(*THRESHOLDS)
