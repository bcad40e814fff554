"""Statistics as the REST API, the metrics and the dashboard show them (``docs/statistics.md``)."""

from __future__ import annotations

from anabranch_contract.codec import to_json
from anabranch_contract.protocol.measurements import EdgeStatistics, Snapshot, StreamStatistics
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.protocol.samples import StreamSample
from anabranch_contract.rest.statistics import (
    ColumnSampleOut,
    DelayOut,
    EdgeStatisticsOut,
    ReadsOut,
    SampleOut,
    StatisticsOut,
    StoreStatisticsOut,
    StreamStatisticsOut,
    TopValueOut,
)
from anabranch_planner.cost.sampling import describe

#: Shares of the tuples whose delay is named.
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def statistics_out(found: Snapshot) -> StatisticsOut:
    """One epoch's statistics."""
    return StatisticsOut(
        epoch=found.epoch,
        batches=found.batches,
        streams={name: stream_statistics_out(s) for name, s in sorted(found.measured.items())},
        stores={
            name: StoreStatisticsOut(
                tuples=s.rows,
                bytes=s.bytes,
                segments=s.segments,
                keys=s.keys,
                reads={index: reads_out(found) for index, found in sorted(s.reads.items())},
            )
            for name, s in sorted(found.stores.items())
        },
        edges={name: edge_statistics_out(edge) for name, edge in sorted(found.edges.items())},
        distinct={name: keys for name, keys in sorted(found.distincts.items()) if keys},
    )


def reads_out(found: Reads) -> ReadsOut:
    """Counts with the ratios that follow from them."""
    return ReadsOut(
        **to_json(found),
        hit_rate=found.hit_rate,
        read_amplification=found.read_amplification,
        filtered_share=found.filtered_share,
        passed_share=found.passed_share,
    )


def edge_statistics_out(edge: EdgeStatistics) -> EdgeStatisticsOut:
    """One edge during one epoch."""
    return EdgeStatisticsOut(
        probes=edge.probes,
        hits=edge.hits,
        matches=edge.matches,
        pairs=edge.pairs,
        nanoseconds=edge.nanoseconds,
    )


def stream_statistics_out(one: StreamStatistics) -> StreamStatisticsOut:
    """One stream during one epoch."""
    delay = {name: one.delay(share) for name, share in SHARES.items()}
    return StreamStatisticsOut(
        tuples=one.input,
        late=one.late,
        invalid=one.invalid,
        ahead=one.ahead,
        seconds=one.seconds,
        event_seconds=one.event_seconds,
        tuples_per_second=one.arrival_rate,
        tuples_per_event_second=one.event_rate,
        delays=[
            DelayOut(below_us=1 << position, tuples=count)
            for position, count in enumerate(one.delays)
        ],
        delay_us={name: micros for name, micros in delay.items() if micros is not None},
    )


def sample_out(stream: str, sample: StreamSample) -> SampleOut:
    """What a sample tells about the columns of its stream."""
    return SampleOut(
        stream=stream,
        seen=sample.seen,
        size=sample.size,
        columns={
            name: ColumnSampleOut(
                type=summary.type,
                nulls=summary.nulls,
                distinct=summary.distinct,
                top=[TopValueOut(value=value, share=share) for value, share in summary.top],
                quantiles=list(summary.quantiles),
            )
            for name, summary in describe(sample).items()
        },
    )
