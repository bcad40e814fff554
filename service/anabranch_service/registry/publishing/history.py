"""History of the last day, one point a minute: rates, batch times, ages of rows, interruptions.

Memory is bounded: a point keeps only the :data:`MOST` streams and queries with the highest rates.
So a point takes 25 KB if the ages of each stream differ by a factor of 60, a day 36 MB; with ten
streams and queries a day takes 2 MB.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pydantic import Field

from anabranch_contract.protocol.ages import AgeCounts, difference
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.documents import Closed

#: Seconds between two points; number of points kept; maximum number of rates per point.
EVERY, KEPT, MOST = 60, 1440, 100


class HistoryPoint(Closed):
    """Means of the minute that ended ``at`` (POSIX seconds).

    Attributes:
        batch_seconds: mean time of a batch; None without a committed batch.
        rows: stream -> rows read per second. ``results``: query -> results per second.
        ages: stream -> ages of its oldest row in each batch, at the commit.
        working: whether a runtime was running at the end of the minute. ``unread``: streams that
            could not be read then. ``refused``: queries whose sink rejected results then.
    """

    at: int
    batch_seconds: float | None
    rows: dict[str, float]
    results: dict[str, float]
    ages: dict[str, AgeCounts] = Field(default_factory=dict)
    working: bool = True
    unread: list[str] = Field(default_factory=list)
    refused: list[str] = Field(default_factory=list)

    def interruption(self, streams: Collection[str], query: str | None) -> str | None:
        """Return why ``query`` had no results of ``streams`` at the end of the minute, or None."""
        if not self.working:
            return "no runtime works"
        if query in self.refused:
            return "the sink does not take results"
        unread = sorted(set(streams) & set(self.unread))
        return f"stream {unread[0]} can't be read" if unread else None


def point(
    before: Progress, now: Progress, at: int, seconds: float, *, working: bool = True
) -> HistoryPoint | None:
    """Make the point between two progress reports; None if the runtime restarted in between.

    Args:
        working: whether a runtime is running now.
    """
    done, last = now.telemetry, before.telemetry
    if before.run != now.run or done.batches < last.batches:
        return None
    batches = done.batches - last.batches
    return HistoryPoint(
        at=at,
        batch_seconds=_short((done.seconds - last.seconds) / batches) if batches else None,
        rows=_rates(_inputs(before), _inputs(now), seconds),
        results=_rates(_results(before), _results(now), seconds),
        ages=_ages(last.ages, done.ages),
        working=working,
        unread=_first(name for name, one in now.input.intake.items() if one.error),
        refused=_first(now.sinks),
    )


def _ages(before: Mapping[str, AgeCounts], now: Mapping[str, AgeCounts]) -> dict[str, AgeCounts]:
    found = {name: difference(before.get(name, {}), counts) for name, counts in now.items()}
    most = sorted((n for n in found if found[n]), key=lambda n: -sum(found[n].values()))
    return {name: found[name] for name in most[:MOST]}


def _first(names: Iterable[str]) -> list[str]:
    return sorted(names)[:MOST]


def _inputs(progress: Progress) -> dict[str, int]:
    return {name: counts.get("input", 0) for name, counts in progress.streams.items()}


def _results(progress: Progress) -> dict[str, int]:
    """Return the result counts by query; joins inside an outer join are not counted separately."""
    return {name: n for name, n in progress.results.items() if registered(name) == name}


def _rates(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> dict[str, float]:
    rates = {name: (count - before.get(name, 0)) / seconds for name, count in now.items()}
    highest = sorted((n for n, rate in rates.items() if rate > 0), key=lambda n: -rates[n])
    return {name: _short(rates[name]) for name in highest[:MOST]}


def _short(value: float) -> float:
    return float(f"{value:.3g}")
