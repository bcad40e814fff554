"""Prometheus metrics of the pipeline, read from Redis: all services expose the same values.

:data:`FAMILIES` lists all of them; ``docs/operations.md`` documents them. Metrics of a
single service are in :mod:`.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from anabranch_contract.plans.rations import RationSchedule
from anabranch_contract.protocol.intake import SourceState
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import LATENCY_BOUNDS, Progress
from anabranch_contract.queries.outer_joins import registered
from anabranch_service.presenters.records import floors_of
from anabranch_service.presenters.state import reads_of
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.source_status import SourceStates

#: Label values and value of a metric's sample.
Sample = tuple[tuple[str, ...], float]
#: State of the pipeline -> samples of a metric.
Samples: TypeAlias = "Callable[[Observed], Iterable[Sample]]"


class MetricType(StrEnum):
    """Metric types of Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Observed:
    """State of the pipeline at one moment, as input of its metrics.

    Attributes:
        now: time in seconds since 1970.
        leads: whether this process is the leader.
        alive: whether the runtime is alive.
        plan: the newest published epoch.
        held: whether a plan waits for approval.
        snapshot: the measurements of the last ended epoch.
        query_cpu: query -> CPU seconds per second of its probes.
    """

    now: float
    leads: bool
    alive: bool = False
    progress: Progress | None = None
    sources: SourceStates | None = None
    schedule: RationSchedule | None = None
    plan: EpochRecord | None = None
    held: bool = False
    snapshot: Snapshot | None = None
    query_cpu: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric of the pipeline.

    Attributes:
        name: its name without the prefix ``anabranch_`` and a counter's suffix ``_total``.
        samples: function from the state to the samples; none if the value is unknown. Samples of a
            histogram are cumulative, labelled with the upper bound; the sum is labelled ``sum``.
    """

    kind: MetricType
    name: str
    help: str
    labels: tuple[str, ...]
    samples: Samples


def _one(read: Callable[[Observed], float | None]) -> Samples:
    """Return the samples of a metric without labels: the value of ``read``, or none if None."""

    def samples(seen: Observed) -> Iterator[Sample]:
        value = read(seen)
        if value is not None:
            yield (), float(value)

    return samples


def _progress(read: Callable[[Progress], Mapping[str, float]]) -> Samples:
    """Return a reader of samples with one label; ``read`` maps the label's values to samples."""

    def samples(seen: Observed) -> Iterator[Sample]:
        if seen.progress is not None:
            for name, value in sorted(read(seen.progress).items()):
                yield (name,), float(value)

    return samples


def _of_progress(read: Callable[[Progress], float]) -> Samples:
    return _one(lambda seen: None if seen.progress is None else read(seen.progress))


def _of_plan(read: Callable[[EpochRecord], float | None]) -> Samples:
    return _one(lambda seen: None if seen.plan is None else read(seen.plan))


def _costs(seen: Observed) -> Iterator[Sample]:
    if seen.plan is not None:
        costs = {
            "chosen": seen.plan.cost,
            "individual": seen.plan.individual_cost,
            "shared": seen.plan.shared_cost,
        }
        yield from (((plan,), cost) for plan, cost in costs.items() if cost is not None)


def _streams(read: Callable[[str, Snapshot], Mapping[tuple[str, ...], float | None]]) -> Samples:
    """Return a reader of samples per stream, from the last epoch's measurements."""

    def samples(seen: Observed) -> Iterator[Sample]:
        if seen.snapshot is not None:
            for name in sorted(seen.snapshot.measured):
                found = read(name, seen.snapshot)
                yield from (((name, *more), v) for more, v in found.items() if v is not None)

    return samples


def _stores(read: Callable[[str, Snapshot], float | None]) -> Samples:
    """Return a reader of samples per store, from the last epoch's measurements."""

    def samples(seen: Observed) -> Iterator[Sample]:
        if seen.snapshot is not None:
            for name in sorted(seen.snapshot.stores):
                value = read(name, seen.snapshot)
                if value is not None:
                    yield (name,), float(value)

    return samples


def _delays(name: str, found: Snapshot) -> dict[tuple[str, ...], float | None]:
    stream = found.measured[name]
    delays = {share: stream.delay(share) for share in (0.5, 0.9, 0.99)}
    return {(str(share),): None if d is None else d / 1e6 for share, d in delays.items()}


def _unreadable(seen: Observed) -> Iterator[Sample]:
    if seen.sources is not None and seen.sources.alive:
        for stream, status in sorted(seen.sources.reported.items()):
            yield (stream,), float(status.state is SourceState.FAILED)


def _aside(seen: Observed) -> Iterator[Sample]:
    for stream, counts in sorted({} if seen.progress is None else seen.progress.streams.items()):
        for reason in ("late", "ahead", "invalid"):
            yield (stream, reason), float(counts.get(reason, 0))


