"""The states before and after a batch, as pure functions of the committed state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch_contract.plans.batch_reads import BatchReads, ReadRange
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.plans.steps import CountedStep
from anabranch_contract.protocol.activations import Failure
from anabranch_runtime.driver.fold_reports import fold, steps_of_epoch, steps_seen
from anabranch_runtime.epochs import backfill
from anabranch_runtime.epochs.access import accesses
from anabranch_runtime.epochs.failed_queries import take_out
from anabranch_runtime.epochs.forgetting import forget
from anabranch_runtime.epochs.lifecycle import enter_epoch
from anabranch_runtime.epochs.ownership import without
from anabranch_runtime.epochs.retention import drop_unused, expire
from anabranch_runtime.epochs.revisions import enter_revision
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.placement.moves import met, placed
from anabranch_runtime.placement.spreading import deal
from anabranch_runtime.rations import catch_up
from anabranch_runtime.rations.freshness import present
from anabranch_runtime.rations.limits import count_withheld, noted
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.state.manifest import State
from anabranch_runtime.state.slices import Throttle
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.views.left_out import note_left_out


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that is about to run.

    Attributes:
        state: the state in which it starts. ``ruleset``: its rules.
        access: edge -> tiles and gaps of its probe.
    """

    state: State
    ruleset: Ruleset
    access: dict[str, Access]


def enter_idle(
    state: State, ruleset: Ruleset, epoch: int, steps: Mapping[str, CountedStep]
) -> State:
    """Return the state after ``epoch`` has begun with ``ruleset`` before any of its batches."""
    state = deal(_entered(state, ruleset, epoch, steps), ruleset)
    return drop_unused(state, ruleset, accesses(state, ruleset))


def begin(
    state: State,
    ruleset: Ruleset,
    epoch: int,
    steps: Mapping[str, CountedStep],
    throttle: Throttle,
    *,
    rationed: bool = False,
    planned: int | None = None,
) -> Batch:
    """Return the next batch, with the state in which it starts; enters ``epoch`` if it is new.

    Args:
        state: the committed state.
        ruleset: the batch's ruleset, without the queries that have failed.
        steps: edge -> step in the ruleset of ``state``; empty if this is unknown.
        throttle: limits of a batch's part of a backfill or a catch-up.
        rationed: whether the batch has rations, and therefore does no catch-up.
        planned: when it was planned; live mode counts ages from then (``rations.freshness``).
    """
    fresh, revised = epoch != state.epoch, ruleset.id != state.ruleset
    if fresh:
        state = deal(placed(_entered(state, ruleset, epoch, steps)), ruleset)
    elif revised:
        state = deal(enter_revision(state, ruleset, steps_of_epoch(state, steps)), ruleset)
    state = backfill.begin(state, ruleset, throttle)
    state = catch_up.forgive(state, ruleset, present(state, planned))
    if not rationed:
        state = catch_up.begin(state, ruleset, throttle)
    access = accesses(state, ruleset)
    entered = fresh or revised
    return Batch(drop_unused(state, ruleset, access) if entered else state, ruleset, access)


def _entered(state: State, ruleset: Ruleset, epoch: int, steps: Mapping[str, CountedStep]) -> State:
    measured = replace(state.measured, steps=steps_seen(state, steps))
    state = enter_epoch(replace(state, measured=measured), ruleset, epoch)
    return forget(catch_up.owe_past(state, ruleset), ruleset)


def replaced_segments(
    committed: Mapping[str, tuple[Segment, ...]], state: State
) -> dict[str, tuple[Segment, ...]]:
    """Return store -> its segments at the start of a batch (in ``state``), for the stores that have
    other segments than ``committed`` (for example, if the new epoch has dropped the stored rows).
    """
    return {
        name: store.segments
        for name, store in state.stores.items()
        if store.segments != committed.get(name, ())
    }


def finish(
    batch: Batch,
    context: BatchContext,
    reports: Sequence[TaskReport],
    failures: Mapping[str, Failure],
    seconds: float,
    now: float,
    throttle: Throttle,
    *,
    owed: bool = False,
    open_loads: Collection[str] = (),
) -> tuple[State, Ruleset]:
    """Return the state after ``batch``, and its ruleset without the queries that failed in it.

    Args:
        batch: the batch at its start. ``context``, ``reports``: input and output of its tasks.
        failures: failed query -> its failure; ``reports`` no longer have results of these queries.
        seconds: duration of the batch. ``now``: its end (seconds since 1970).
        throttle: limits of a batch's part of a backfill or a catch-up.
        owed: whether a later catch-up computes the results that the batch has withheld.
        open_loads: streams whose current load is not read completely, as in :func:`fold`.
    """
    ruleset = batch.ruleset
    state = fold(batch.state, context, reports, seconds, now, open_loads)
    state = met(state, reports)
    if state.hosts.placement is None:
        state = placed(state)
    owing = catch_up.owing(ruleset) if owed else frozenset()
    rations = context.shedding.rations
    state = replace(
        state,
        queries=count_withheld(state.queries, rations, reports, owing),
        rationed=noted(state.rationed, context.batch, rations),
    )
    known = note_left_out(batch.state, state, ruleset, rations, owing)
    state = replace(state, queries=known)
    if owed:
        marks = context.times.watermarks
        state = catch_up.incur(batch.state, state, ruleset, rations, marks)
    state = catch_up.advance(state, context.shedding.catch_up, reports, seconds, throttle)
    state = backfill.advance(state, context.backfill, reports, seconds, throttle)
    if failures:
        state = take_out(state, ruleset, failures)
        ruleset = without(ruleset, frozenset(failures))
        state = drop_unused(state, ruleset, accesses(state, ruleset))
    return expire(state, ruleset), ruleset


def reads(context: BatchContext, before: State, ranges: tuple[ReadRange, ...]) -> BatchReads:
    """Return the ledger's record of the input of a batch that started in the state ``before``."""
    tuples = {name: stream.input for name, stream in before.streams.items()}
    times = context.times
    marks, allowed = dict(times.watermarks), dict(times.newest_allowed)
    return BatchReads(context.batch, ranges, tuples, marks, allowed)
