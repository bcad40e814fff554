"""``anabranch demo``: five TPC-H joins planned together, answered by Spark, checked by DuckDB.

The scenario: ``q1``, ``q2`` and ``q4`` are registered at the start, ``q3`` and ``q5`` after a third
of the batches; ``q1`` is deleted after two thirds. An epoch is a fifth of the batches long.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from anabranch_client.processes.pipeline import Pipeline
from anabranch_client.render.tables import number, shared_lines, size, table_of
from anabranch_client.replay.oracle import Active, Comparison, compare
from anabranch_client.replay.scenario import RecordedStream, Scenario, ScenarioQuery
from anabranch_client.replay.tpch import QUERIES
from anabranch_client.times import took
from anabranch_contract.plans.plan import Optimizer

_LATE = frozenset({"q3", "q5"})
_LEAVING = "q1"
#: Maximum number of sentences about sharing in the summary on a terminal.
SHOWN = 6


def demo_scenario(streams: tuple[RecordedStream, ...], batches: int) -> Scenario:
    """The demo's scenario over the TPC-H ``streams``."""
    return Scenario(
        streams=streams,
        queries=tuple(
            ScenarioQuery(
                name=query.name,
                sql=query.sql,
                register_at=batches // 3 if query.name in _LATE else 0,
                expire_at=2 * batches // 3 if query.name == _LEAVING else None,
            )
            for query in QUERIES
        ),
        every=batches // 5,
        optimizer={0: Optimizer.CLASH},
        parallelism=2,
    )


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The outcome of the demo.

    Attributes:
        report: the replay's report.
        comparisons: query -> comparison of its results with the oracle's.
        epoch: the epoch whose costs and sharing are shown: the last one with the most queries.
        shared: the sharing of that epoch's plan, in sentences.
    """

    report: dict[str, Any]
    comparisons: dict[str, Comparison]
    epoch: dict[str, Any]
    shared: list[str]
    dashboard: str

    @property
    def exact(self) -> bool:
        """Whether the results of every query equal the oracle's."""
        return all(c.match for c in self.comparisons.values())

    def document(self) -> dict[str, Any]:
        """The demo's result as a JSON document."""
        return {
            "exact": self.exact,
            "queries": {
                name: {**asdict(c), "match": c.match} for name, c in self.comparisons.items()
            },
            "cost": {
                "epoch": self.epoch["epoch"],
                "queries": self.epoch["queries"],
                "jointly": self.epoch["cost"],
                "individually": self.epoch["individual_cost"],
            },
            "shared": self.shared,
            "dashboard": self.dashboard,
            "report": self.report,
        }


def check(scenario: Scenario, report: dict[str, Any], pipeline: Pipeline) -> DemoResult:
    """Compare the results of the demo's run with the oracle's."""
    runs = [(query, _active(report["queries"][query.name])) for query in QUERIES]
    busiest = max(report["epochs"], key=lambda e: (len(e["queries"]), e["epoch"]))
    return DemoResult(
        report=report,
        comparisons=compare(scenario.streams, runs, pipeline.spec.results),
        epoch=busiest,
        shared=shared_lines(busiest["plan"]),
        dashboard=pipeline.url,
    )


def _active(query: dict[str, Any]) -> Active | None:
    if query["activated_batch"] is None:
        return None
    return Active(
        activated=query["activated_batch"],
        expired=query["expired_batch"],
        visible_from={alias: seen["batch"] for alias, seen in query["visible_from"].items()},
    )


def demo_summary(result: DemoResult, home: Path, most: int | None = SHOWN) -> RenderableType:
    """The demo's summary, with at most ``most`` sentences about sharing (None: no limit)."""
    report, epoch = result.report, result.epoch
    figures = ("results", "oracle", "from batch", "to batch", "sees from")
    table = table_of("query", "results", "oracle", "match", *figures[2:], right=figures)
    for name, found in result.comparisons.items():
        query = report["queries"][name]
        sees = sorted({seen["batch"] for seen in query["visible_from"].values()})
        table.add_row(
            name,
            f"{found.results:,}",
            f"{found.expected:,}",
            Text("exact", style="green")
            if found.match
            else Text(f"{found.missing} missing, {found.surplus} too many", style="bold red"),
            number(query["activated_batch"]),
            number(query["expired_batch"]),
            ", ".join(map(str, sees)) or "–",
        )
    single, joint = epoch["individual_cost"], epoch["cost"]
    saving = f" ({1 - joint / single:.0%} less)" if single else ""
    shown = result.shared[:most]
    more = len(result.shared) - len(shown)
    lines = [
        f"plan cost (epoch {epoch['epoch']}, {len(epoch['queries'])} queries): "
        f"jointly {number(joint)}, individually {number(single)}{saving}",
        *(f"shared: {line}" for line in shown or ["nothing"]),
        *([f"shared: and {more} more"] if more > 0 else []),
        f"input: {report['input_tuples']:,} tuples in {took(report['seconds'])}, "
        f"{number(round(report['input_tuples_per_s']))} tuples/s, "
        f"{report['batches']} batches, {len(report['epochs'])} epochs",
        f"state: {size(report['state_bytes'])}; peak memory {size(report['peak_rss_bytes'])}",
        f"dashboard: {result.dashboard}",
        f"results and logs: {home}",
    ]
    return Group(table, *(Text(line) for line in lines))