def _floors(read: str) -> Samples:
    def samples(seen: Observed) -> Iterator[Sample]:
        for query, (floor, broken) in sorted(floors_of(seen.progress, seen.schedule).items()):
            yield (query,), float(floor.needs if read == "needs" else broken)

    return samples


def _latencies(seen: Observed) -> Iterator[Sample]:
    if seen.progress is None or not seen.progress.telemetry.latencies.counts:
        return
    found, total = seen.progress.telemetry.latencies, 0
    for bound, count in zip((*map(str, LATENCY_BOUNDS), "+Inf"), found.counts, strict=True):
        total += count
        yield (bound,), float(total)
    yield ("sum",), found.seconds


def _commit_age(seen: Observed) -> float | None:
    if seen.progress is None or not seen.progress.telemetry.committed_at:
        return None
    return max(seen.now - seen.progress.telemetry.committed_at, 0.0)


def _watermark_lags(seen: Observed) -> Iterator[Sample]:
    marks = {} if seen.progress is None else seen.progress.telemetry.watermarks
    yield from (((stream,), seen.now - mark / 1e6) for stream, mark in sorted(marks.items()))


def _results(progress: Progress) -> dict[str, float]:
    """Map each query to the number of rows in its sink; joins inside outer joins have no entry."""
    names = (name for name in progress.results if registered(name) == name)
    return {name: progress.shown.get(name, progress.results[name]) for name in names}


def _gauge(name: str, text: str, samples: Samples, *labels: str) -> Family:
    return Family(MetricType.GAUGE, name, text, labels, samples)


def _counter(name: str, text: str, samples: Samples, *labels: str) -> Family:
    return Family(MetricType.COUNTER, name, text, labels, samples)


