"""REST bodies of epoch statistics and of samples of streams."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, JsonValue

from anabranch_contract.protocol.measurements import EdgeStatistics, StoreStatistics
from anabranch_contract.rest.documents import Document


class DelayOut(Document):
    """A bin of the histogram of delays behind the stream's greatest event time: less than
    ``below_us`` microseconds (1: no delay), and at least the previous bin's ``below_us``.
    """

    below_us: int
    tuples: int


class StreamStatisticsOut(Document):
    """Measurements of a stream in an epoch: ``seconds`` of wall time, ``event_seconds`` of progress
    in event time; ``delay_us``: quantile -> upper bound of the delay, at most twice the exact one.
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
    """Measurements of an edge (a step of a probe order) in an epoch.

    Attributes:
        predicted_sent, predicted_sent_bytes: the plan's prediction for the epoch's batches; null:
            no prediction, e.g. in a plan for one host.
    """

    predicted_sent: float | None = None
    predicted_sent_bytes: float | None = None


class FrequentValueOut(Document):
    """A value of a key attribute, its share of the arriving tuples (recent batches count more), and
    of all tuples so far (``stored``).
    """

    value: str
    arriving: float
    stored: float


class FrequentValuesOut(Document):
    """Frequent values of a key attribute, most frequent first. Their shares may be too low by up to
    ``error``, and the share of any other value is at most ``error``. ``null_arriving`` and
    ``null_stored`` are the shares of NULL, which is never listed.
    """

    values: list[FrequentValueOut]
    error: float
    null_arriving: float = 0.0
    null_stored: float = 0.0


class StatisticsOut(Document):
    """Measurements of one epoch. ``distinct``: relation -> key -> number of distinct values so far;
    ``hosts``: number of hosts of its newest batch; ``locality``: share of arriving bytes whose
    partition is on the host of arrival (null: unknown); ``values``: relation -> key attribute ->
    its frequent values.
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
    """Statistics of a column of a sample. ``quantiles``: minimum, quartiles, maximum. Dates are
    days, timestamps microseconds, decimals texts, binary values hexadecimal texts.
    """

    type: str
    nulls: float
    distinct: int
    top: list[TopValueOut]
    quantiles: list[JsonValue]


class SampleOut(Document):
    """A uniform sample of ``size`` tuples from the ``seen`` tuples read of a stream."""

    stream: str
    seen: int
    size: int
    columns: dict[str, ColumnSampleOut]
