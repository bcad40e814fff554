"""Prometheus metrics of one service process, on a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """The instruments; one set per application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "anabranch_http_requests",
            "Requests served.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.latency = Histogram(
            "anabranch_http_request_seconds",
            "Time to serve a request.",
            ("method", "route"),
            registry=self.registry,
        )
        self.published = Counter(
            "anabranch_epochs_published",
            "Epochs that this process published.",
            registry=self.registry,
        )
        self.epoch = Gauge(
            "anabranch_epoch_newest", "The newest published epoch.", registry=self.registry
        )
        self.solve = Histogram(
            "anabranch_solve_seconds",
            "Time to plan an epoch.",
            ("optimizer",),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
        self.cost = Gauge(
            "anabranch_plan_cost",
            "Cost of the newest published plan, and of the alternatives it is compared with.",
            ("plan",),
            registry=self.registry,
        )
        self.queries = Gauge(
            "anabranch_planned_queries",
            "Queries of the newest published epoch.",
            registry=self.registry,
        )
        self.rejected = Counter(
            "anabranch_queries_rejected",
            "Queries that could not be planned.",
            registry=self.registry,
        )
        self.loop_errors = Counter(
            "anabranch_epoch_loop_errors",
            "Times the epoch loop failed and tried again.",
            registry=self.registry,
        )