#: All metrics of the pipeline.
FAMILIES: tuple[Family, ...] = (
    # Leadership and planning
    _gauge(
        "leader", "1 if this process is the leader, 0 otherwise.", _one(lambda seen: seen.leads)
    ),
    _gauge("epoch_newest", "The newest published epoch.", _of_plan(lambda plan: plan.epoch)),
    _gauge(
        "planned_queries",
        "Queries of the newest published epoch.",
        _of_plan(lambda plan: len(plan.queries)),
    ),
    _gauge(
        "plan_cost",
        "Cost of the newest published plan, and of the alternatives it is compared with.",
        _costs,
        "plan",
    ),
    _gauge(
        "plan_gap_ratio",
        "Optimality gap of the newest plan, as a share of its cost; 0: proven optimal.",
        _of_plan(lambda plan: plan.gap),
    ),
    _gauge(
        "plan_fallback",
        "1 if the newest plan is a fallback from the chosen optimiser.",
        _of_plan(lambda plan: bool(plan.fallback)),
    ),
    _gauge("plan_held", "1 if a plan waits for approval.", _one(lambda seen: seen.held)),
    # The runtime and its batches
    _gauge(
        "runtime_up",
        "1 if the runtime's heartbeat is at most ten seconds old.",
        _one(lambda seen: seen.alive),
    ),
    _counter(
        "batches",
        "Batches committed by this run of the runtime.",
        _of_progress(lambda p: p.telemetry.batches),
    ),
    _counter(
        "batch_seconds",
        "Total time of the batches of this run, in seconds.",
        _of_progress(lambda p: p.telemetry.seconds),
    ),
    _counter(
        "batch_phase_seconds",
        "Seconds of batches by phase: enter and commit (driver), spark, else of the slowest task.",
        _progress(lambda p: p.telemetry.phases),
        "phase",
    ),
    _gauge(
        "commit_age_seconds",
        "Seconds since the last commit of this run; also grows without input.",
        _one(_commit_age),
    ),
    Family(
        MetricType.HISTOGRAM,
        "arrival_to_commit_seconds",
        "Seconds from arrival to commit of the oldest row per stream and batch of this run.",
        (),
        _latencies,
    ),
    _gauge(
        "state_bytes", "Size of the stored state.", _of_progress(lambda p: p.resources.state_bytes)
    ),
    _gauge(
        "compaction_due_bytes",
        "Size of the stored segments due for merging.",
        _of_progress(lambda p: p.telemetry.merge_bytes),
    ),
    _gauge(
        "backfill_remaining_ratio",
        "Share of a store's backfill that remains.",
        _progress(lambda p: {store: 1.0 - done for store, done in p.backfill.items()}),
        "store",
    ),
    _gauge(
        "batch_row_limit",
        "Row limit of the next batch; 0: none.",
        _of_progress(lambda p: p.input.row_limit or 0),
    ),
    _gauge(
        "batch_private_bytes",
        "Peak private memory of the last batch's tasks together.",
        _of_progress(lambda p: p.resources.private_bytes),
    ),
    _gauge(
        "batch_memory_limit_bytes",
        "Limit of the private memory of a host's tasks; 0: none.",
        _of_progress(lambda p: p.resources.memory_limit or 0),
    ),
    # Streams
    _gauge(
        "stream_input_tuples",
        "Tuples read so far.",
        _progress(lambda p: {name: c.get("input", 0) for name, c in p.streams.items()}),
        "stream",
    ),
    _gauge(
        "stream_aside_tuples",
        "Tuples rejected so far: late, too far in the future, or invalid.",
        _aside,
        "stream",
        "reason",
    ),
    _gauge(
        "stream_waiting_tuples",
        "Arrived tuples not read yet (an estimate).",
        _progress(lambda p: {name: i.waiting for name, i in p.input.intake.items()}),
        "stream",
    ),
    _gauge(
        "stream_waiting_seconds",
        "Waiting time of the oldest tuple not read yet.",
        _progress(lambda p: {name: i.seconds for name, i in p.input.intake.items()}),
        "stream",
    ),
    _gauge(
        "stream_unreadable",
        "1 if a stream's source can't be read at present.",
        _unreadable,
        "stream",
    ),
    _gauge(
        "stream_watermark_lag_seconds",
        "Delay of a stream's watermark behind the clock.",
        _watermark_lags,
        "stream",
    ),
    _gauge(
        "stream_tuples_per_second",
        "Tuples per second of wall time in the last complete epoch.",
        _streams(lambda name, s: {(): s.measured[name].arrival_rate}),
        "stream",
    ),
    _gauge(
        "stream_tuples_per_event_second",
        "Tuples per second of event time in the last complete epoch.",
        _streams(lambda name, s: {(): s.measured[name].event_rate}),
        "stream",
    ),
    _gauge(
        "stream_delay_seconds",
        "Maximum delay of tuples behind their stream in the last complete epoch.",
        _streams(_delays),
        "stream",
        "quantile",
    ),
    # Queries
    _gauge(
        "query_results",
        "Results in a query's sink; for a view, its rows.",
        _progress(_results),
        "query",
    ),
    _gauge(
        "query_cpu_seconds_per_second",
        "CPU time of a query's steps over the last periods; shared steps split equally.",
        lambda seen: (((query,), cpu) for query, cpu in sorted(seen.query_cpu.items())),
        "query",
    ),
    _gauge(
        "query_parked_batches",
        "Batches whose results wait for a query's sink.",
        _progress(lambda p: p.telemetry.parked),
        "query",
    ),
    _gauge(
        "view_lag_batches",
        "Committed batches not yet applied to a view.",
        _progress(lambda p: p.telemetry.view_lag),
        "query",
    ),
    # Stores
    _gauge(
        "store_tuples",
        "Tuples in a store at the end of the last epoch.",
        _stores(lambda name, s: s.stores[name].rows),
        "store",
    ),
    _gauge(
        "store_bytes",
        "Size of a store at the end of the last epoch.",
        _stores(lambda name, s: s.stores[name].bytes),
        "store",
    ),
    _gauge(
        "store_hit_rate",
        "Share of probing tuples with a match in a store, in the last epoch.",
        _stores(lambda name, s: reads_of(s.stores[name]).hit_rate),
        "store",
    ),
    _gauge(
        "store_read_amplification",
        "Segments of a store read per probing tuple, in the last epoch.",
        _stores(lambda name, s: reads_of(s.stores[name]).read_amplification),
        "store",
    ),
    # Overload
    _gauge(
        "load",
        "Time that all work needs, as a share of the available time; 0: unknown.",
        _of_progress(lambda p: p.rationing.needed),
    ),
    _gauge(
        "ration_budget",
        "Budget of the next batch, as a share of rationed probes' CPU time.",
        _of_progress(lambda p: p.rationing.budget),
    ),
    _gauge(
        "owed_batches",
        "Batches with withheld results still to be caught up.",
        _of_progress(lambda p: p.rationing.owed),
    ),
    _gauge(
        "floor_needs",
        "CPU time for a query's completeness floor, as a share of rationed probes' CPU time.",
        _floors("needs"),
        "query",
    ),
    _gauge("floor_broken", "1 if the budget is below a query's floor.", _floors("broken"), "query"),
)


class _Collected:
    """A collector for ``prometheus_client`` that yields the metrics of one moment."""

    def __init__(self, seen: Observed) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with a known value."""
        for family in FAMILIES:
            samples = list(family.samples(self._seen))
            if samples:
                yield _metric(family, samples)


def _metric(family: Family, samples: list[Sample]) -> Metric:
    name = f"anabranch_{family.name}"
    if family.kind is MetricType.HISTOGRAM:
        *buckets, (_, total) = samples
        return HistogramMetricFamily(
            name, family.help, buckets=[(bound, n) for (bound,), n in buckets], sum_value=total
        )
    kind = CounterMetricFamily if family.kind is MetricType.COUNTER else GaugeMetricFamily
    found = kind(name, family.help, labels=family.labels)
    for labels, value in samples:
        found.add_metric(labels, value)
    return found


def exposition(seen: Observed) -> bytes:
    """Return the metrics of the pipeline in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(seen))
    return generate_latest(registry)
