"""Statistics as the REST API, the metrics and the dashboard show them (``docs/statistics.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch_contract.codec import fields
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    FrequentValues,
    Snapshot,
    StreamSample,
    StreamStatistics,
)
from anabranch_contract.rest.planning.statistics import (
    ColumnSampleOut,
    DelayOut,
    EdgeStatisticsOut,
    FrequentValueOut,
    FrequentValuesOut,
    SampleOut,
    StatisticsOut,
    StreamStatisticsOut,
)
from anabranch_planner.cost.statistics.sampling import describe

#: Quantiles of tuple delays that are shown.
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def statistics_out(found: Snapshot, explain: Mapping[str, Any]) -> StatisticsOut:
    """Return one epoch's measurements, next to the values that its plan expected (``explain``)."""
    expected = explain.get("exchange", {}).get("edges", {})
    return StatisticsOut(
        epoch=found.epoch,
        batches=found.batches,
        hosts=found.on_hosts,
        locality=found.locality,
        streams={name: stream_statistics_out(s) for name, s in sorted(found.measured.items())},
        stores=dict(sorted(found.stores.items())),
        edges={
            name: edge_out(edge, expected.get(name), found.batches)
            for name, edge in sorted(found.edges.items())
        },
        distinct={name: keys for name, keys in sorted(found.distincts.items()) if keys},
        values={
            name: {key: _values_out(one) for key, one in sorted(keys.items())}
            for name, keys in sorted(found.values.items())
            if keys
        },
    )


def _values_out(found: FrequentValues) -> FrequentValuesOut:
    each = zip(found.texts, found.arriving, found.stored, strict=True)
    return FrequentValuesOut(
        values=[FrequentValueOut(value=v, arriving=a, stored=s) for v, a, s in each],
        error=found.error,
        null_arriving=found.null_arriving,
        null_stored=found.null_stored,
    )


def edge_out(
    edge: EdgeStatistics, expected: Mapping[str, float] | None = None, batches: int = 0
) -> EdgeStatisticsOut:
    """Return measurements of one edge, next to the traffic per batch that the plan ``expected``."""
    if expected is None:
        return EdgeStatisticsOut(**fields(edge))
    tuples, size = expected["tuples"] * batches, expected["bytes"] * batches
    return EdgeStatisticsOut(**fields(edge), predicted_sent=tuples, predicted_sent_bytes=size)


def stream_statistics_out(one: StreamStatistics) -> StreamStatisticsOut:
    """Return measurements of one stream during one epoch."""
    delay = {name: one.delay(share) for name, share in SHARES.items()}
    return StreamStatisticsOut.of(
        one,
        tuples=one.input,
        tuples_per_second=one.arrival_rate,
        tuples_per_event_second=one.event_rate,
        delays=[
            DelayOut(below_us=1 << position, tuples=count)
            for position, count in enumerate(one.delays)
        ],
        delay_us={name: micros for name, micros in delay.items() if micros is not None},
    )


def sample_out(stream: str, sample: StreamSample) -> SampleOut:
    """Return statistics of a stream's columns, from its sample."""
    return SampleOut.of(
        sample,
        stream=stream,
        columns={
            name: ColumnSampleOut.of(
                summary, top=[{"value": value, "share": share} for value, share in summary.top]
            )
            for name, summary in describe(sample).items()
        },
    )
