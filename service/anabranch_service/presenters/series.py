"""Time series of measurement periods (rates, hit ratios, store sizes), and of the last day."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from statistics import median
from typing import TypeVar

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.ages import percentile, summed
from anabranch_contract.protocol.batches import PHASES, BatchReport
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_contract.rest.documents import iso_time
from anabranch_contract.rest.planning.epochs import BatchOut, PhaseOut
from anabranch_contract.rest.planning.series import (
    ForecastOut,
    HistoryOut,
    HistoryPointOut,
    PeriodOut,
    SeriesOut,
    StepForecastOut,
    StepSeriesOut,
    StoreSeriesOut,
)
from anabranch_planner.forecast.forecast import StatisticKind, forecasts
from anabranch_planner.forecast.series import Series
from anabranch_service.registry.publishing.history import EVERY, HistoryPoint

T = TypeVar("T", int, float)


def series_out(interims: Sequence[Interim]) -> SeriesOut:
    """Return the time series of the consecutive periods ``interims``, oldest first."""
    return SeriesOut(
        periods=[
            PeriodOut.of(
                one,
                until=iso_time(round(one.until * 1e6)),
                seconds=one.seconds,
                drifted=list(one.drifted.shown()),
            )
            for one in interims
        ],
        relations={
            relation: [_ratio(one.arrivals.get(relation), one.seconds) for one in interims]
            for relation in sorted({name for one in interims for name in one.arrivals})
        },
        steps=_step_series(interims),
        stores=_store_series(interims),
    )


#: Forecast horizon in periods: a plan made now is in force from the second period on.
AHEAD = 2.0


def with_forecasts(interims: Sequence[Interim]) -> SeriesOut:
    """Return the time series, with forecasts of rates, hit ratios and matches."""
    shown = series_out(interims)
    if not interims:
        return shown.model_copy(update={"forecasts": {}})
    ends = [one.until for one in interims]
    seconds = [one.seconds for one in interims]
    asked = [
        (_series(ends, values, seconds), StatisticKind.RATE) for values in shown.relations.values()
    ]
    for step in shown.steps:
        asked.append((_series(ends, step.hit_ratio, step.probes), StatisticKind.HIT_RATIO))
        asked.append((_series(ends, step.matches_per_hit, step.probes), StatisticKind.MATCHES))
    found = [ForecastOut.of(one) for one in forecasts(asked, median(seconds), AHEAD)]
    rates, steps = found[: len(shown.relations)], found[len(shown.relations) :]
    return shown.model_copy(
        update={
            "forecasts": dict(zip(shown.relations, rates, strict=True)),
            "steps": [
                step.model_copy(
                    update={"forecast": StepForecastOut(hit_ratio=hits, matches_per_hit=matches)}
                )
                for step, hits, matches in zip(shown.steps, steps[::2], steps[1::2], strict=True)
            ],
        }
    )


def _series(
    ends: Sequence[float], values: Sequence[float | None], weights: Sequence[float | None]
) -> Series:
    measured = zip(ends, values, weights, strict=True)
    return Series.of((t, v, w) for t, v, w in measured if v is not None and w is not None)


def _step_series(interims: Sequence[Interim]) -> list[StepSeriesOut]:
    by_period = [{s.step: s.counts for s in one.steps} for one in interims]

    def each(
        counts: Sequence[EdgeStatistics | None], figure: Callable[[EdgeStatistics], T | None]
    ) -> list[T | None]:
        return [None if one is None else figure(one) for one in counts]

    found = []
    for step in sorted(set().union(*by_period)):
        counts = [period.get(step) for period in by_period]
        found.append(
            StepSeriesOut(
                joined=step.joined,
                head=list(step.head),
                target=list(step.target),
                part=str(step.part),
                probes=each(counts, lambda c: c.probes),
                hit_ratio=each(counts, lambda c: _ratio(c.found, c.probes)),
                matches_per_hit=each(counts, lambda c: _ratio(c.matches, c.found)),
                cpu_microseconds=each(counts, lambda c: _ratio(c.seconds * 1e6, c.probes)),
            )
        )
    return found


def _store_series(interims: Sequence[Interim]) -> dict[str, StoreSeriesOut]:
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


def batch_out(report: BatchReport) -> BatchOut:
    """Return one batch, with phases that add up to its time."""
    # Tasks round the times of phases, so the sum may exceed the Spark job's time by milliseconds.
    spark = max(report.job - sum(report.phases.values()), 0)
    work = {name: report.phases.get(name, 0) for name in PHASES}
    phases = {"begin": report.begin, **work, "spark": spark, "commit": report.commit}
    return BatchOut.of(
        report,
        ruleset=str(RulesetId(report.ruleset_epoch, report.revision)),
        committed_at=datetime.fromtimestamp(report.until, UTC),
        milliseconds=sum(phases.values()),
        skew=report.work / report.mean_work if report.mean_work else None,
        phases=[PhaseOut(name=name, milliseconds=took) for name, took in phases.items() if took],
    )


def history_out(
    points: Iterable[HistoryPoint],
    minutes: int,
    *,
    query: str | None = None,
    streams: Collection[str] | None = None,
) -> HistoryOut:
    """Combine points of one minute into points of ``minutes`` minutes, of a run or of streams.

    Args:
        query: run whose results are counted; None: rows of ``streams`` are counted.
        streams: streams that the query reads or whose rows are counted; None: all.
    """
    seconds = EVERY * minutes

    def end(point: HistoryPoint) -> int:
        # Points are recorded shortly after the end of their minute.
        return -(-(round(point.at / EVERY) * EVERY) // seconds) * seconds

    groups = ((until, list(some)) for until, some in groupby(points, end))
    items = [
        _point_out(some, some[0].at if minutes == 1 else until, query, streams)
        for until, some in groups
    ]
    return HistoryOut(seconds=seconds, items=items)


def _point_out(
    points: Sequence[HistoryPoint], at: int, query: str | None, streams: Collection[str] | None
) -> HistoryPointOut:
    ages = summed(
        counts
        for point in points
        for stream, counts in point.ages.items()
        if streams is None or stream in streams
    )
    reasons = [
        reason
        for point in points
        if (reason := point.interruption(point.unread if streams is None else streams, query))
    ]
    return HistoryPointOut(
        at=datetime.fromtimestamp(at, UTC),
        batch_seconds=_mean(p.batch_seconds for p in points if p.batch_seconds is not None),
        rate=_mean(_rates(points, query, streams)),
        freshness_p50=_short(percentile(ages, 50)),
        freshness_p99=_short(percentile(ages, 99)),
        minutes=len(points),
        interrupted_minutes=len(reasons),
        interruption=reasons[-1] if reasons else None,
    )


def _rates(
    points: Iterable[HistoryPoint], query: str | None, streams: Collection[str] | None
) -> Iterator[float]:
    """Return the rates of minutes with a committed batch or a running runtime."""
    for point in points:
        if not point.working and point.batch_seconds is None:
            continue
        if query is not None:
            yield point.results.get(query, 0.0)
        else:
            yield sum(n for name, n in point.rows.items() if streams is None or name in streams)


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.3g}")
