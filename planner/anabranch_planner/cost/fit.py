"""Cost constants that fit what tasks have reported.

The CPU time of a step in a period is ``call * calls + probe * probes + look * looked + match *
matches``, that of inserts ``write * writes + row * rows``. The constants are those of least squared
errors among all that are not negative, where

* each error counts relative to what was measured, by its share of all CPU time: a long period is
  as well explained as a short one, and what takes no time does not matter;
* how the constants that were known before compare with each other counts a little, too (ridge
  regression): batches of equal size do not tell calls from probes, and of what no step has done
  nothing has been measured.

With so few constants, the best among those that are not negative is found by trying which of them
are zero.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from anabranch_planner.cost.constants import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from anabranch_contract.protocol.measurements import EdgeStatistics, Writes
    from anabranch_planner.cost.constants import CostConstants

    Array = NDArray[np.float64]

#: How many measurements each constant that was known before is worth.
PRIOR = 0.01


def fit(
    steps: Sequence[EdgeStatistics], inserts: Sequence[Writes], known: CostConstants
) -> CostConstants:
    """The constants that explain these measurements best; ``calls`` and ``looks`` as ``known``.

    Args:
        steps: of one step and period each; those without calls (of earlier releases) or without
            CPU time are left out.
        inserts: of one period each; likewise.
        known: what the constants are taken to be before.
    """
    probing = [s for s in steps if s.calls > 0 and s.seconds > 0]
    storing = [i for i in inserts if i.writes > 0 and i.seconds > 0]
    done = np.array([[s.calls, s.probes, s.looked, s.matches] for s in probing], float)
    stored = np.array([[i.writes, i.rows] for i in storing], float)
    times = np.array([s.seconds for s in probing])
    spent = np.array([i.seconds for i in storing])
    step = _least(
        done.reshape(-1, 4), times, np.array([known.call, known.probe, known.look, known.match])
    )
    insert = _least(stored.reshape(-1, 2), spent, np.array([known.write, known.row]))
    total = float(times.sum() + spent.sum())
    error = None
    if total > 0:
        missed = np.abs(done.reshape(-1, 4) @ step - times).sum()
        missed += np.abs(stored.reshape(-1, 2) @ insert - spent).sum()
        error = float(missed) / total
    found = dict(zip(OPERATIONS, (*step.tolist(), *insert.tolist()), strict=True))
    return replace(known, **found, error=error, measurements=len(probing) + len(storing))


def _least(counts: Array, seconds: Array, known: Array) -> Array:
    """Factors per column of ``counts``, none negative."""
    if not len(seconds):
        return known
    expected = float((counts @ known).sum())
    # Known constants say how operations compare; how fast the machine is has been measured.
    prior = known * (seconds.sum() / expected) if expected > 0 else known
    unit = np.where(prior > 0, prior, 1.0)
    weights = np.sqrt(len(seconds) * seconds / seconds.sum())[:, None]
    ridge = np.sqrt(PRIOR) * np.eye(len(unit))
    left = np.vstack([weights * counts * unit / seconds[:, None], ridge])
    right = np.concatenate([weights[:, 0], np.sqrt(PRIOR) * prior / unit])
    best, least = known, np.inf
    for size in range(len(unit) + 1):
        for chosen in combinations(range(len(unit)), size):
            factors = np.zeros(len(unit))
            columns = list(chosen)
            factors[columns] = np.linalg.lstsq(left[:, columns], right, rcond=None)[0]
            error = float(np.sum((left @ factors - right) ** 2))
            if (factors >= 0).all() and error < least:
                best, least = factors * unit, error
    return best
