"""Bodies of ``/v1/series`` and ``/v1/history``: measurements over time."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Document, Time


class PeriodOut(Document):
    """A period of measurements.

    Attributes:
        until: time of its end.
        seconds: length of the period in seconds.
        epoch: number of its epoch.
        ruleset_epoch: epoch whose ruleset was in use.
        batches: number of its batches.
        drifted: sudden changes of rates or steps at the period's first batch, which ended it early;
            at most ten.
    """

    until: str | None
    seconds: float
    epoch: int
    ruleset_epoch: int
    batches: int
    drifted: list[str] = Field(default_factory=list)


class ForecastOut(Document):
    """Forecast of a statistic two periods after the newest measurement.

    Attributes:
        value: the forecast, in the statistic's unit; null: no measurements.
        method: ``trend``, or ``last`` (the last value) if that had smaller errors so far; ``none``:
            there are no measurements.
        error: mean absolute error of the trend's forecasts so far; null: too few measurements.
        error_of_last: mean absolute error of last values as forecasts; null: too few measurements.
    """

    value: float | None
    method: str
    error: float | None
    error_of_last: float | None


class StepForecastOut(Document):
    """Forecasts of a step's hit ratio and of its matches per hit.

    Attributes:
        hit_ratio: forecast of the share of probing tuples with a match.
        matches_per_hit: forecast of the mean number of matches of each of these tuples.
    """

    hit_ratio: ForecastOut
    matches_per_hit: ForecastOut


class StepSeriesOut(Document):
    """Measurements of a step, one per period; null: no probes in the period.

    Attributes:
        joined: id of the sub-join over the labels of ``head`` and ``target``.
        head: labels of the probing tuples.
        target: labels of the rows of the probed store.
        part: the counted tuples: some substreams, or tuples that pass a look-ahead filter; empty:
            all tuples.
        probes: number of probing tuples.
        hit_ratio: share of the probing tuples with a match (gamma of dpPick).
        matches_per_hit: mean number of matches of each of these tuples (mu of dpPick).
        cpu_microseconds: CPU time of the workers per probing tuple, in microseconds.
        forecast: forecasts of the ratio and the matches; null: not requested.
    """

    joined: str
    head: list[str]
    target: list[str]
    part: str = ""
    probes: list[int | None]
    hit_ratio: list[float | None]
    matches_per_hit: list[float | None]
    cpu_microseconds: list[float | None]
    forecast: StepForecastOut | None = None


class StoreSeriesOut(Document):
    """Size of a store at the end of each period; null: the store did not exist.

    Attributes:
        tuples: number of stored rows.
        keys: key -> upper bound of its number of distinct values.
    """

    tuples: list[int | None]
    keys: dict[str, list[float | None]]


class SeriesOut(Document):
    """Measurements of the newest periods; every list has one element per period.

    Attributes:
        periods: the periods, oldest first.
        relations: relation -> tuples per second of wall time that arrived, after the local filter.
        steps: measurements of each step.
        stores: store -> its sizes.
        forecasts: relation -> forecast of its rate; null: not requested.
    """

    periods: list[PeriodOut]
    relations: dict[str, list[float | None]]
    steps: list[StepSeriesOut]
    stores: dict[str, StoreSeriesOut]
    forecasts: dict[str, ForecastOut] | None = None


class HistoryPointOut(Document):
    """Figures of the minutes that end at ``at``: of one minute, or of as many as requested.

    Attributes:
        at: time at which the minutes end.
        batch_seconds: mean duration of a batch in seconds; null: no batch was committed.
        rate: rows per second of the requested stream, or results per second of the requested query;
            if neither is requested, rows per second of all streams. Null: no runtime was running.
        freshness_p50: median of the seconds from the arrival of the oldest row of a batch to the
            batch's commit, over all batches and read streams, rounded up by at most 19 %; null: no
            row arrived, or the sources do not report arrivals.
        freshness_p99: the 99th percentile of the same seconds.
        minutes: number of recorded minutes.
        interrupted_minutes: number of recorded minutes with an interruption.
        interruption: the last interruption that was noticed at the end of a minute: no runtime is
            running, a stream of the query can't be read, or the sink does not accept results; null:
            none.
    """

    at: Time
    batch_seconds: float | None
    rate: float | None
    freshness_p50: float | None
    freshness_p99: float | None
    minutes: int
    interrupted_minutes: int
    interruption: str | None


class HistoryOut(Document):
    """Points of the last day, oldest first. A minute has no point if no service led during it, or
    if the runtime was started in it.

    Attributes:
        seconds: seconds between two points.
        items: the points.
    """

    seconds: int
    items: list[HistoryPointOut]
