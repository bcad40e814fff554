"""Interim measurements, every few seconds within an epoch: differences between states' counters.

A period may span epochs and revisions. Edge counters restart with each ruleset, and edge names are
valid in one ruleset only. So when a ruleset ends, its counts by edge are added to counts by join
step (``contract.plans.steps``), as steps have the same names in all rulesets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.plans.steps import CountedStep, SubJoinStep
from anabranch_contract.protocol.interims import NAMED, Interim, StepMeasures, StoreSize
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_runtime.measure.join_samples import of_steps
from anabranch_runtime.measure.statistics import store_statistics
from anabranch_runtime.state.manifest import State
from anabranch_runtime.traced import changes


@dataclass(frozen=True, slots=True)
class Period:
    """The current period of interim measurements.

    Attributes:
        since: start of the period, in seconds of a monotonic clock.
        begun: the state at the start. ``edges``: the running ruleset's counters when the period or
            the ruleset began, whichever is later.
        steps: counts of rulesets that ended within the period.
        rulesets: ids of the rulesets that ended within the period after a batch in it.
    """

    since: float
    begun: State
    edges: Mapping[str, EdgeStatistics]
    steps: Mapping[SubJoinStep, EdgeStatistics] = field(default_factory=dict)
    rulesets: frozenset[RulesetId] = frozenset()


def begin(state: State, now: float) -> Period:
    """Begin a period of interim measurements at ``state``; ``now``: monotonic clock, seconds."""
    return Period(now, state, state.measured.edges)


def leave_ruleset(period: Period, last: State, steps: Mapping[str, CountedStep]) -> Period:
    """Add the counts of the running ruleset to the period when an epoch or a revision ends it.

    Args:
        last: the last state under this ruleset.
        steps: edge -> its step in this ruleset.
    """
    counted = _counted(period, last, steps)
    return replace(period, edges={}, steps=counted, rulesets=_rulesets(period, last))


def close(
    period: Period, state: State, steps: Mapping[str, CountedStep], now: float, until: float
) -> Interim:
    """Compute the measurements of a period that ends with ``state``.

    Args:
        steps: edge -> its step in the ruleset of ``state``.
        now: end on the clock of ``Period.since``. ``until``: end in seconds since 1970.
    """
    arrived = {
        relation: count - period.begun.measured.arrivals.get(relation, 0)
        for relation, count in sorted(state.measured.arrivals.items())
    }
    counted = _counted(period, state, steps)
    return Interim(
        until=until,
        seconds=now - period.since,
        epoch=state.epoch,
        ruleset_epoch=state.ruleset.epoch,
        revision=state.ruleset.revision,
        next_batch=state.next_batch,
        batches=state.next_batch - period.begun.next_batch,
        arrivals=arrived,
        steps=tuple(
            StepMeasures.of(step, counts)
            for step, counts in sorted(counted.items())
            if counts.probes
        ),
        stores={
            name: StoreSize(store.rows, store.keys)
            for name, store in sorted(store_statistics(state).items())
        },
        rulesets=tuple(sorted(_rulesets(period, state))),
        rationed=any(run.last >= period.begun.next_batch for run in state.rationed[-1:]),
        emitted=_emitted(period.begun, state),
    )


def _emitted(begun: State, state: State) -> dict[str, int]:
    """Return query -> number of results between two states, for the joins with the most results."""
    names = changes(begun.queries, state.queries)
    found = dict[str, int]()
    for name in state.queries if names is None else names:
        before, after = begun.queries.get(name), state.queries.get(name)
        count = 0 if after is None else after.results - (0 if before is None else before.results)
        if count > 0:
            found[name] = count
    most = nlargest(NAMED, found.items(), key=lambda pair: (pair[1], pair[0]))
    return dict(sorted(most))


def _rulesets(period: Period, last: State) -> frozenset[RulesetId]:
    """Return the ids of the rulesets under which the period's batches ran, up to ``last``."""
    began = last.next_batch > period.begun.next_batch
    return period.rulesets | {last.ruleset} if began else period.rulesets


def _counted(
    period: Period, state: State, steps: Mapping[str, CountedStep]
) -> dict[SubJoinStep, EdgeStatistics]:
    found = dict(period.steps)
    # Counters of failed queries, which outlive the rules, are left out. Counters of edges without
    # probes in the period are the same objects as at its beginning.
    edges = state.measured.edges
    names = changes(period.edges, edges)
    fresh = {
        edge: edges[edge] - period.edges.get(edge, EdgeStatistics())
        for edge in (edges if names is None else names)
        if edges[edge] is not period.edges.get(edge) and edge in steps
    }
    for step, counts in of_steps(steps, fresh).items():
        found[step] = found.get(step, EdgeStatistics()) + counts
    return found
