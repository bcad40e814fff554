"""Prometheus metrics of one service process, on a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from anabranch_contract.plans.rations import RationSchedule
from anabranch_contract.protocol.intake import SourceState
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Progress
from anabranch_service.presenters.records import floors_of
from anabranch_service.presenters.state import reads_of
from anabranch_service.registry.source_status import Sources


class Metrics:
    """The instruments; one set per application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"anabranch_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"anabranch_{name}", text, labels, registry=self.registry)

        # HTTP
        self.requests = counter("http_requests", "Requests served.", "method", "route", "status")
        self.latency = Histogram(
            "anabranch_http_request_seconds",
            "Time to serve a request.",
            ("method", "route"),
            registry=self.registry,
        )

        # Planning
        self.leader = gauge(
            "leader", "1 where this process plans and publishes, 0 where another does."
        )
        self.published = counter("epochs_published", "Epochs that this process published.")
        self.epoch = gauge("epoch_newest", "The newest published epoch.")
        self.solve = Histogram(
            "anabranch_solve_seconds",
            "Time to plan an epoch.",
            ("optimizer",),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
        self.cost = gauge(
            "plan_cost",
            "Cost of the newest published plan, and of the alternatives it is compared with.",
            "plan",
        )
        self.queries = gauge("planned_queries", "Queries of the newest published epoch.")
        self.rejected = counter("queries_rejected", "Queries that could not be planned.")
        self.loop_errors = counter(
            "epoch_loop_errors", "Times the epoch loop failed and tried again."
        )

        self.revisions = counter(
            "revisions_published", "Revisions of running rules, by why.", "reason"
        )
        self.revision_gain = gauge(
            "revision_gain",
            "Share of the running plan's cost that the newest revision saves: predicted, measured.",
            "how",
        )

        # The last epoch that ended: streams, stores, probes
        self.rates = gauge(
            "stream_tuples_per_second",
            "Tuples per second of wall time in the last epoch that ended.",
            "stream",
        )
        self.event_rates = gauge(
            "stream_tuples_per_event_second",
            "Tuples per second of event time in the last epoch that ended.",
            "stream",
        )
        self.delays = gauge(
            "stream_delay_seconds",
            "How far tuples were behind their stream in the last epoch, at most.",
            *("stream", "quantile"),
        )
        self.store_tuples = gauge(
            "store_tuples", "Tuples in a store when the last epoch ended.", "store"
        )
        self.store_bytes = gauge(
            "store_bytes", "Size of a store when the last epoch ended.", "store"
        )
        self.hit_rates = gauge(
            "store_hit_rate",
            "Share of the tuples sent to a store that found a partner, in the last epoch.",
            "store",
        )
        self.read_amplification = gauge(
            "store_read_amplification",
            "Segments of a store looked into per tuple sent to it, in the last epoch.",
            "store",
        )
        self.segments = counter(
            "probe_segments",
            "Segments that probing tuples met, by how: passed over for their batches, partition or "
            "time, excluded by a filter, looked into.",
            "how",
        )
        self.probes = counter(
            "probes", "Tuples that probed, in the epochs whose end this process has seen."
        )
        self.matches = counter("matches", "Matches that those probes found.")
        self.probe_seconds = counter("probe_seconds", "CPU time of those probes.")

        # The runtime at present
        self.waiting = gauge(
            "stream_waiting_tuples",
            "Tuples that have arrived and were not read yet (an estimate).",
            "stream",
        )
        self.waiting_seconds = gauge(
            "stream_waiting_seconds", "How long the oldest of them has been waiting.", "stream"
        )
        self.unreadable = gauge(
            "stream_unreadable", "1 where a stream's source can't be read at present.", "stream"
        )
        self.aside = gauge(
            "stream_aside_tuples",
            "Tuples that were set aside so far: late, ahead or invalid.",
            *("stream", "reason"),
        )
        self.row_limit = gauge(
            "batch_row_limit", "Rows that the next batch may bring; 0: any number."
        )
        self.private = gauge(
            "batch_private_bytes",
            "Private memory that the last batch's tasks took together, at most.",
        )
        self.memory_limit = gauge(
            "batch_memory_limit_bytes", "What that should stay below on each host; 0: any number."
        )

        self.owed = gauge(
            "owed_batches", "Batches of which withheld results are still to be made good."
        )
        self.budget = gauge(
            "ration_budget", "Share of rationed probes' CPU time that the next batch may take."
        )
        self.needed = gauge(
            "load", "Time that all work would take, as a share of the time there is; 0: unknown."
        )

        self.floor_needs = gauge(
            "floor_needs",
            "Share of rationed probes' CPU time that a query's floor of completeness needs.",
            "query",
        )
        self.floor_broken = gauge(
            "floor_broken", "1 where the budget does not suffice for a query's floor.", "query"
        )

    def observe(self, found: Snapshot) -> None:
        """Take over what was measured in an epoch that has ended."""
        for gauge in (self.rates, self.event_rates, self.delays):
            gauge.clear()
        for name, stream in found.measured.items():
            if stream.arrival_rate is not None:
                self.rates.labels(name).set(stream.arrival_rate)
            if stream.event_rate is not None:
                self.event_rates.labels(name).set(stream.event_rate)
            for share in (0.5, 0.9, 0.99):
                delay = stream.delay(share)
                if delay is not None:
                    self.delays.labels(name, str(share)).set(delay / 1e6)
        for gauge in (self.store_tuples, self.store_bytes, self.hit_rates, self.read_amplification):
            gauge.clear()
        for name, store in found.stores.items():
            self.store_tuples.labels(name).set(store.rows)
            self.store_bytes.labels(name).set(store.bytes)
            reads = reads_of(store)
            if reads.hit_rate is not None:
                self.hit_rates.labels(name).set(reads.hit_rate)
            if reads.read_amplification is not None:
                self.read_amplification.labels(name).set(reads.read_amplification)
            for how in ("by_batch", "by_partition", "by_time", "filtered", "looked"):
                self.segments.labels(how).inc(getattr(reads, how))
        for edge in found.edges.values():
            self.probes.inc(edge.probes)
            self.matches.inc(edge.matches)
            self.probe_seconds.inc(max(edge.seconds, 0.0))

    def show(
        self, progress: Progress | None, sources: Sources, schedule: RationSchedule | None
    ) -> None:
        """Take over what the runtime says of its sources, their tuples and its budget."""
        for gauge in (self.waiting, self.waiting_seconds, self.unreadable, self.aside):
            gauge.clear()
        for gauge in (self.floor_needs, self.floor_broken):
            gauge.clear()
        for query, (floor, broken) in floors_of(progress, schedule).items():
            self.floor_needs.labels(query).set(floor.needs)
            self.floor_broken.labels(query).set(broken)
        for stream, status in sources.reported.items() if sources.alive else ():
            self.unreadable.labels(stream).set(status.state is SourceState.FAILED)
        if progress is None:
            return
        for stream, intake in progress.intake.items():
            self.waiting.labels(stream).set(intake.waiting)
            self.waiting_seconds.labels(stream).set(intake.seconds)
        for stream, counts in progress.streams.items():
            for reason in ("late", "ahead", "invalid"):
                self.aside.labels(stream, reason).set(counts.get(reason, 0))
        self.row_limit.set(progress.row_limit or 0)
        self.private.set(progress.private_bytes)
        self.memory_limit.set(progress.memory_limit or 0)
        self.budget.set(progress.rationing.budget)
        self.owed.set(progress.rationing.owed)
        self.needed.set(progress.rationing.needed)
