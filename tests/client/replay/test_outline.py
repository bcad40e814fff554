"""Tests of a replay's outline, with notes on probable mistakes."""

from __future__ import annotations

from pathlib import Path

from anabranch_client.replay.outline import notes, outline
from anabranch_client.replay.scenario import RecordedStream, Scenario, ScenarioQuery
from anabranch_contract.plans.plan import Optimizer


def scenario(rows: int, *queries: ScenarioQuery) -> Scenario:
    stream = RecordedStream("s", Path("s.parquet"), 2, rows, (("k", "int"),))
    return Scenario((stream,), queries, every=3, optimizer={0: Optimizer.CLASH}, parallelism=1)


def test_queries_begin_with_the_epoch_after_their_registration() -> None:
    registered = [ScenarioQuery(f"q{n}", "SELECT 1", register_at=n) for n in (0, 1, 3, 5, 6)]
    found = outline(scenario(16, *registered))
    assert found["batches"] == found["streams"]["s"]["batches"] == 8
    begins = {name: q["active_from"] for name, q in found["queries"].items()}
    assert begins == {"q0": 0, "q1": 3, "q3": 6, "q5": 6, "q6": None}
    (note,) = found["notes"]
    assert note.startswith("queries.q6: never active, as the input ends with batch 7")


def test_an_empty_input() -> None:
    (note,) = notes(scenario(0, ScenarioQuery("q", "SELECT 1")))
    assert note == "queries.q: never active, as the input is empty"
