"""Statistics as the REST API, the metrics and the dashboard show them (``docs/statistics.md``)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from anabranch_planner.exchange import Snapshot, StreamStatistics
from anabranch_planner.plain import plain
from anabranch_planner.sampling import StreamSample, describe
from anabranch_planner.state_report import StateReport
from anabranch_service.wire import (
    ColumnSampleOut,
    DelayOut,
    EdgeStatisticsOut,
    LevelOut,
    SampleOut,
    StateOut,
    StatisticsOut,
    StoreOut,
    StoreStatisticsOut,
    StreamStatisticsOut,
    TopValueOut,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Shares of the tuples whose delay is named.
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def statistics_out(found: Snapshot) -> StatisticsOut:
    """One epoch's statistics."""
    return StatisticsOut(
        epoch=found.epoch,
        batches=found.batches,
        streams={name: stream_statistics_out(s) for name, s in sorted(found.measured.items())},
        stores={
            name: StoreStatisticsOut(tuples=s.rows, bytes=s.bytes, segments=s.segments, keys=s.keys)
            for name, s in sorted(found.stores.items())
        },
        edges={
            name: EdgeStatisticsOut(
                probes=e.probes,
                hits=e.hits,
                matches=e.matches,
                pairs=e.pairs,
                nanoseconds=e.nanoseconds,
            )
            for name, e in sorted(found.edges.items())
        },
        distinct={name: keys for name, keys in sorted(found.distincts.items()) if keys},
    )


def state_out(
    report: StateReport, statistics: Snapshot | None, ruleset: Mapping[str, Any] | None
) -> StateOut:
    """The stores, with what was probed in the epoch of ``statistics`` by ``ruleset``, its wire
    document.
    """
    probes: Counter[str] = Counter()
    matches: Counter[str] = Counter()
    if statistics is not None and ruleset is not None:
        for rule in ruleset["rules"]["probe"]:
            edge = statistics.edges.get(rule["out"])
            if edge is not None:
                probes[rule["store"]] += edge.probes
                matches[rule["store"]] += edge.matches
    return StateOut(
        **{
            **plain(report),
            "stores": [
                StoreOut(
                    **{**plain(store), "levels": [LevelOut(**plain(x)) for x in store.levels]},
                    probes=probes.get(store.store),
                    matches=matches.get(store.store),
                )
                for store in report.stores
            ],
        }
    )


def stream_statistics_out(one: StreamStatistics) -> StreamStatisticsOut:
    """One stream during one epoch."""
    delay = {name: one.delay(share) for name, share in SHARES.items()}
    return StreamStatisticsOut(
        tuples=one.input,
        late=one.late,
        invalid=one.invalid,
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
