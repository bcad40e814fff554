"""How often Python looks for garbage that refers to itself.

With a thousand queries, the service, its planner and the runtime each hold millions of objects for
as long as they run, and every plan or batch makes many that soon go by themselves. By Python's own
thresholds the collector goes through all of them again and again: a quarter of the CPU time of a
decision on a revision, a third of that of a batch, for nothing that would not have gone anyway.
Cycles are rare here, so it looks less often.
"""

from __future__ import annotations

import gc

#: New objects before the youngest are looked through, and how many times that happens before the
#: next older ones are, twice.
THRESHOLDS = (20_000, 50, 20)


def collect_rarely() -> None:
    """Set the thresholds of this process."""
    gc.set_threshold(*THRESHOLDS)
