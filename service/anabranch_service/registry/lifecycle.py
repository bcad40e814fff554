"""Where a query is in its life: a pure function of what service and runtime have recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.runs import query_of
from anabranch_service.registry.records import QueryRecord


class Status(StrEnum):
    """``pending`` → ``active`` → ``expiring`` → ``expired``; ``paused`` until it is resumed,
    ``rejected`` by the planner, or ``failed`` while it ran.
    """

    PENDING = "pending"
    ACTIVE = "active"
    PAUSED = "paused"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    REJECTED = "rejected"
    FAILED = "failed"


#: Queries in these states keep their streams from being deleted.
LIVE = frozenset({Status.PENDING, Status.ACTIVE, Status.PAUSED, Status.EXPIRING})
#: Queries in these states can be changed.
GOING_ON = LIVE - {Status.EXPIRING}


def status_of(
    record: QueryRecord,
    activation: Activation | None,
    progress: Progress | None,
    now: datetime,
) -> Status:
    """The state of a run of a query.

    * It has failed once the runtime says so: an expression of its own can't be evaluated.
    * It has ended once the runtime says so, or once the runtime is in an epoch after the last
      one that includes it, or where it was withdrawn before any epoch included it.
    * It is ending from the moment it was withdrawn (or its time was up, or an epoch without it
      was published) until then. One that was paused is paused from then on.
    * It is active from its activation by the runtime on.
    """
    if activation is not None and activation.failure is not None:
        return Status.FAILED
    if record.rejected is not None and record.first_epoch is None:
        return Status.REJECTED
    over = Status.EXPIRED if record.paused_at is None or record.is_over(now) else Status.PAUSED
    if _ended(record, activation, progress):
        return Status.REJECTED if record.rejected is not None else over
    if not record.wanted(now):
        return over if record.first_epoch is None else Status.EXPIRING
    return Status.PENDING if activation is None else Status.ACTIVE


def is_wanted(record: QueryRecord, activation: Activation | None, now: datetime) -> bool:
    """Whether the query should be part of an epoch that is planned now; one that failed is not."""
    return record.wanted(now) and (activation is None or activation.failure is None)


def newest_runs(records: Iterable[QueryRecord]) -> list[QueryRecord]:
    """Of every query its newest run; ``records`` are in order of registration, and so are these."""
    found: dict[str, QueryRecord] = {}
    for record in records:
        found.pop(query_of(record.id), None)
        found[query_of(record.id)] = record
    return list(found.values())


def to_plan(
    records: Iterable[QueryRecord], activations: Mapping[str, Activation], now: datetime
) -> tuple[list[QueryRecord], list[QueryRecord]]:
    """The runs of an epoch that is planned now, and those that go on where these are rejected.

    Of a query the newest run is planned that has not been rejected. The one before it goes on
    until then.
    """
    runs: dict[str, list[QueryRecord]] = {}
    for record in records:
        if record.rejected is None:
            runs.setdefault(query_of(record.id), []).append(record)
    planned, replaced = [], []
    for several in runs.values():
        *before, newest = several
        if not is_wanted(newest, activations.get(newest.id), now):
            continue
        planned.append(newest)
        if before and is_wanted(before[-1], activations.get(before[-1].id), now):
            replaced.append(before[-1])
    return sorted(planned, key=lambda q: q.sequence), replaced


def going_on(
    records: Iterable[QueryRecord], activations: Mapping[str, Activation], now: datetime
) -> list[QueryRecord]:
    """The runs that may go on as they are, where nothing new is published: what has not ended, of
    queries whose newest run is wanted.
    """
    runs: dict[str, list[QueryRecord]] = {}
    for record in records:
        if record.rejected is None:
            runs.setdefault(query_of(record.id), []).append(record)

    def wanted(record: QueryRecord) -> bool:
        return is_wanted(record, activations.get(record.id), now)

    alive = (several for several in runs.values() if wanted(several[-1]))
    return [one for several in alive for one in several if wanted(one)]


def _ended(record: QueryRecord, activation: Activation | None, progress: Progress | None) -> bool:
    if activation is not None and activation.expired_batch is not None:
        return True
    if record.last_epoch is None:
        return False
    return progress is not None and progress.epoch > record.last_epoch


def results_of(
    record: QueryRecord, activation: Activation | None, progress: Progress | None
) -> int:
    """Number of rows in the run's sink: results so far, of a view its rows now.

    Progress and activation are written one after the other, so of a query without a post-join part
    the greater count is the newer one. With such a part both count joined rows, which no sink has.
    """
    if record.normalised.post_join:
        return 0 if progress is None else progress.shown.get(record.id, 0)
    return max(
        activation.results if activation is not None else 0,
        progress.results.get(record.id, 0) if progress is not None else 0,
    )
