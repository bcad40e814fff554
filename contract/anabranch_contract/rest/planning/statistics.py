"""Bodies of statistics and samples."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, JsonValue

from anabranch_contract.protocol.measurements import EdgeStatistics, StoreStatistics
from anabranch_contract.rest.documents import Document


class DelayOut(Document):
    """Tuples by how far they were behind their stream: less than ``below_us`` microseconds (1: not
    at all), and not less than the class before.
    """

    below_us: int
    tuples: int


class StreamStatisticsOut(Document):
    """One stream during one epoch. ``seconds`` is wall time, ``event_seconds`` event time that it
    advanced by; ``delay_us`` has upper bounds, each at most twice what it stands for.
    """

    tuples: int
    late: int
    invalid: int
    ahead: int
    seconds: float
    event_seconds: float | None
    tuples_per_second: float | None
    tuples_per_event_second: float | None
    delays: list[DelayOut]
    delay_us: dict[str, int]


@dataclass(slots=True)
class EdgeStatisticsOut(EdgeStatistics):
    """One edge during one epoch.

    Attributes:
        predicted_sent, predicted_sent_bytes: the plan's expectations for as many batches; null:
            none, e.g. because it was planned for one host.
    """

    predicted_sent: float | None = None
    predicted_sent_bytes: float | None = None


class FrequentValueOut(Document):
    """A value of a key attribute, its share of the tuples that arrive (recent ones count more) and
    of all tuples so far.
    """

    value: str
    arriving: float
    stored: float


class FrequentValuesOut(Document):
    """Frequent values of a key attribute, most frequent first. A share may be too low by ``error``,
    and no other value has a greater share. ``null_arriving`` and ``null_stored`` are the shares of
    NULL, which is no value.
    """

    values: list[FrequentValueOut]
    error: float
    null_arriving: float = 0.0
    null_stored: float = 0.0


class StatisticsOut(Document):
    """Measurements of one epoch; ``distinct``: relation -> key -> distinct values so far,
    ``hosts``: that its newest batch ran on, ``locality``: the share of arriving tuples, by bytes,
    that find their partitions on the host on which they arrive (null: not known), ``values``:
    relation -> key attribute -> its frequent values.
    """

    epoch: int
    batches: int
    hosts: int = 1
    locality: float | None = None
    streams: dict[str, StreamStatisticsOut]
    stores: dict[str, StoreStatistics]
    edges: dict[str, EdgeStatisticsOut]
    distinct: dict[str, dict[str, float]]
    values: dict[str, dict[str, FrequentValuesOut]] = Field(default_factory=dict)


class TopValueOut(Document):
    """A value that occurs more than once in a sample, and the share of tuples that have it."""

    value: JsonValue
    share: float


class ColumnSampleOut(Document):
    """A column in a sample. ``quantiles``: the least value, the quartiles, the greatest. Dates are
    days, timestamps microseconds, decimals texts, binary is hexadecimal.
    """

    type: str
    nulls: float
    distinct: int
    top: list[TopValueOut]
    quantiles: list[JsonValue]


class SampleOut(Document):
    """``size`` tuples drawn uniformly from the ``seen`` that a stream has brought."""

    stream: str
    seen: int
    size: int
    columns: dict[str, ColumnSampleOut]
