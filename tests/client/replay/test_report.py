"""Tests of a replay's report, from what service and runtime report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_client.replay.player import Played, ScenarioCalls, schedule
from anabranch_client.replay.report import finish_results, make_report
from anabranch_client.replay.scenario import RecordedStream, Scenario, ScenarioQuery
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.protocol.activations import Activation, Failure, Visibility
from anabranch_contract.protocol.intake import InputProgress
from anabranch_contract.protocol.progress import Progress, Resources
from anabranch_contract.rest.planning.epochs import EpochOut
from anabranch_contract.rest.queries import QueryOut


def info(name: str) -> QueryOut:
    columns = [{"name": "id", "type": "bigint"}, {"name": "price", "type": "decimal(9,2)"}]
    return QueryOut.read({"id": name, "status": "active", "normalised": {"output": columns}})


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(
        streams=(RecordedStream("s", tmp_path, 2, 9, ()), RecordedStream("t", tmp_path, 5, 9, ())),
        queries=(
            ScenarioQuery("always", "SELECT 1"),
            ScenarioQuery("gone", "SELECT 2", expire_at=3),
            ScenarioQuery("late", "SELECT 3", register_at=4),
            ScenarioQuery("bad", "SELECT 4", register_at=3),
        ),
        every=2,
        optimizer={0: Optimizer.CLASH, 3: Optimizer.SHARED},
        parallelism=2,
    )


@pytest.fixture
def played() -> Played:
    problem = {"status": 422, "code": "unknown-stream", "detail": "no such stream"}
    return Played(
        registered={name: info(name) for name in ("always", "gone", "late")},
        refused={"bad": problem},
        progress=Progress(
            state="idle",
            committed=5,
            epoch=2,
            epoch_starts={"0": 0, "1": 2, "2": 4},
            streams={"s": {"input": 9, "late": 2, "invalid": 1}, "t": {"input": 9}},
            probes={"0": 10, "1": 20},
            resources=Resources(77),
            input=InputProgress(exhausted=True),
        ),
        activations={
            "always": Activation(
                activated_batch=0,
                visible_from={"a": Visibility(batch=0, event_time=None)},
            ),
            "gone": Activation(
                activated_batch=2,
                expired_batch=4,
                visible_from={"a": Visibility(batch=1, event_time=1_000_000)},
                complete_from=2_500_000,
                complete="from",
            ),
            "late": Activation(activated_batch=5, visible_from={}, expired_batch=None),
        },
        epochs=[
            EpochOut.read(
                {
                    "epoch": 0,
                    "optimizer": "clash",
                    "queries": ["always"],
                    "cost": 4.5,
                    "individual_cost": 6.0,
                    "gap": 0.0,
                    "solve_ms": 1.5,
                    "explain": {"totals": {}},
                }
            )
        ],
        seconds=2.0,
        cpu_seconds=3.0,
        peak_rss_bytes=1000,
    )


def test_the_report_has_exactly_what_it_promises(scenario: Scenario, played: Played) -> None:
    report = make_report(scenario, played, {"always": 3, "gone": 1, "late": 0})
    assert list(report) == [
        "batches", "input_tuples", "seconds", "cpu_seconds", "input_tuples_per_s",
        "peak_rss_bytes", "state_bytes", "late_tuples", "ahead_tuples", "invalid_tuples",
        "queries", "epochs",
    ]  # fmt: skip
    assert (report["batches"], report["input_tuples"], report["state_bytes"]) == (5, 18, 77)
    assert report["input_tuples_per_s"] == 9.0
    assert report["late_tuples"] == {"s": 2, "t": 0}
    assert report["invalid_tuples"] == {"s": 1, "t": 0}
    assert report["epochs"] == [
        {
            "epoch": 0,
            "first_batch": 0,
            "queries": ["always"],
            "optimizer": "clash",
            "cost": 4.5,
            "individual_cost": 6.0,
            "gap": 0.0,
            "solve_ms": 1.5,
            "probes": 10,
            "revisions": [],
            "plan": {"totals": {}},
        }
    ]


def test_queries_in_the_report(scenario: Scenario, played: Played) -> None:
    queries = make_report(scenario, played, {"always": 3, "gone": 1, "late": 0})["queries"]
    assert {name: q["status"] for name, q in queries.items()} == {
        "always": "active",
        "gone": "expired",
        "late": "pending",
        "bad": "rejected",
    }
    assert queries["always"]["visible_from"] == {"a": {"batch": 0, "event_time": None}}
    assert queries["always"]["complete_from"] is None
    gone = queries["gone"]
    assert (gone["activated_batch"], gone["expired_batch"], gone["results"]) == (2, 4, 1)
    assert gone["visible_from"]["a"] == {"batch": 1, "event_time": "1970-01-01T00:00:01Z"}
    assert gone["complete_from"] == "1970-01-01T00:00:02.500000Z"
    assert queries["late"]["activated_batch"] is None
    assert queries["bad"]["error"]["code"] == "unknown-stream"


def test_earlier_activations_in_the_report(scenario: Scenario, played: Played) -> None:
    gone = played.activations["gone"]
    before = replace(gone, activated_batch=0, expired_batch=2, results=1)
    played.activations["gone"] = replace(gone, earlier=(before,))
    queries = make_report(scenario, played, {"gone": 1})["queries"]
    assert (queries["gone"]["activated_batch"], queries["gone"]["expired_batch"]) == (2, 4)
    assert queries["gone"]["earlier"] == [
        {
            "activated_batch": 0,
            "complete": "from",
            "complete_from": "1970-01-01T00:00:02.500000Z",
            "visible_from": {"a": {"batch": 1, "event_time": "1970-01-01T00:00:01Z"}},
            "expired_batch": 2,
            "results": 1,
        }
    ]
    assert queries["always"]["earlier"] == queries["late"]["earlier"] == []


def test_a_failed_query_in_the_report(scenario: Scenario, played: Played) -> None:
    why = Failure(code="overflow", message="too large", expression="a * b", batch=4)
    gone = replace(played.activations["gone"], failure=why)
    played.activations["gone"] = gone
    said = make_report(scenario, played, {"gone": 1})["queries"]["gone"]
    assert (said["status"], said["expired_batch"]) == ("failed", 4)
    assert (said["error"]["code"], said["error"]["batch"]) == ("overflow", 4)
    assert (said["error"]["detail"], said["error"]["expression"]) == ("too large", "a * b")


def test_a_query_without_files_gets_an_empty_one(played: Played, tmp_path: Path) -> None:
    (tmp_path / "always").mkdir()
    for part in range(2):
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "always" / f"{part}.parquet")
    assert finish_results(played, tmp_path) == {"always": 4, "gone": 0, "late": 0}
    schema = pq.read_schema(*(tmp_path / "late").glob("*.parquet"))
    assert schema.equals(pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2))]))
    assert not (tmp_path / "bad").exists()
    assert finish_results(played, tmp_path) == {"always": 4, "gone": 0, "late": 0}


def test_calls_are_made_in_order_of_batches(scenario: Scenario) -> None:
    always, gone, late, bad = scenario.queries
    assert schedule(scenario) == {
        0: ScenarioCalls(register=(always, gone)),
        3: ScenarioCalls(optimizer=Optimizer.SHARED, register=(bad,), expire=(gone,)),
        4: ScenarioCalls(register=(late,)),
    }
    assert scenario.batches == 5
