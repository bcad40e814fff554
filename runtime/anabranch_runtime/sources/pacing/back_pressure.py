"""Row limit of the next batch, such that batches take about the target time and fit into memory.

Design. A batch takes ``fixed + rows / rate`` seconds. Both parameters are fitted to the last
batches by least squares, with more weight on later batches. The next batch gets as many rows as
take ``target - fixed`` seconds, and at least as many as take ``MARGIN * fixed`` seconds. Without
this minimum, if the fixed cost is near or above the target, batches would do little but fixed work,
and the backlog and the latency would grow without bound. With it, throughput is at least about half
of that of unlimited batches, and a batch takes about ``max(target, (1 + MARGIN) fixed)``.

The estimated fixed cost is at most ``CAP`` of the *mean* time of the last batches. The time of the
fastest batch would be a bad bound: after one lucky batch, fixed cost would be attributed to the
rows (``(mean - fixed) / rows``), the limit would shrink, each row would seem even more expensive,
and so on down to ``LEAST_ROWS``. With the bound by the mean, the limit recovers: nearly all time of
tiny batches is fixed cost, so the fit shows it, and the limit grows.

Memory use is fitted in the same way, as the fullest task's fraction of its memory share.

Batches of equal size do not reveal the fixed cost. So the estimate is kept while sizes are alike,
and every ``PROBE``-th full batch is made smaller to vary the size. If the fixed cost is above half
of the target, it determines the limit and must be known better: full batches are then alternately
larger and smaller by ``SWING``. This costs some percent of throughput, and tolerates a noise of a
third of the measured times.

Small batches reveal the fixed cost but not the rate. A batch with less than half of its limit never
raises the limit. If the fixed cost determines the limit, such a batch lowers it only if it took
longer than a full batch should.

All functions are pure. A repeated batch is unaffected, since its input is in the journal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: Row limit of the first batch.
FIRST_ROWS = 20_000
#: Least and greatest limit, in rows.
LEAST_ROWS, MOST_ROWS = 100, 1 << 26
#: Greatest factor of growth or shrinkage of the limit from one batch to the next.
STEP = 2.0
#: Number of batches in the fit, and the weight of each relative to the next one.
MEMORY, FADING = 12, 0.85
#: Every ``PROBE``-th batch is smaller: ``PROBE_PART`` of the limit.
PROBE, PROBE_PART = 6, 0.7
#: Relative variation of alternate batches if the fixed cost determines the limit.
SWING = 0.3
#: Minimum time for rows as a multiple of the fixed cost. It is above 1, since underestimating the
#: fixed cost loses more throughput than an equal overestimate gains.
MARGIN = 1.15
#: Maximum of the fixed cost, as a share of the mean time of batches.
CAP = 0.7
#: Least fraction of a batch's rows for streams that read a snapshot.
SNAPSHOTS = 0.25
#: Relative standard deviation of batch sizes from which on the estimate is that of the fit.
TELLING = 0.3


@dataclass(frozen=True, slots=True)
class BackPressure:
    """The limit for the next batch, with the measurements of the last ones.

    Attributes:
        limit: maximum number of rows of the next batch.
        batches: (rows, seconds) of the last batches, oldest first.
        fixed: estimated fixed seconds of a batch; None: unknown.
        fullness: (rows, fullest task's fraction of its memory share) of the last batches.
        base: estimated fullness of a batch without rows; None: unknown.
        seen: number of batches so far.
        full: limit without the variation that reveals the fixed cost.
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
    """Return the back-pressure (the next batch's row limit) after a batch.

    Args:
        pressure: the pressure before the batch.
        rows: number of its rows.
        seconds: its duration from planning to commit.
        target: seconds that a batch should take; None: no target.
        full: the fullest task's fraction of its memory share; 0: memory has no limit.

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
    # Whether the fixed cost determines the limit, because it is high.
    dear = target is not None and fixed > target / 2
    low, high = pressure.full / STEP, pressure.full * STEP
    if rows < pressure.limit / 2:
        # So small a batch does not show how long batches as large as the limit take.
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
        fixed: seconds of a batch without rows; at least 0, below the mean time.
        per_row: seconds per row; above 0.
        estimate: estimated fixed seconds as input of the next fit. May exceed ``fixed``, which is
            capped.
    """

    fixed: float
    per_row: float
    estimate: float


def fit(batches: tuple[tuple[int, float], ...], known: float | None = None) -> Line:
    """Fit a line to the (rows, seconds) of the last ``batches``, oldest first.

    ``known`` is the previous estimate of the fixed seconds (None: half of the mean time). The more
    alike the batches' sizes are, the more it counts.

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
        # Noise may tilt the line, so fixed cost and cost per row are kept from becoming negative.
        found = min(max(mean_seconds - covariance / spread * mean_rows, 0.0), mean_seconds)
        estimate += min(spread**0.5 / (TELLING * mean_rows), 1.0) * (found - estimate)
    fixed = min(estimate, CAP * mean_seconds)
    return Line(fixed, max((mean_seconds - fixed) / mean_rows, 1e-12), estimate)


def shares(
    limit: int | None,
    waiting: Mapping[str, int],
    snapshots: Collection[str] = (),
    pace: int | None = None,
) -> dict[str, int]:
    """Return feed -> its number of rows in the next batch.

    Feeds share ``limit`` (None: no limit) in proportion to their waiting rows, so that their
    backlogs shrink alike. So that snapshots delay no other stream, feeds that read ``snapshots``
    share only the rows that the others leave, but at least :data:`SNAPSHOTS` of the limit; together
    they get at most ``pace`` rows (None: any number). Each feed with waiting rows gets at least one
    row; if ``pace`` is 0, snapshots get none.

    >>> shares(100, {"a": 300, "b": 100, "c": 0})
    {'a': 75, 'b': 25}
    >>> shares(100, {"a": 30, "b": 9000}, {"b"}), shares(100, {"a": 300, "b": 9000}, {"b"})
    ({'a': 30, 'b': 70}, {'a': 75, 'b': 25})
    >>> shares(100, {"a": 30, "b": 9000}, {"b"}, pace=20)
    {'a': 30, 'b': 20}
    """
    if pace is not None:
        theirs = {feed: rows for feed, rows in waiting.items() if feed in snapshots}
        others = {feed: rows for feed, rows in waiting.items() if feed not in snapshots}
        return shares(limit, others | (shares(pace, theirs) if pace else {}), snapshots)
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return {feed: rows for feed, rows in waiting.items() if rows}
    theirs = {feed: rows for feed, rows in waiting.items() if feed in snapshots}
    if theirs and len(theirs) < len(waiting):
        others = {feed: rows for feed, rows in waiting.items() if feed not in snapshots}
        least = min(sum(theirs.values()), round(SNAPSHOTS * limit))
        first = min(sum(others.values()), limit - least)
        return shares(first, others) | shares(limit - first, theirs)
    return {feed: max(limit * rows // total, 1) for feed, rows in waiting.items() if rows}
