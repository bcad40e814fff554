"""Life cycle of queries and their runs: pure functions of records of service and runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.runs import query_of
from anabranch_service.registry.records import QueryRecord


class Status(StrEnum):
    """State of a run: ``pending`` → ``active`` → ``expiring`` → ``expired``, or ``paused`` until
    resumed, ``rejected`` by the planner, or ``failed`` while running."""

    PENDING = "pending"
    ACTIVE = "active"
    PAUSED = "paused"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    REJECTED = "rejected"
    FAILED = "failed"


#: States of queries whose streams can't be deleted.
LIVE = frozenset({Status.PENDING, Status.ACTIVE, Status.PAUSED, Status.EXPIRING})
#: States of queries that can be changed.
GOING_ON = LIVE - {Status.EXPIRING}


def status_of(
    record: QueryRecord, activation: Activation | None, progress: Progress | None, now: datetime
) -> Status:
    """Return the state of a run of a query.

    * ``failed``: the runtime reports that an expression of the query can't be evaluated.
    * ``expired``: the runtime reports the end of the run, or runs an epoch after the last one with
      the run; or the run was withdrawn before any epoch included it.
    * ``expiring``: the run was withdrawn, has reached its expiry, or is missing in a newer epoch,
      but has not ended yet. A paused run that has ended is ``paused``.
    * ``active``: the runtime has activated the run. ``pending``: not yet.
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


def reads(query: QueryRecord, stream: str) -> bool:
    """Whether a query reads ``stream``, directly or through queries that it inlines."""
    return any(alias.stream == stream for alias in query.normalised.aliases)


def readers(
    stream: str,
    queries: Iterable[QueryRecord],
    activations: Mapping[str, Activation],
    now: datetime,
) -> list[QueryRecord]:
    """Return the wanted queries in the registry that read ``stream``."""
    found = (query for query in queries if reads(query, stream))
    return [query for query in found if is_wanted(query, activations.get(query.id), now)]


def is_wanted(record: QueryRecord, activation: Activation | None, now: datetime) -> bool:
    """Whether an epoch planned now should include the run; a failed run is excluded."""
    return record.wanted(now) and (activation is None or activation.failure is None)


def newest_runs(records: Iterable[QueryRecord]) -> list[QueryRecord]:
    """Return the newest run of each query that does not wait for a cutover; input and output are in
    order of registration."""
    found: dict[str, QueryRecord] = {}
    for record in records:
        if record.waits:
            continue
        found.pop(query_of(record.id), None)
        found[query_of(record.id)] = record
    return list(found.values())


def present_run(records: Iterable[QueryRecord]) -> QueryRecord | None:
    """Return the run that a query's id denotes in requests: its newest run that was not rejected,
    else its newest run; None without runs. ``records`` are runs of one query in order of
    registration. Runs that wait for a cutover do not count."""
    runs = [record for record in records if not record.waits]
    accepted = [run for run in runs if run.rejected is None]
    return next(reversed(accepted or runs), None)


def to_plan(
    records: Iterable[QueryRecord], activations: Mapping[str, Activation], now: datetime
) -> tuple[list[QueryRecord], list[QueryRecord]]:
    """Return the runs to include in an epoch planned now, and earlier runs as replacements.

    Each query's newest run that was not rejected is planned. If the planner rejects it, the query's
    earlier runs are tried instead, the newest first. A run that waits for a cutover is planned
    beside the run that it replaces, and instead of it once it has caught up.
    """
    planned, replaced = [], []
    records = _without_orphans(records, activations, now)
    waiting = _waiting(records, activations, now)
    for several in _accepted(records).values():
        *before, newest = several
        standby = waiting.get(newest.id)
        if standby is not None:
            planned.append(standby)
        if not is_wanted(newest, activations.get(newest.id), now):
            continue
        if standby is not None and standby.caught_up:
            replaced.append(newest)
        else:
            planned.append(newest)
        earlier = reversed(before)
        replaced += [one for one in earlier if is_wanted(one, activations.get(one.id), now)]
    return sorted(planned, key=lambda q: q.sequence), replaced


