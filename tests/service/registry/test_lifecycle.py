"""Tests that the status of a query is a function of its records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from anabranch_contract.protocol.activations import Activation, Failure
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_service.planning.loop import settled
from anabranch_service.registry.lifecycle import (
    Status,
    going_on,
    overtaken,
    results_of,
    status_of,
    to_plan,
)
from anabranch_service.registry.records import QueryRecord

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PROBLEM = ProblemRecord(code="x", message="y")
ACTIVE = Activation(3, {})
FAILED = Activation(3, {}, expired_batch=9, failure=Failure("x", "y", "1 / 0", 9))


def record(**fields: object) -> QueryRecord:
    normalised = NormalisedInfo(
        aliases=(), classes=(), bounds=(), unbounded=(), residuals=(), output=()
    )
    base = QueryRecord(id="q", sequence=1, created_at=NOW, sql="", normalised=normalised)
    return base.model_copy(update=fields)


def at(epoch: int) -> Progress:
    return Progress("running", epoch=epoch)


@pytest.mark.parametrize(
    ("query", "activation", "progress", "status"),
    [
        (record(), None, None, Status.PENDING),
        (record(first_epoch=0), None, at(0), Status.PENDING),
        (record(first_epoch=0), ACTIVE, at(0), Status.ACTIVE),
        (record(first_epoch=0, expires_at=NOW + timedelta(1)), ACTIVE, at(0), Status.ACTIVE),
        (record(first_epoch=0, expires_at=NOW), ACTIVE, at(0), Status.EXPIRING),
        (record(first_epoch=0, removed_at=NOW), ACTIVE, at(0), Status.EXPIRING),
        (record(first_epoch=0, removed_at=NOW), None, None, Status.EXPIRING),
        (record(first_epoch=0, last_epoch=2), ACTIVE, at(2), Status.EXPIRING),
        (record(first_epoch=0, last_epoch=2), ACTIVE, at(3), Status.EXPIRED),
        (record(first_epoch=0), Activation(3, {}, expired_batch=9), at(3), Status.EXPIRED),
        (record(removed_at=NOW), None, None, Status.EXPIRED),
        (record(expires_at=NOW), None, None, Status.EXPIRED),
        (record(rejected=PROBLEM), None, None, Status.REJECTED),
        (record(first_epoch=0, rejected=PROBLEM), ACTIVE, at(0), Status.EXPIRING),
        (record(first_epoch=0), FAILED, at(0), Status.FAILED),
        (record(first_epoch=0, last_epoch=1, removed_at=NOW), FAILED, at(3), Status.FAILED),
        (record(first_epoch=0, last_epoch=0, rejected=PROBLEM), ACTIVE, at(1), Status.REJECTED),
    ],
)
def test_status(
    query: QueryRecord,
    activation: Activation | None,
    progress: Progress | None,
    status: Status,
) -> None:
    assert status_of(query, activation, progress, NOW) is status


def test_results_are_the_newest_figure() -> None:
    query, seven = record(), Progress("x", results={"q": 7})
    assert results_of(query, None, None) == 0
    assert results_of(query, Activation(0, {}, results=5), None) == 5
    assert results_of(query, Activation(0, {}, results=5), seven) == 7
    assert results_of(query, Activation(0, {}, results=9), seven) == 9


@pytest.mark.parametrize("order", [(0, 2, 3, 4), (4, 3, 2, 0), (2, 4, 0, 3, 2)])
def test_epochs_settle_to_the_same_record_in_any_order(order: tuple[int, ...]) -> None:
    included = {0: False, 2: True, 3: True, 4: False}
    query = record()
    for _ in range(3):  # once more than it takes: settling again changes nothing
        for epoch in order:
            query = settled(query, epoch, included[epoch], {})
    assert (query.first_epoch, query.last_epoch) == (2, 3)


def test_a_rejection_is_kept_with_its_first_reason() -> None:
    query = settled(record(), 1, False, {"q": PROBLEM})
    assert query.rejected == PROBLEM
    other = ProblemRecord(code="other", message="z")
    assert settled(query, 2, False, {"q": other}).rejected == PROBLEM
    assert query.wanted(NOW) is False


def test_parts_of_a_statement_go_on_while_its_run_does() -> None:
    part = record(id="q.1", part_of="q", part=1)
    for owner, runs in (
        (record(), ["q.1", "q"]),
        (record(first_epoch=0, last_epoch=1), []),
        (record(removed_at=NOW), []),
        (record(paused_at=NOW), []),
        (record(rejected=PROBLEM), []),
    ):
        records = [part, owner]
        assert sorted(q.id for q in to_plan(records, {}, NOW)[0]) == sorted(runs)
        assert sorted(q.id for q in going_on(records, {}, NOW)) == sorted(runs)
        assert (part in overtaken(records, NOW)) == (not runs)
    assert to_plan([part, record()], {"q": FAILED}, NOW)[0] == []
    assert overtaken([part], NOW) == [part]
    assert overtaken([part.model_copy(update={"removed_at": NOW})], NOW) == []
