"""Cost constants fitted to the CPU times that tasks report.

The CPU time of a step in a period is ``call * calls + probe * probes + look * looked + match *
matches``, that of inserts ``write * writes + row * rows``, that of merges ``merge * merges +
rewrite * rows``. The constants minimise squared errors subject to being non-negative, where

* each error counts relative to the measured time, weighted by its share of all CPU time: long and
  short periods count equally, and negligible operations have no influence;
* deviations from the ratios of the earlier constants are penalised slightly (ridge regression):
  batches of equal size cannot separate calls from probes, and some operations did not occur.

An intermediate result's further cost per batch (``derive``) is caused by several effects that no
measurement covers: waiting, results in smaller pieces, the driver's records of segments. It is
:data:`DERIVE` if inserts take the time that the earlier constants predict, and else in proportion
to their time.

There are few constants, so the best non-negative solution is found by trying every set of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.protocol.measurements import EdgeStatistics, Writes
from anabranch_planner.cost.statistics.constants import CostConstants

Array = NDArray[np.float64]


#: Seconds of ``derive`` if inserts take the time predicted by the earlier constants
#: (docs/cost-model.md).
DERIVE = 4e-3
#: Weight of an earlier constant in the fit, as a number of measurements.
PRIOR = 0.01


def fit(
    steps: Sequence[EdgeStatistics],
    inserts: Sequence[Writes],
    merges: Sequence[Writes],
    known: CostConstants,
) -> CostConstants:
    """Constants with the least error on these measurements; unmeasured operations keep theirs.

    Args:
        steps: one entry per step and period; entries without calls or CPU time are ignored.
        inserts, merges: one entry per period; entries without counts or CPU time are ignored.
        known: the constants before the fit.
    """
    probing = [s for s in steps if s.calls > 0 and s.seconds > 0]
    parts = [
        _Part(
            np.array([[s.calls, s.probes, s.looked, s.matches] for s in probing], float),
            np.array([s.seconds for s in probing]),
            ("call", "probe", "look", "match"),
        ),
        _of_writes(inserts, ("write", "row")),
        _of_writes(merges, ("merge", "rewrite")),
    ]
    found: dict[str, Any] = {}
    total = missed = 0.0
    for part in parts:
        counts = part.counts.reshape(-1, len(part.names))
        before = np.array([getattr(known, name) for name in part.names])
        factors = factors_of(counts, part.seconds, before)
        found |= dict(zip(part.names, factors.tolist(), strict=True))
        total += float(part.seconds.sum())
        missed += float(np.abs(counts @ factors - part.seconds).sum())
    written = parts[1]
    if len(written.seconds):
        usual = written.counts @ [known.write, known.row]
        found["derive"] = DERIVE * float(written.seconds.sum() / usual.sum())
    measurements = sum(len(part.seconds) for part in parts)
    return replace(
        known, **found, error=missed / total if total > 0 else None, measurements=measurements
    )


class _Part(NamedTuple):
    """Measurements of one kind of operation: counts by cost constant, and CPU seconds."""

    counts: Array
    seconds: Array
    names: tuple[str, ...]


def _of_writes(writes: Sequence[Writes], names: tuple[str, str]) -> _Part:
    measured = [w for w in writes if w.writes > 0 and w.seconds > 0]
    counts = np.array([[w.writes, w.rows] for w in measured], float)
    return _Part(counts, np.array([w.seconds for w in measured]), names)


def factors_of(counts: Array, seconds: Array, known: Array) -> Array:
    """The non-negative factor of each column of ``counts`` that explains ``seconds`` best.

    Args:
        known: the factors before the fit.
    """
    if not len(seconds):
        return known
    expected = float((counts @ known).sum())
    # Earlier constants give the ratios of operations; the measurements give the machine's speed.
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
