"""How many rows the next batch may bring, so that a batch takes about as long as it should, and no
more memory than there is.

Design. A batch costs ``fixed + rows / rate`` seconds. Both are fitted to the last batches by least
squares, later ones weighing more. The next batch gets the rows that fill what ``target`` leaves
beside ``fixed``, and never less than what takes as long as ``fixed`` itself: with a fixed cost near
the target, or more, a batch that only minded the target would spend its time on nothing but
the fixed cost, ever more input would wait, and latency would be worse in the end. So throughput is
never below half of what unlimited batches have, and a batch takes at most ``max(target, 2 fixed)``.

Memory is fitted in the same way, as the part of its share that the fullest task of a batch took.

Batches of equal size don't show what is fixed. So what was fitted is remembered while they are
alike, and every ``PROBE``-th full batch is smaller than it could be, which shows the difference.
Small batches say what is fixed but nothing about the rate: one that used less than half of what it
was allowed never raises the limit, and one that was slow always lowers it.

Pure: replays are not touched by any of it, as a batch's content is fixed by Spark's offset log
before it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Rows that the first batch may bring.
FIRST_ROWS = 20_000
#: Bounds of the limit.
LEAST_ROWS, MOST_ROWS = 100, 1 << 26
#: How much the limit may grow or shrink from one batch to the next.
STEP = 2.0
#: Batches that are remembered, and the weight of each compared with the one after it.
MEMORY, FADING = 12, 0.85
#: Every so many batches one gets ``PROBE_PART`` of what it could.
PROBE, PROBE_PART = 6, 0.7
#: Standard deviation of the sizes, in parts of their mean, from which a fit counts in full.
TELLING = 0.2


@dataclass(frozen=True, slots=True)
class BackPressure:
    """The limit for the next batch, and what is known of batches.

    Attributes:
        limit: rows that the next batch may bring.
        batches: (rows, seconds) of the last ones, oldest first.
        fixed: fixed seconds of a batch; None: not known yet.
        fullness: (rows, part of its share of memory that a task took) of the last ones.
        base: what of that is fixed; None: not known yet.
        seen: batches seen so far.
        full: what the limit would be without the probe that it may be.
    """

    limit: int = FIRST_ROWS
    batches: tuple[tuple[int, float], ...] = ()
    fixed: float | None = None
    fullness: tuple[tuple[int, float], ...] = ()
    base: float | None = None
    seen: int = 0
    full: int = FIRST_ROWS


def observe(
    pressure: BackPressure, rows: int, seconds: float, target: float | None, full: float = 0.0
) -> BackPressure:
    """The pressure after a batch of ``rows`` rows that took ``seconds``.

    Args:
        pressure: before the batch.
        rows: what it brought.
        seconds: from its planning to its commit.
        target: seconds that a batch should take; None: any number.
        full: the part of its share of memory that the fullest task took; 0: there is no limit.

    >>> p = BackPressure()
    >>> for _ in range(30):
    ...     p = observe(p, p.limit, 0.2 + p.limit / 50_000, target=1.0)
    >>> p.full  # 0.8 s at 50,000 rows a second
    40000
    """
    if rows <= 0 or seconds <= 0:
        return pressure
    batches = (*pressure.batches, (rows, seconds))[-MEMORY:]
    fixed, per_row = fit(batches, pressure.fixed)
    wanted = MOST_ROWS if target is None else max(target - fixed, fixed) / per_row
    fullness, base = pressure.fullness, pressure.base
    if full > 0:
        fullness = (*fullness, (rows, full))[-MEMORY:]
        base, per_row = fit(fullness, base)
        wanted = min(wanted, max(1.0 - base, 0.0) / per_row)
    low, high = pressure.full / STEP, pressure.full * STEP
    if rows < pressure.limit / 2:
        # Nothing is known of batches as large as the limit.
        slow = target is not None and seconds > target
        high = max(rows, low) if slow or full > 1.0 else pressure.full
    best = min(max(round(min(max(wanted, low), high)), LEAST_ROWS), MOST_ROWS)
    seen = pressure.seen + 1
    limit = best if seen % PROBE else max(round(best * PROBE_PART), LEAST_ROWS)
    return BackPressure(limit, batches, fixed, fullness, base, seen, best)


def fit(batches: tuple[tuple[int, float], ...], known: float | None = None) -> tuple[float, float]:
    """Fixed seconds of a batch (at least 0) and seconds per row (above 0) that fit best.

    ``known`` is what was thought to be fixed before: it counts the more, the more the batches are
    alike. Without it that is half of the fastest batch's time.

    >>> fixed, per_row = fit(((1000, 0.3), (2000, 0.4), (4000, 0.6)))
    >>> round(fixed, 6), round(per_row, 9)
    (0.2, 0.0001)
    """
    count = len(batches)
    weights = [FADING ** (count - 1 - i) for i in range(count)]
    total = sum(weights)
    mean_rows = sum(w * r for w, (r, _) in zip(weights, batches, strict=True)) / total
    mean_seconds = sum(w * s for w, (_, s) in zip(weights, batches, strict=True)) / total
    spread = covariance = 0.0
    for weight, (rows, seconds) in zip(weights, batches, strict=True):
        spread += weight * (rows - mean_rows) ** 2 / total
        covariance += weight * (rows - mean_rows) * (seconds - mean_seconds) / total
    fastest = min(s for _, s in batches)
    fixed = fastest / 2 if known is None else known
    if spread > 0:
        trust = min(spread**0.5 / (TELLING * mean_rows), 1.0)
        fixed += trust * (mean_seconds - covariance / spread * mean_rows - fixed)
    # Noise may tilt the line: a batch can't be quicker than its fixed cost, nor that negative.
    fixed = min(max(fixed, 0.0), 0.95 * fastest)
    return fixed, max((mean_seconds - fixed) / mean_rows, 1e-12)


def shares(limit: int | None, waiting: Mapping[str, int]) -> dict[str, int]:
    """How many of the rows that wait in each feed the next batch may bring.

    Feeds get parts of ``limit`` (None: no limit) in proportion to what waits, so that they are
    level with each other as the backlog shrinks, and each that has something gets at least one row.

    >>> shares(100, {"a": 300, "b": 100, "c": 0})
    {'a': 75, 'b': 25}
    """
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return {feed: rows for feed, rows in waiting.items() if rows}
    return {feed: max(limit * rows // total, 1) for feed, rows in waiting.items() if rows}
