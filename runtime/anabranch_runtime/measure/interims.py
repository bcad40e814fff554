"""Interim measurements from committed states: differences of counters, period by period.

A period may reach over epochs and revisions. Counters of edges restart with each, so the counts of
a ruleset are added to the period's steps when the next one is entered: edges have names that mean
something in one ruleset only, steps have names that stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.plans.steps import CountedStep, SubJoinStep
from anabranch_contract.protocol.interims import Interim, StepMeasures, StoreSize
from anabranch_contract.protocol.measurements import EdgeStatistics
from anabranch_runtime.measure.join_samples import of_steps
from anabranch_runtime.measure.statistics import store_statistics
from anabranch_runtime.state.manifest import State


@dataclass(frozen=True, slots=True)
class Period:
    """A period that has begun.

    Attributes:
        since: its beginning, in seconds of a clock that does not jump.
        begun: the state at its beginning; ``edges``: the running ruleset's counters then.
        steps: counts of epochs and rulesets that have ended within the period.
        rulesets: rulesets that ran in it and have ended.
    """

    since: float
    begun: State
    edges: Mapping[str, EdgeStatistics]
    steps: Mapping[SubJoinStep, EdgeStatistics] = field(default_factory=dict)
    rulesets: frozenset[RulesetId] = frozenset()


def begin(state: State, now: float) -> Period:
    """A period from ``state`` on."""
    return Period(now, state, state.edges)


def leave_ruleset(period: Period, last: State, steps: Mapping[str, CountedStep]) -> Period:
    """The period after its epoch, or after its ruleset has been revised.

    Args:
        last: the last state that went by the ruleset.
        steps: edge -> its step, by that ruleset.
    """
    counted = _counted(period, last, steps)
    return replace(period, edges={}, steps=counted, rulesets=_rulesets(period, last))


def close(
    period: Period, state: State, steps: Mapping[str, CountedStep], now: float, until: float
) -> Interim:
    """The measurements of a period that ends with ``state``.

    Args:
        steps: edge -> its step, by the ruleset of ``state``.
        now: as in ``Period.since``. ``until``: seconds since 1970.
    """
    arrived = {
        relation: count - period.begun.arrivals.get(relation, 0)
        for relation, count in sorted(state.arrivals.items())
    }
    counted = _counted(period, state, steps)
    return Interim(
        until=until,
        seconds=now - period.since,
        epoch=state.epoch,
        ruleset_epoch=state.ruleset_epoch,
        revision=state.revision,
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
    )


def _rulesets(period: Period, last: State) -> frozenset[RulesetId]:
    """The rulesets of the period's batches, up to ``last``."""
    began = last.next_batch > period.begun.next_batch
    return period.rulesets | {last.ruleset} if began else period.rulesets


def _counted(
    period: Period, state: State, steps: Mapping[str, CountedStep]
) -> dict[SubJoinStep, EdgeStatistics]:
    found = dict(period.steps)
    # A failed query's rules are gone, its counters stay until the epoch ends.
    known = {edge: counts for edge, counts in state.edges.items() if edge in steps}
    fresh = {edge: c - period.edges.get(edge, EdgeStatistics()) for edge, c in known.items()}
    for step, counts in of_steps(steps, fresh).items():
        found[step] = found.get(step, EdgeStatistics()) + counts
    return found
