"""Bodies of ``/v1/series`` and ``/v1/history``: measurements over time."""

from __future__ import annotations

from pydantic import Field

from anabranch_contract.rest.documents import Document, Time


class PeriodOut(Document):
    """A period of measurements. ``until``: when it ended; ``seconds``: its length.

    ``drifted``: at most ten sudden changes at its first batch, for which it ended early.
    """

    until: str | None
    seconds: float
    epoch: int
    ruleset_epoch: int
    batches: int
    drifted: list[str] = Field(default_factory=list)


class ForecastOut(Document):
    """An expected value, two periods after the newest.

    ``method`` is ``trend`` where a trend has missed by less than the last value would have, else
    ``last`` (``none``: nothing has been measured). ``error`` is by how much the trend's forecasts
    have missed on average so far, ``error_of_last`` the same of the last value; null before there
    are enough.
    """

    value: float | None
    method: str
    error: float | None
    error_of_last: float | None


class StepForecastOut(Document):
    """The forecasts of a step's figures."""

    hit_ratio: ForecastOut
    matches_per_hit: ForecastOut


class StepSeriesOut(Document):
    """A step from ``head`` to ``target``, period by period; null where nothing probed.

    ``hit_ratio`` is the share of the probing tuples with a match (gamma of dpPick),
    ``matches_per_hit`` the mean matches of each of these (mu), ``cpu_microseconds`` the workers'
    time per probing tuple. ``part`` names the counted tuples: some substreams of a start, or tuples
    that pass a look-ahead filter; empty: all.
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
    """A store at the end of each period; null where it was not there. ``keys``: key -> distinct
    values, at most.
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
    """Figures of the minute that ended ``at``."""

    at: Time
    batch_seconds: float | None = Field(
        description="That a batch took on average; null: none was committed."
    )
    rate: float | None = Field(
        description="Rows per second of the requested stream, or results per second of the "
        "requested query; null: no stream or query was requested."
    )


class HistoryOut(Document):
    """Points of the last day, oldest first. A minute in which no service led, or another run of the
    runtime began, has none.
    """

    seconds: int = Field(description="Between two points.")
    items: list[HistoryPointOut]
