"""Thresholds of Python's cyclic garbage collector.

With a thousand queries, the service, its planner and the runtime each hold millions of objects for
as long as they run. Every plan or batch creates many more, which reference counting soon frees.
With Python's default thresholds the collector scans all objects again and again. These scans take a
quarter of the CPU time of a decision on a revision, and a third of a batch's, and free almost
nothing. Cyclic garbage is rare here, so the collector is set to run less often.
"""

from __future__ import annotations

import gc

#: Arguments of ``gc.set_threshold``: new objects before a collection of the youngest generation;
#: its collections per collection of the second generation; and those per collection of the oldest.
THRESHOLDS = (20_000, 50, 20)


def collect_rarely() -> None:
    """Set the garbage collector's thresholds in this process."""
    gc.set_threshold(*THRESHOLDS)
