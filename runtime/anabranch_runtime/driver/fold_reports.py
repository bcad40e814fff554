"""Folding the reports of a batch's tasks into the state that is committed next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from anabranch_contract.plans.steps import CountedStep
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.measurements import JoinSample, Snapshot
from anabranch_runtime.epochs.lifecycle import unseen
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.event_time.idleness import clock_reading, pass_time
from anabranch_runtime.measure.join_samples import add_samples, remember, step_samples
from anabranch_runtime.measure.statistics import (
    distincts,
    frequent_values,
    measured,
    store_statistics,
    stream_statistics,
)
from anabranch_runtime.placement.moves import locality
from anabranch_runtime.state.manifest import State, StoreState, StreamState
from anabranch_runtime.state.measured import added
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.traced import changed


def fold(
    state: State,
    context: BatchContext,
    reports: Sequence[TaskReport],
    seconds: float,
    now: float | None = None,
    open_loads: Collection[str] = (),
) -> State:
    """Return the state after the batch of ``context``, which took ``seconds`` and ended at ``now``
    (seconds since 1970; None leaves out the rates by the wall clock).

    ``open_loads``: streams whose current load is not read completely (``sources.loads``).
    """
    read = replace(state, streams=_streams(state, reports)).with_loads_read(open_loads)
    streams = read.streams
    clock = clock_reading(streams, context.times.clock, state.clock)
    fresh = [s for r in reports for s in r.segments]
    state = replace(
        state,
        next_batch=context.batch + 1,
        streams=pass_time(state.streams, streams, clock),
        clock=clock,
        stores=_stores_after(state, fresh),
        queries=_queries(state, reports),
    )
    size = sum(s.bytes for s in fresh)
    tasks = [r.measured for r in reports]
    return replace(state, measured=measured(state, tasks, size, seconds, now))


def snapshot(state: State, steps: tuple[JoinSample, ...] = ()) -> Snapshot:
    """Return the statistics of the epoch of ``state``, for the planner.

    ``steps``: join samples of its edges, including earlier epochs' (:func:`steps_seen`).
    """
    started = state.epoch_starts[-1][1] if state.epoch_starts else 0
    return Snapshot(
        epoch=state.epoch,
        batches=state.next_batch - started,
        total_batches=state.next_batch,
        arrivals=state.measured.arrivals,
        distincts=distincts(state),
        streams=stream_counts(state),
        edges=state.measured.edges,
        stores=store_statistics(state),
        spans={
            name: s.newest - s.min_tau
            for name, s in state.streams.items()
            if s.newest is not None and s.min_tau is not None
        },
        steps=steps,
        measured=stream_statistics(state),
        on_hosts=max(len(state.hosts.tasks), 1),
        locality=locality(state),
        values=frequent_values(state),
    )


def without_batches(found: Snapshot) -> Snapshot:
    """Return statistics of an epoch that had no batches: ``found`` without earlier counts."""
    stores = {name: replace(store, reads={}) for name, store in found.stores.items()}
    return replace(found, batches=0, edges={}, measured={}, stores=stores)


def steps_seen(state: State, steps: Mapping[str, CountedStep]) -> tuple[JoinSample, ...]:
    """Return join samples at the end of ``state``'s epoch, including earlier epochs' samples.

    ``steps``: edge -> step in the state's ruleset.
    """
    return remember(state.measured.steps, steps_of_epoch(state, steps))


def steps_of_epoch(state: State, steps: Mapping[str, CountedStep]) -> tuple[JoinSample, ...]:
    """Return the join samples from the epoch of ``state`` alone, under all of its rulesets.

    ``steps``: edge -> step in the state's ruleset.
    """
    known = state.measured
    return add_samples(known.epoch_steps, step_samples(steps, known.edges))


def stream_counts(state: State) -> dict[str, dict[str, int]]:
    """Return stream -> number of tuples read, late, invalid and in the future (``ahead``) so far,
    and tuples invisible to a query that begins now (``unseen``)."""
    hidden = unseen(state)
    return {
        name: {
            "input": s.input,
            "late": s.late,
            "invalid": s.invalid,
            "ahead": s.ahead,
            "unseen": hidden[name],
        }
        for name, s in state.streams.items()
    }


def _streams(state: State, reports: Sequence[TaskReport]) -> dict[str, StreamState]:
    streams = dict(state.streams)
    for report in reports:
        for name, meter in report.measured.streams.items():
            known = streams.get(name, StreamState())
            newest = [t for t in (known.open_tau, meter.max_tau) if t is not None]
            oldest = [t for t in (known.min_tau, meter.min_tau) if t is not None]
            streams[name] = replace(
                known,
                open_tau=max(newest, default=None),
                min_tau=min(oldest, default=None),
                input=known.input + meter.input,
                late=known.late + meter.late,
                invalid=known.invalid + meter.invalid,
                ahead=known.ahead + meter.ahead,
                began=state.next_batch if meter.input and not known.input else known.began,
            )
    return streams


def _queries(state: State, reports: Sequence[TaskReport]) -> dict[str, Activation]:
    known, made = state.queries, added({}, (report.results for report in reports))
    more = {q: n for q, n in made.items() if n and q in known}
    return changed(
        known, {q: replace(known[q], results=known[q].results + n) for q, n in more.items()}
    )


def _stores_after(state: State, fresh: Sequence[Segment]) -> dict[str, StoreState]:
    written: dict[str, list[Segment]] = {}
    for segment in fresh:
        written.setdefault(segment.store, []).append(segment)
    stores = {
        name: replace(known, segments=(*known.segments, *segments))
        for name, segments in written.items()
        if (known := state.stores.get(name)) is not None
    }
    return changed(state.stores, stores)


def fullness(reports: Sequence[TaskReport]) -> float:
    """Return the greatest fraction of its memory share that a task took; 0 without a limit."""
    return max((r.memory / r.memory_share for r in reports if r.memory_share), default=0.0)
