"""Cutover of a query to a new run that has caught up: rows that the run still lacks, and the run to
read as of a batch (``docs/semantics.md``, "Cutover when complete"). Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch_contract.protocol.activations import Activation, PastStatus
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.documents import iso_time
from anabranch_service.registry.records import QueryRecord


@dataclass(frozen=True, slots=True)
class Lack:
    """Reason why a run has not caught up; ``remedy`` is empty if it will catch up by itself."""

    reason: str
    remedy: str = ""


def lack(
    run: QueryRecord, activations: Mapping[str, Activation], progress: Progress | None
) -> Lack | None:
    """Return why a planned run has not caught up: results of the past are pending, or later results
    may still lack tuples from before the run. None: it has caught up."""
    own = [one for name, one in activations.items() if registered(name) == run.id]
    if not own or progress is None:
        return Lack("it has not begun")
    remedy = "replace the query again; with cutover at-once the new run begins as it is"
    for one in own:
        if one.failure is not None:
            return Lack(f"it failed in batch {one.failure.batch}: {one.failure.message}", remedy)
        if one.past is not None and one.past.status is PastStatus.GIVEN_UP:
            return Lack("its results of the past were given up", remedy)
        if one.complete == "never":
            return Lack(
                "rows that were read before it are not stored, and may belong to results at any "
                "time (complete: never)",
                remedy,
            )
    for one in own:
        if one.past is not None and one.past.pending:
            left = "" if one.past.rows is None else f" ({one.past.rows:,} stored rows to process)"
            return Lack(f"results of the past are being emitted{left}")
        if one.owed:
            return Lack("results withheld by load shedding are owed")
    since = max((one.complete_from for one in own if one.complete_from is not None), default=None)
    if since is not None:
        marks = progress.telemetry.watermarks
        streams = {alias.stream for alias in run.normalised.aliases}
        # Tables are left out, since none of their rows is the last member of a result.
        for stream in sorted(streams.difference(progress.input.tables)):
            mark = marks.get(stream)
            if mark is None or mark < since:
                found = "has no watermark" if mark is None else f"has come to {iso_time(mark)}"
                return Lack(f"results before {iso_time(since)} may miss rows: {stream!r} {found}")
    return None


def standby(run: QueryRecord, records: Iterable[QueryRecord]) -> QueryRecord | None:
    """Return the newest run that waits, or has waited, to take the place of ``run``."""
    found = [one for one in records if one.replaces == run.id and one.removed_at is None]
    return found[-1] if found else None


def last_read(
    run: QueryRecord, records: Iterable[QueryRecord], activation: Activation | None
) -> int | None:
    """Return the last batch for which the query's name means ``run``, if the run has ended because
    another run had caught up; else None."""
    over = any(one.replaces == run.id and one.caught_up for one in records)
    if not over or activation is None or activation.expired_batch is None:
        return None
    return activation.expired_batch - 1


def as_of(run: QueryRecord, records: Sequence[QueryRecord], batch: int) -> QueryRecord | None:
    """Return the run that a query's name means as of ``batch``; None: its record is gone.

    Args:
        run: the meaning of the name as of the newest batch. ``records``: all runs of the query.
    """
    known = {one.id: one for one in records}
    found: QueryRecord | None = run
    while found is not None and found.read_from is not None and batch < found.read_from:
        found = known.get(found.replaces)
    return found
