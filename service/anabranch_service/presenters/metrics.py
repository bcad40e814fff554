"""Prometheus metrics of this service process, in a separate registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from anabranch_contract.protocol.measurements import Snapshot
from anabranch_service.presenters.state import reads_of


class Metrics:
    """Counters, gauges and histograms of one application."""

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
        self.published = counter("epochs_published", "Epochs published by this process.")
        self.passed_over = counter(
            "boundaries_passed_over",
            "Epoch boundaries skipped without a plan, since planning is slower than epochs.",
        )
        self.solve = Histogram(
            "anabranch_solve_seconds",
            "Time to plan an epoch.",
            ("optimizer",),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
        self.rejected = counter("queries_rejected", "Queries that could not be planned.")
        self.loop_errors = counter("epoch_loop_errors", "Failures of the epoch loop, each retried.")

        self.revisions = counter(
            "revisions_published", "Revisions of running rules, by reason.", "reason"
        )
        self.revision_gain = gauge(
            "revision_gain",
            "Share of the running plan's cost that the newest revision saves: predicted, measured.",
            "how",
        )

        self.lineage = counter(
            "lineage_events", "OpenLineage events, by outcome: sent, failed.", "outcome"
        )

        # Ended epochs that this process has handled
        self.segments = counter(
            "probe_segments",
            "Segments that probing tuples skipped by batches, partition or time, excluded by a "
            "filter, or searched (looked).",
            "how",
        )
        self.probes = counter(
            "probes", "Probing tuples, in the ended epochs that this process has handled."
        )
        self.matches = counter("matches", "Matches of these probes.")
        self.probe_seconds = counter("probe_seconds", "CPU time of these probes.")

    def observe(self, found: Snapshot) -> None:
        """Add an ended epoch's counts of probes, matches and segments."""
        for store in found.stores.values():
            reads = reads_of(store)
            for how in ("by_batch", "by_partition", "by_time", "filtered", "looked"):
                self.segments.labels(how).inc(getattr(reads, how))
        for edge in found.edges.values():
            self.probes.inc(edge.probes)
            self.matches.inc(edge.matches)
            self.probe_seconds.inc(max(edge.seconds, 0.0))
