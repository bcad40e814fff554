"""One point a minute of a day: what arrived, what came of it, how long batches took.

Memory is bounded: of a minute only the :data:`MOST` streams and queries with the highest rates are
kept, so a point takes 8 KB at most, and a day 12 MB; of ten streams and queries it takes 0.7 MB.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.documents import Closed

#: Seconds between two points, points that are kept, and rates of a point.
EVERY, KEPT, MOST = 60, 1440, 100


class HistoryPoint(Closed):
    """Means of the minute that ended ``at`` (POSIX seconds).

    Attributes:
        batch_seconds: mean time of a batch; None without a committed batch.
        rows: stream -> rows per second. ``results``: query -> results per second.
    """

    at: int
    batch_seconds: float | None
    rows: dict[str, float]
    results: dict[str, float]


def point(before: Progress, now: Progress, at: int, seconds: float) -> HistoryPoint | None:
    """Difference of two readings; None: another run of the runtime has begun."""
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
    """The parts of outer joins are not queries."""
    return {name: n for name, n in progress.results.items() if registered(name) == name}


def _rates(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> dict[str, float]:
    rates = {name: (count - before.get(name, 0)) / seconds for name, count in now.items()}
    highest = sorted((n for n, rate in rates.items() if rate > 0), key=lambda n: -rates[n])
    return {name: _short(rates[name]) for name in highest[:MOST]}


def _short(value: float) -> float:
    return float(f"{value:.3g}")
