"""History of the last day, one point a minute: input rates, result rates, batch times.

Memory is bounded: a point keeps only the :data:`MOST` streams and queries with the highest rates.
So a point takes at most 8 KB, a day 12 MB; with ten streams and queries a day takes 0.7 MB.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.documents import Closed

#: Seconds between two points; number of points kept; most rates per point.
EVERY, KEPT, MOST = 60, 1440, 100


class HistoryPoint(Closed):
    """Means of the minute that ended ``at`` (POSIX seconds).

    Attributes:
        batch_seconds: mean time of a batch; None without a committed batch.
        rows: stream -> rows read per second. ``results``: query -> results per second.
    """

    at: int
    batch_seconds: float | None
    rows: dict[str, float]
    results: dict[str, float]


def point(before: Progress, now: Progress, at: int, seconds: float) -> HistoryPoint | None:
    """Point between two progress reports; None if the runtime restarted in between."""
    done, last = now.telemetry, before.telemetry
    if before.run != now.run or done.batches < last.batches:
        return None
    batches = done.batches - last.batches
    return HistoryPoint(
        at=at,
        batch_seconds=_short((done.seconds - last.seconds) / batches) if batches else None,
        rows=_rates(_inputs(before), _inputs(now), seconds),
        results=_rates(_results(before), _results(now), seconds),
    )


def _inputs(progress: Progress) -> dict[str, int]:
    return {name: counts.get("input", 0) for name, counts in progress.streams.items()}


def _results(progress: Progress) -> dict[str, int]:
    """Result counts by query; joins inside an outer join are not counted separately."""
    return {name: n for name, n in progress.results.items() if registered(name) == name}


def _rates(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> dict[str, float]:
    rates = {name: (count - before.get(name, 0)) / seconds for name, count in now.items()}
    highest = sorted((n for n, rate in rates.items() if rate > 0), key=lambda n: -rates[n])
    return {name: _short(rates[name]) for name in highest[:MOST]}


def _short(value: float) -> float:
    return float(f"{value:.3g}")
