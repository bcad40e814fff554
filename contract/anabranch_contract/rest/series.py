"""Bodies of time series of measurements."""

from __future__ import annotations

from anabranch_contract.rest.documents import Document


class PeriodOut(Document):
    """A period of measurements. ``until``: when it ended; ``seconds``: its length."""

    until: str | None
    seconds: float
    epoch: int
    ruleset_epoch: int
    batches: int


class StepSeriesOut(Document):
    """A step from ``head`` to ``target``, period by period; null where nothing probed.

    ``hit_ratio`` is the share of the probing tuples that found a match (gamma of dpPick),
    ``matches_per_hit`` the matches of each that did (mu), ``cpu_microseconds`` the workers' time
    per probing tuple.
    """

    joined: str
    head: list[str]
    target: list[str]
    probes: list[int | None]
    hit_ratio: list[float | None]
    matches_per_hit: list[float | None]
    cpu_microseconds: list[float | None]


class StoreSeriesOut(Document):
    """A store at the end of each period; null where it was not there. ``keys``: key -> distinct
    values, at most.
    """

    tuples: list[int | None]
    keys: dict[str, list[float | None]]


class SeriesOut(Document):
    """Measurements of the newest periods, oldest first; every list has one entry per period.

    ``relations`` has the tuples per second of wall time that arrived, after the local filter.
    """

    periods: list[PeriodOut]
    relations: dict[str, list[float | None]]
    steps: list[StepSeriesOut]
    stores: dict[str, StoreSeriesOut]
