"""Bodies of ``/v1/series`` and ``/v1/history``: measurements over time."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Document, Time


class PeriodOut(Document):
    """A period of measurements that ended at ``until`` and was ``seconds`` long.

    ``drifted``: sudden changes of rates or steps at its first batch, which ended it early; at most
    ten.
    """

    until: str | None
    seconds: float
    epoch: int
    ruleset_epoch: int
    batches: int
    drifted: list[str] = Field(default_factory=list)


class ForecastOut(Document):
    """Forecast of a statistic two periods after the newest measurement.

    ``method`` is ``trend``, or ``last`` (the last value) if that had smaller errors so far;
    ``none``: no measurements. ``error`` is the mean absolute error of the trend's forecasts so
    far, ``error_of_last`` that of the last values; null: too few measurements.
    """

    value: float | None
    method: str
    error: float | None
    error_of_last: float | None


class StepForecastOut(Document):
    """Forecasts of a step's hit ratio and of its matches per hit."""

    hit_ratio: ForecastOut
    matches_per_hit: ForecastOut


class StepSeriesOut(Document):
    """Measurements of a step (tuples over ``head`` probe ``target``) per period; null: no probes.

    ``hit_ratio`` is the share of the probing tuples with a match (gamma of dpPick),
    ``matches_per_hit`` the mean matches of each of these (mu), ``cpu_microseconds`` the workers'
    time per probing tuple. ``part`` names the counted tuples: some substreams, or tuples that pass
    a look-ahead filter; empty: all tuples.
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
    """Size of a store at the end of each period; null: it did not exist. ``keys``: key -> upper
    bound of its distinct values.
    """

    tuples: list[int | None]
    keys: dict[str, list[float | None]]


class SeriesOut(Document):
    """Measurements of the newest periods, oldest first; every list has one entry per period.

    ``relations`` has the tuples per second of wall time that arrived, after the local filter.
    ``forecasts`` has their forecasts; these and the forecasts of steps are null unless requested.
    """

    periods: list[PeriodOut]
    relations: dict[str, list[float | None]]
    steps: list[StepSeriesOut]
    stores: dict[str, StoreSeriesOut]
    forecasts: dict[str, ForecastOut] | None = None


class HistoryPointOut(Document):
    """Figures of the minutes until ``at``: one, or as many as were requested."""

    at: Time
    batch_seconds: float | None = Field(
        description="Mean duration of a batch; null: no batch was committed."
    )
    rate: float | None = Field(
        description="Rows per second of the requested stream, or results per second of the "
        "requested query; without a request, rows per second of all streams. Null: no runtime "
        "worked."
    )
    freshness_p50: float | None = Field(
        description="Median of the seconds from the arrival of the oldest row of a batch to the "
        "batch's commit, over all batches and read streams, rounded up by at most 19 %; null: no "
        "row arrived, or the sources do not report arrivals."
    )
    freshness_p99: float | None = Field(description="The 99th percentile of the same seconds.")
    minutes: int = Field(description="Recorded minutes.")
    interrupted_minutes: int = Field(description="Recorded minutes with an interruption.")
    interruption: str | None = Field(
        description="The last interruption at the end of a minute: no runtime works, a read stream "
        "can't be read, or the sink does not take results."
    )


class HistoryOut(Document):
    """Points of the last day, oldest first. No point: in none of these minutes a service led
    without a new run of the runtime.
    """

    seconds: int = Field(description="Seconds between two points.")
    items: list[HistoryPointOut]
