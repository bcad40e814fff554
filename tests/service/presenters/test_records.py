"""Tests of runs as clients see them: location of the results without secrets, results of the past,
loss.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from anabranch_contract.protocol.activations import (
    Activation,
    LeftRows,
    PastResults,
    PastStatus,
)
from anabranch_contract.protocol.progress import Progress, Rationing
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_contract.rest.normalised import NormalisedInfo, OuterInfo
from anabranch_contract.rest.queries import SinkRecord
from anabranch_service.presenters.records import query_out, results_at, run_out
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.source_status import SourceStates

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RUNNING = Progress("running", epoch=1, results_home="/results")


def record(**fields: object) -> QueryRecord:
    meaning = NormalisedInfo(
        aliases=(), classes=(), bounds=(), unbounded=(), residuals=(), output=()
    )
    base = QueryRecord(id="q~2", sequence=1, created_at=NOW, sql="SELECT 1", normalised=meaning)
    return base.model_copy(update=fields)


@pytest.mark.parametrize(
    ("sink", "place"),
    [
        (SinkRecord(), "/results/q~2"),
        (SinkRecord(format="json"), "/results/q~2"),
        (SinkRecord(format="json", path="/elsewhere"), "/elsewhere"),
        (SinkRecord(format="count"), None),
        (SinkRecord(format="redis-stream"), "Redis Stream results:q~2"),
        (SinkRecord(format="redis-stream", options={"stream": "s"}), "Redis Stream s"),
        (SinkRecord(format="kafka", options={"topic": "t"}), "kafka t"),
    ],
)
def test_every_sink_has_a_place_that_can_be_shown(sink: SinkRecord, place: str | None) -> None:
    assert results_at(record(sink=sink), RUNNING) == place


def test_before_the_runtime_has_said_where_results_go_the_place_is_described() -> None:
    assert results_at(record(), None) == "<results directory>/q~2"


def test_a_run_is_shown_under_its_query_with_what_has_come_of_its_past() -> None:
    past = PastResults(PastStatus.EMITTED, 7, 0)
    found = Activation(3, {}, results=9, past=past)
    shown = query_out(record(past="stored"), found, RUNNING, SourceStates({}, alive=True), NOW)
    assert (shown.id, shown.run, shown.results, shown.past) == ("q", "q~2", 9, "stored")
    assert shown.past_results is not None
    assert shown.past_results.document() == {"status": "emitted", "results": 7, "rows": 0}
    run = run_out(record(), found, RUNNING, NOW)
    assert (run.run, run.results, run.activated_batch) == ("q~2", 9, 3)


@pytest.mark.parametrize(
    ("kind", "results", "withheld"), [("left", 104, 896.0), ("semi", 4, 96.0), ("anti", 4, 96.0)]
)
def test_what_overload_has_kept_from_an_outer_join_is_about_its_results(
    kind: str, results: int, withheld: float
) -> None:
    outer = OuterInfo(kind=kind, partner="c", left=[], deadline="")
    meaning = record().normalised.model_copy(update={"outer": outer})
    rows = {"q~2": LeftRows(JoinKind(kind), given=4, missing=96.0, undecided=7)}
    running = replace(RUNNING, rationing=Rationing(left_rows=rows), shown={"q~2": results})
    pairs = Activation(3, {}, results=100, withheld=800.0)
    left = Activation(3, {}, results=300, withheld=100.0)
    shown = query_out(
        record(normalised=meaning), pairs, running, SourceStates({}, alive=True), NOW, left=left
    )
    kept = shown.rationed
    assert kept is not None
    assert (shown.results, shown.joined_rows) == (results, 400)
    assert (kept.withheld, kept.left_withheld, kept.undecided) == (withheld, 96.0, 7)
    assert kept.completeness == results / (results + withheld)
