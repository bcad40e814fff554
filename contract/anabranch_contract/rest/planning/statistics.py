"""REST bodies of epoch statistics and of samples of streams."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, JsonValue

from anabranch_contract.protocol.measurements import EdgeStatistics, StoreStatistics
from anabranch_contract.rest.documents import Document


class DelayOut(Document):
    """A bin of the histogram of delays behind the stream's greatest event time.

    Attributes:
        below_us: upper end of the bin in microseconds, exclusive; its lower end is the upper end of
            the previous bin. 1: no delay.
        tuples: number of tuples in the bin.
    """

    below_us: int
    tuples: int


class StreamStatisticsOut(Document):
    """Measurements of a stream in an epoch.

    Attributes:
        tuples: number of rows read, rejected ones included.
        late: number of tuples rejected as late.
        invalid: number of rows rejected because they do not fit the columns.
        ahead: number of tuples rejected because their event time was too far in the future.
        seconds: length of the epoch in seconds of wall time.
        event_seconds: growth of the greatest event time, in seconds; null: no event time.
        tuples_per_second: rows per second of wall time; null: the epoch has no length.
        tuples_per_event_second: valid tuples per second of event time; null: event time did not
            grow.
        delays: histogram of the valid tuples' delays, in order of the bins; empty: no event time.
        delay_us: quantile (``p50``, ``p90``, ``p99``, ``max``) -> upper bound of the delay in
            microseconds, at most twice the exact one.
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
        predicted_sent: the plan's prediction of ``sent`` for the epoch's batches; null: no
            prediction, e.g. in a plan for one host.
        predicted_sent_bytes: the plan's prediction of ``sent_bytes``; null: as ``predicted_sent``.
    """

    predicted_sent: float | None = None
    predicted_sent_bytes: float | None = None


class FrequentValueOut(Document):
    """A frequent value of a key attribute, with its shares of the tuples.

    Attributes:
        value: the value as text.
        arriving: share of the arriving tuples (0 to 1); recent batches have more weight.
        stored: share of all tuples so far (0 to 1).
    """

    value: str
    arriving: float
    stored: float


class FrequentValuesOut(Document):
    """Frequent values of a key attribute, and the shares of NULL, which is never listed.

    Attributes:
        values: the values, most frequent first.
        error: maximum error of a share (0 to 1), and maximum share of an unlisted value; shares may
            be too low, never too high.
        null_arriving: share of NULL among the arriving tuples (0 to 1).
        null_stored: share of NULL among all tuples so far (0 to 1).
    """

    values: list[FrequentValueOut]
    error: float
    null_arriving: float = 0.0
    null_stored: float = 0.0


class StatisticsOut(Document):
    """Measurements of one epoch.

    Attributes:
        epoch: number of the epoch.
        batches: number of its batches.
        hosts: number of hosts of its newest batch.
        locality: share of arriving bytes whose partition is on the host of arrival; null: unknown.
        streams: stream -> its measurements.
        stores: store -> its size and reads.
        edges: edge -> counts of its probes.
        distinct: relation -> key -> number of distinct values so far.
        values: relation -> key attribute -> its frequent values.
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
    """A value that occurs more than once in a sample.

    Attributes:
        value: the value.
        share: share of the sampled tuples that have it (0 to 1).
    """

    value: JsonValue
    share: float


class ColumnSampleOut(Document):
    """Statistics of a column in a sample of a stream. Dates are days, timestamps microseconds,
    decimals texts, binary values hexadecimal texts.

    Attributes:
        type: type of the column.
        nulls: share of NULL (0 to 1).
        distinct: number of distinct values in the sample.
        top: most frequent values.
        quantiles: minimum, quartiles and maximum; empty: there are no values.
    """

    type: str
    nulls: float
    distinct: int
    top: list[TopValueOut]
    quantiles: list[JsonValue]


class SampleOut(Document):
    """A uniform sample of the tuples that have been read of a stream.

    Attributes:
        stream: name of the stream.
        seen: number of tuples read so far.
        size: number of sampled tuples.
        columns: column -> its statistics in the sample.
    """

    stream: str
    seen: int
    size: int
    columns: dict[str, ColumnSampleOut]
