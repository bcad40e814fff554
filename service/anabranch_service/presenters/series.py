"""Interim measurements as time series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.rest.documents import iso_time
from anabranch_contract.rest.series import PeriodOut, SeriesOut, StepSeriesOut, StoreSeriesOut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from anabranch_contract.protocol.interims import Interim
    from anabranch_contract.protocol.measurements import EdgeStatistics

    T = TypeVar("T", int, float)


def series_out(interims: Sequence[Interim]) -> SeriesOut:
    """The series of ``interims``, which are consecutive periods, oldest first."""
    return SeriesOut(
        periods=[
            PeriodOut.of(one, until=iso_time(round(one.until * 1e6)), seconds=one.seconds)
            for one in interims
        ],
        relations={
            relation: [_ratio(one.arrivals.get(relation), one.seconds) for one in interims]
            for relation in sorted({name for one in interims for name in one.arrivals})
        },
        steps=_steps(interims),
        stores=_stores(interims),
    )


def _steps(interims: Sequence[Interim]) -> list[StepSeriesOut]:
    by_period = [{(s.joined, s.head, s.target): s.counts for s in one.steps} for one in interims]

    def each(
        counts: Sequence[EdgeStatistics | None], figure: Callable[[EdgeStatistics], T | None]
    ) -> list[T | None]:
        return [None if one is None else figure(one) for one in counts]

    found = []
    for step in sorted(set().union(*by_period)):
        joined, head, target = step
        counts = [period.get(step) for period in by_period]
        found.append(
            StepSeriesOut(
                joined=joined,
                head=list(head),
                target=list(target),
                probes=each(counts, lambda c: c.probes),
                hit_ratio=each(counts, lambda c: _ratio(c.found, c.probes)),
                matches_per_hit=each(counts, lambda c: _ratio(c.matches, c.found)),
                cpu_microseconds=each(counts, lambda c: _ratio(c.seconds * 1e6, c.probes)),
            )
        )
    return found


def _stores(interims: Sequence[Interim]) -> dict[str, StoreSeriesOut]:
    found = {}
    for name in sorted({store for one in interims for store in one.stores}):
        sizes = [one.stores.get(name) for one in interims]
        keys = sorted({key for size in sizes if size is not None for key in size.keys})
        found[name] = StoreSeriesOut(
            tuples=[None if size is None else size.rows for size in sizes],
            keys={
                key: [None if size is None else size.keys.get(key) for size in sizes]
                for key in keys
            },
        )
    return found


def _ratio(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole
