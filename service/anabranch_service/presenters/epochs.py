"""Published epochs, and the runtime's progress, as the REST API shows them."""

from __future__ import annotations

from anabranch_contract.codec import fields
from anabranch_contract.protocol.progress import Heartbeat, Progress
from anabranch_contract.rest.planning.epochs import (
    EpochOut,
    EpochSummary,
    KeptSummary,
    RationingOut,
    RuntimeOut,
)
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.source_status import SourceStates


def first_batch(epoch: int, progress: Progress | None) -> int | None:
    """Return the first batch of ``epoch``, or None while the runtime has not started it."""
    return None if progress is None else progress.epoch_starts.get(str(epoch))


def epoch_out(record: EpochRecord, progress: Progress | None) -> EpochOut:
    """Make the answer with all details of a published epoch."""
    return EpochOut.of(record, first_batch=first_batch(record.epoch, progress))


def summarised(epoch: EpochOut) -> EpochOut:
    """Return an epoch without its shares, reasons and difference, and of the plan only totals."""
    totals = {name: value for name, value in epoch.explain.items() if name == "totals"}
    left_out = dict.fromkeys(("shares", "diff", "reasons", "tables"))
    return epoch.model_copy(update={"explain": totals, **left_out})


def epoch_summary(kept: KeptSummary, revisions: int, progress: Progress | None) -> EpochSummary:
    """Return the summary of a published epoch, for lists."""
    first = first_batch(kept.epoch, progress)
    return EpochSummary.of(kept, first_batch=first, revisions=revisions)


def runtime_out(
    progress: Progress | None,
    heartbeat: Heartbeat | None,
    standby: Heartbeat | None,
    sources: SourceStates,
) -> RuntimeOut | None:
    """Return the summary of the runtime's progress, and whether the runtime is alive."""
    if progress is None:
        return None
    given = progress.input
    return RuntimeOut.of(
        progress,
        **fields(progress.resources),
        exhausted=given.exhausted,
        row_limit=given.row_limit,
        stale=heartbeat is None,
        standby=standby.host if standby is not None and standby.state == "working" else None,
        input_tuples=sum(c.get("input", 0) for c in progress.streams.values()),
        late_tuples=sum(c.get("late", 0) for c in progress.streams.values()),
        ahead_tuples=sum(c.get("ahead", 0) for c in progress.streams.values()),
        waiting_tuples=sum(i.waiting for i in given.intake.values()),
        unread_pieces={
            n: i.unread.pieces for n, i in sorted(given.intake.items()) if i.unread.pieces
        },
        source_errors=sources.failed(),
        rationing=RationingOut.of(progress.rationing),
    )