def going_on(
    records: Iterable[QueryRecord], activations: Mapping[str, Activation], now: datetime
) -> list[QueryRecord]:
    """Return runs that may continue without a new plan: wanted runs (:func:`is_wanted`) of queries
    whose newest run is wanted too, except runs that an active run replaces."""

    def wanted(record: QueryRecord) -> bool:
        return is_wanted(record, activations.get(record.id), now)

    records = _without_orphans(records, activations, now)
    waiting = _waiting(records, activations, now)
    over = {old for old, run in waiting.items() if run.caught_up and run.id in activations}
    alive = [several for several in _accepted(records).values() if wanted(several[-1])]
    found = [one for several in alive for one in several if wanted(one) and one.id not in over]
    return found + [waiting[runs[-1].id] for runs in alive if runs[-1].id in waiting]


def _without_orphans(
    records: Iterable[QueryRecord], activations: Mapping[str, Activation], now: datetime
) -> list[QueryRecord]:
    """Return ``records`` without the parts of statements whose run is not wanted."""
    records = list(records)
    owners = {one.part_of for one in records if one.part_of}
    known = {
        one.id
        for one in records
        if one.id in owners and is_wanted(one, activations.get(one.id), now)
    }
    return [one for one in records if not one.part_of or one.part_of in known]


def overtaken(records: Iterable[QueryRecord], now: datetime) -> list[QueryRecord]:
    """Return the runs to withdraw, since a later run of the same query was planned or withdrawn:
    they will never begin or be resumed. This includes parts of statements whose run is no longer
    wanted.

    Runs that have begun and are not paused are omitted: they end with the first epoch without them.
    """
    records = list(records)
    wanted = {one.id for one in records if one.wanted(now)}
    found = [
        one for one in records if one.part_of and one.part_of not in wanted and not one.is_over(now)
    ]
    accepted = _accepted(records)
    standing = {run.replaces: run.id for run in records if run.waits and run.rejected is None}
    for run in records:
        if run.waits and run.rejected is None and not run.is_over(now):
            present = accepted.get(query_of(run.id))
            moved = present is not None and present[-1].id != run.replaces
            if moved or standing[run.replaces] != run.id:
                found.append(run)
    for several in accepted.values():
        later = False
        for run in reversed(several):
            waits = run.first_epoch is None or run.paused_at is not None
            if later and waits and not run.is_over(now):
                found.append(run)
            later = later or run.first_epoch is not None or not run.wanted(now)
    return found


def _waiting(
    records: Iterable[QueryRecord], activations: Mapping[str, Activation], now: datetime
) -> dict[str, QueryRecord]:
    """Map each run to the newest wanted run that waits to replace it. A run that other queries read
    is not replaced yet, so the waiting run is returned as not caught up."""
    records = list(records)
    read = {
        name
        for one in records
        if one.reads and is_wanted(one, activations.get(one.id), now)
        for name in one.reads
    }
    found: dict[str, QueryRecord] = {}
    for record in records:
        if record.waits and is_wanted(record, activations.get(record.id), now):
            held = query_of(record.id) in read
            found[record.replaces] = (
                record.model_copy(update={"caught_up": False}) if held else record
            )
    return found


def _accepted(records: Iterable[QueryRecord]) -> dict[str, list[QueryRecord]]:
    """Return the runs, in order, that are not rejected and do not wait for a cutover."""
    runs: dict[str, list[QueryRecord]] = {}
    for record in records:
        if record.rejected is None and not record.waits:
            runs.setdefault(query_of(record.id), []).append(record)
    return runs


def _ended(record: QueryRecord, activation: Activation | None, progress: Progress | None) -> bool:
    """Whether a query's run has ended: the runtime has reported its expiry, or its progress is past
    the last epoch that the registry record gives the run."""
    if activation is not None and activation.expired_batch is not None:
        return True
    if record.last_epoch is None:
        return False
    return progress is not None and progress.epoch > record.last_epoch


def results_of(
    record: QueryRecord, activation: Activation | None, progress: Progress | None
) -> int:
    """Return the number of rows in the run's sink: all results, or a view's current rows.

    The runtime reports a count in its progress and in the activation, one after the other: the
    greater is the newer. With a view, both count joined rows, which are not in the sink.
    """
    if record.normalised.post_join:
        return 0 if progress is None else progress.shown.get(record.id, 0)
    return max(
        activation.results if activation is not None else 0,
        progress.results.get(record.id, 0) if progress is not None else 0,
    )
