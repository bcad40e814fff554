"""Tests of pipeline metrics: each is in the documented table, with its type and labels, and no
others are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch_contract.plans.rations import Floor, RationSchedule, SchedulePoint
from anabranch_contract.protocol.intake import (
    InputProgress,
    SourceState,
    SourceStatus,
    StreamIntake,
)
from anabranch_contract.protocol.measurements import Snapshot, StoreStatistics, StreamStatistics
from anabranch_contract.protocol.progress import Latencies, Progress, Telemetry
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.queries.joins import QueryId
from anabranch_service.presenters.metrics import Metrics
from anabranch_service.presenters.pipeline_metrics import FAMILIES, Observed, exposition
from anabranch_service.registry.source_status import SourceStates
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

DOCUMENT = Path(__file__).parents[3] / "docs" / "operations.md"
ROW = re.compile(r"^\| `(anabranch_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str, str]]:
    """Return name, type, labels and meaning of all metrics in the table."""
    found = []
    for one in Metrics().registry.collect():
        instrument = Metrics().registry._names_to_collectors[one.name]
        labels = getattr(instrument, "_labelnames", ())
        found.append((one.name, one.type, labels, one.documentation))
    found += [(f"anabranch_{f.name}", str(f.kind), f.labels, f.help) for f in FAMILIES]
    return sorted(
        (
            f"{name}_total" if kind == "counter" else name,
            kind,
            ", ".join(f"`{label}`" for label in labels),
            text,
        )
        for name, kind, labels, text in found
    )


def test_the_table_has_every_metric_as_it_is() -> None:
    assert [tuple(map(str.strip, row)) for row in ROW.findall(DOCUMENT.read_text())] == rows()


TELEMETRY = Telemetry(
    batches=7,
    seconds=3.5,
    phases={"enter": 0.5, "probe": 3.0},
    committed_at=990.0,
    latencies=Latencies().adding(0.3).adding(4.0),
    watermarks={"orders": 940_000_000},
    parked={"pair": 2},
    view_lag={"busiest": 1},
    merge_bytes=4096,
)
PROGRESS = Progress(
    "running",
    committed=9,
    epoch=1,
    ruleset_epoch=0,
    streams={"orders": {"input": 50, "late": 1, "invalid": 0, "ahead": 0}},
    results={"pair": 12, "busiest": 40, "busiest+left": 3},
    shown={"busiest": 21},
    input=InputProgress({"orders": StreamIntake(5, 0.25)}),
    backfill={"orders/1": 0.25},
    telemetry=TELEMETRY,
)


def values(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_known_of_a_pipeline_is_shown() -> None:
    seen = Observed(1000.0, leads=True, alive=True, progress=PROGRESS, query_cpu={"pair": 0.01})
    found = values(exposition(seen).decode())
    expected = {
        ("leader",): 1,
        ("runtime_up",): 1,
        ("batches_total",): 7,
        ("batch_seconds_total",): 3.5,
        ("batch_phase_seconds_total", "probe"): 3,
        ("commit_age_seconds",): 10,
        ("arrival_to_commit_seconds_bucket", "0.25"): 0,
        ("arrival_to_commit_seconds_bucket", "0.5"): 1,
        ("arrival_to_commit_seconds_bucket", "+Inf"): 2,
        ("arrival_to_commit_seconds_sum",): 4.3,
        ("stream_watermark_lag_seconds", "orders"): 60,
        ("stream_input_tuples", "orders"): 50,
        ("query_results", "pair"): 12,
        ("query_results", "busiest"): 21,
        ("query_cpu_seconds_per_second", "pair"): 0.01,
        ("query_parked_batches", "pair"): 2,
        ("view_lag_batches", "busiest"): 1,
        ("compaction_due_bytes",): 4096,
        ("backfill_remaining_ratio", "orders/1"): 0.75,
    }
    assert {k: found[f"anabranch_{k[0]}", *k[1:]] for k in expected} == pytest.approx(expected)
    assert ("anabranch_query_results", "busiest+left") not in found


def test_of_a_pipeline_that_never_ran_little_is_known() -> None:
    found = values(exposition(Observed(1000.0, leads=False)).decode())
    names = ("anabranch_leader", "anabranch_plan_held", "anabranch_runtime_up")
    assert found == {(name,): 0 for name in names}


def test_every_metric_can_be_had() -> None:
    seen = Observed(
        1000.0,
        leads=True,
        progress=PROGRESS,
        sources=SourceStates({"orders": SourceStatus("1", SourceState.FAILED)}, alive=True),
        schedule=RationSchedule(
            *(0, 0, (), (SchedulePoint(0.0, ()),)), floors=(Floor(QueryId("pair"), 0.9, 0.4),)
        ),
        snapshot=Snapshot(
            *(0, 1, 1),
            measured={"orders": StreamStatistics(9, seconds=1.0, event_seconds=2.0, delays=(9,))},
            stores={"orders/1": StoreStatistics(9, 90, 1, reads={"k": Reads(probes=4, looked=2)})},
        ),
        query_cpu={"pair": 0.01},
    )
    found = exposition(seen).decode()
    # Metrics of the plan need a planning service, as in the next test.
    of_plan = {"epoch_newest", "planned_queries", "plan_cost", "plan_gap_ratio", "plan_fallback"}
    missing = {f.name for f in FAMILIES if f"\n# HELP anabranch_{f.name}" not in f"\n{found}"}
    assert missing == of_plan
    assert values(found)["anabranch_stream_unreadable", "orders"] == 1
    assert values(found)["anabranch_stream_delay_seconds", "0.9", "orders"] == 0


def test_every_service_shows_the_pipeline(shop: Service) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    shop.plan(-1)
    shop.progress(PROGRESS)
    found = values(shop.http.get("/metrics").text)
    assert found["anabranch_epoch_newest",] == 0
    assert found["anabranch_plan_fallback",] == 0
    assert found["anabranch_planned_queries",] == 1
    assert found["anabranch_plan_cost", "individual"] > 0
    assert found["anabranch_plan_gap_ratio",] == 0
    assert found["anabranch_query_parked_batches", "pair"] == 2
    assert found["anabranch_epochs_published_total",] == 1
