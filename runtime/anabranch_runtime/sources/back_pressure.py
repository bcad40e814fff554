"""Row limit of the next batch, so that batches take about the target time and no more memory than
there is.

Design. A batch costs ``fixed + rows / rate`` seconds. Both are fitted to the last batches by least
squares, later ones weighing more. The next batch gets the rows that take ``target - fixed``
seconds, and never less than ``MARGIN * fixed`` seconds' worth: with a fixed cost near the target,
or more, a batch limited by the target alone would spend its time on the fixed cost only, ever more
input would wait, and latency would be worse in the end. So throughput is about half of what
unlimited batches have, or more, and a batch takes about ``max(target, (1 + MARGIN) fixed)``.

The fixed cost is at most ``CAP`` of the *mean* time of the last batches. It must not be bounded by
the fastest: batches differ, and one that was lucky would have the rest of the fixed cost taken for
the rows' (``(mean - fixed) / rows``). Fewer rows would then be allowed, by which each seems dearer
still, down to ``LEAST_ROWS``. By the mean a limit can't collapse: where batches have become so
small that only the fixed cost is left, the fit says so, and the limit grows.

Memory is fitted in the same way, as the part of its share that the fullest task of a batch took.

Batches of equal size don't show the fixed cost. So the last fit is kept while they are alike, and
every ``PROBE``-th full batch is smaller than it could be, which shows the difference. Where the
fixed cost decides the limit (it is above half of the target) more depends on the difference: full
batches are then larger and smaller by ``SWING`` in turns, which costs some percent of throughput
and shows it through noise of a third.

Small batches show the fixed cost but not the rate: one that used less than half of its limit never
raises the limit, and lowers it where the fixed cost decides only if it took longer than a full one
should.

Pure. Replays are unaffected, as a batch's content is fixed by Spark's offset log before it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: Rows that the first batch may bring.
FIRST_ROWS = 20_000
#: Bounds of the limit.
LEAST_ROWS, MOST_ROWS = 100, 1 << 26
#: Greatest factor of growth or shrinkage of the limit from one batch to the next.
STEP = 2.0
#: Batches that are remembered, and the weight of each compared with the one after it.
MEMORY, FADING = 12, 0.85
#: Period in batches of the smaller batch, and its part of the limit.
PROBE, PROBE_PART = 6, 0.7
#: By how much batches are larger and smaller in turns where the fixed cost decides.
SWING = 0.3
#: Seconds that rows get at least, in parts of the fixed cost. Above 1, because an estimate that is
#: too low costs more throughput than one that is too high by as much brings.
MARGIN = 1.15
#: The most that is taken for fixed, in parts of the mean time of batches.
CAP = 0.7
#: Standard deviation of the sizes, in parts of their mean, from which a fit counts in full.
TELLING = 0.3


@dataclass(frozen=True, slots=True)
class BackPressure:
    """The limit for the next batch, with the measurements of the last ones.

    Attributes:
        limit: rows that the next batch may bring.
        batches: (rows, seconds) of the last ones, oldest first.
        fixed: the estimate of the fixed seconds of a batch; None: not known yet.
        fullness: (rows, part of its share of memory that a task took) of the last ones.
        base: estimate of the fixed part of the fullness; None: not known yet.
        seen: batches seen so far.
        full: limit without the variation that shows the fixed cost.
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
        rows: its rows.
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
    fixed, per_row, known = fit(batches, pressure.fixed)
    wanted = MOST_ROWS if target is None else max(target - fixed, MARGIN * fixed) / per_row
    fullness, base, room = pressure.fullness, pressure.base, float(MOST_ROWS)
    if full > 0:
        fullness = (*fullness, (rows, full))[-MEMORY:]
        held, per_row, base = fit(fullness, base)
        room = max(1.0 - held, 0.0) / per_row
    # Whether the limit is decided by the fixed cost.
    dear = target is not None and fixed > target / 2
    low, high = pressure.full / STEP, pressure.full * STEP
    if rows < pressure.limit / 2:
        # Nothing is known of batches as large as the limit.
        meant = (1 + MARGIN) * (pressure.fixed or 0.0)
        if full > 1.0 or (target is not None and seconds > max(target, meant)):
            high = max(rows, low)
        else:
            low, high = (pressure.full if dear else low), pressure.full
    best = _bounded(min(max(min(wanted, room), low), high))
    seen = pressure.seen + 1
    limit = best
    if dear:
        most = max(room, best)
        limit = _bounded(min(best * (1 + SWING), most) if seen % 2 else best * (1 - SWING))
    elif not seen % PROBE:
        limit = round(best * PROBE_PART)
        limit = limit if limit >= LEAST_ROWS else round(best / PROBE_PART)
    return BackPressure(limit, batches, known, fullness, base, seen, best)


def _bounded(rows: float) -> int:
    return min(max(round(rows), LEAST_ROWS), MOST_ROWS)


class Line(NamedTuple):
    """Fitted cost of a batch as a line over its rows.

    Attributes:
        fixed: seconds of a batch that its rows have no part in; 0 or more, and less than the mean.
        per_row: seconds of a row; above 0.
        estimate: estimate of the fixed seconds to pass to the next fit. It may exceed ``fixed``,
            which must leave something to the rows.
    """

    fixed: float
    per_row: float
    estimate: float


def fit(batches: tuple[tuple[int, float], ...], known: float | None = None) -> Line:
    """The line that fits (rows, seconds) of ``batches`` best, oldest first.

    ``known`` is the estimate before: it counts the more, the more the batches are alike. Without it
    that is half of the mean time.

    >>> line = fit(((1000, 0.3), (2000, 0.4), (4000, 0.6)))
    >>> round(line.fixed, 6), round(line.per_row, 9)
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
    estimate = mean_seconds / 2 if known is None else known
    if spread > 0:
        # Noise may tilt the line: nothing is negative, and rows make no batch faster.
        found = min(max(mean_seconds - covariance / spread * mean_rows, 0.0), mean_seconds)
        estimate += min(spread**0.5 / (TELLING * mean_rows), 1.0) * (found - estimate)
    fixed = min(estimate, CAP * mean_seconds)
    return Line(fixed, max((mean_seconds - fixed) / mean_rows, 1e-12), estimate)


def shares(limit: int | None, waiting: Mapping[str, int]) -> dict[str, int]:
    """Feed -> rows that the next batch may bring of it.

    Feeds get parts of ``limit`` (None: no limit) in proportion to their waiting rows, so that their
    backlogs shrink alike, and each with waiting rows gets at least one.

    >>> shares(100, {"a": 300, "b": 100, "c": 0})
    {'a': 75, 'b': 25}
    """
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return {feed: rows for feed, rows in waiting.items() if rows}
    return {feed: max(limit * rows // total, 1) for feed, rows in waiting.items() if rows}
