"""Schedule of rations for load shedding, from the newest measurements or from estimates.

A *goal* is a query and the alias whose tuple arrives last. Its *ration* is the share of tuples of
this alias that probe under overload. Tasks measure a step's CPU time and output per probing tuple.
Rations select tuples by a hash, so these means hold for withheld tuples as well. Arrivals are
counted before rationing, so the cost without rationing is known at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from anabranch_contract.durations import parse_duration
from anabranch_contract.plans.rations import Floor, Overload, RationedGoal, RationSchedule
from anabranch_contract.plans.ruleset import Edge, Ruleset, arrival_edge
from anabranch_contract.plans.steps import SubJoinStep, counted_steps
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import JoinQuery, Label, QueryId, StreamName
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_contract.rest.slo import Slo
from anabranch_planner.allocation.effects import rationed_forest
from anabranch_planner.allocation.forest import Forest
from anabranch_planner.allocation.of_plan import probing_of_plan
from anabranch_planner.allocation.of_ruleset import forest_of
from anabranch_planner.allocation.rankings import goal_name, rationed_goals, tied_queries
from anabranch_planner.allocation.schedule import schedule
from anabranch_service.planning.epoch import PlannedEpoch
from anabranch_service.planning.task import cost_model

#: Weight of a measurement period relative to the next newer one.
FADE = 0.8


class Flow(NamedTuple):
    """Traffic per second on an edge (the output of a step) without rationing.

    Attributes:
        tuples: number of tuples. ``seconds``: CPU seconds of the step that emits them.
    """

    tuples: float
    seconds: float


def ration_schedule(
    ruleset: Ruleset,
    queries: Sequence[JoinQuery],
    priorities: Mapping[str, int],
    periods: Sequence[Interim],
    options: PlanningSettings,
    slos: Mapping[str, Slo] | None = None,
) -> RationSchedule | None:
    """Return the best rations for every CPU budget, from measurements; None if no step was
    measured, or no probe can be rationed.

    Args:
        ruleset: the running ruleset. ``queries``: its joins. ``priorities``: query -> priority.
        periods: the newest measurement periods, oldest first.
        slos: query -> its service level objectives.
    """
    if not any(period.steps for period in periods):
        return None
    streams = {stream.name: stream for stream in ruleset.streams}
    rankings = {(goal.query, goal.start): goal for goal in rationed_goals(queries, streams)}
    forest, everything = measured_forest(ruleset, rankings, periods)
    return _schedule(
        forest, everything, ruleset, list(rankings.values()), priorities, options, slos or {}
    )


def expected_schedule(
    planned: PlannedEpoch, priorities: Mapping[str, int], slos: Mapping[str, Slo]
) -> RationSchedule | None:
    """Return a schedule as :func:`ration_schedule` does, but from the cost model's estimates,
    before any measurement. Only ratios of costs matter, so their unit is arbitrary."""
    task, plan, queries = planned.task, planned.plan, planned.queries
    streams = {StreamName(name): stream for name, stream in task.streams.items()}
    model = cost_model(task, queries, task.options.parallelism, plan.substreams)
    return _schedule(
        rationed_forest(plan, queries, model, streams).forest,
        probing_of_plan(plan, queries, model),
        planned.ruleset,
        rationed_goals(queries, streams),
        priorities,
        task.options,
        slos,
    )


def _schedule(
    forest: Forest,
    everything: float,
    ruleset: Ruleset,
    rankings: Sequence[RationedGoal],
    priorities: Mapping[str, int],
    options: PlanningSettings,
    slos: Mapping[str, Slo],
) -> RationSchedule | None:
    """Return the best rations of the goals of ``forest`` (the probe trees that can be rationed).

    Args:
        everything: cost of all probes and results without rationing.
        rankings: goals with the hash that selects their tuples, including all of ``forest``.
    """
    if not forest.full or not everything:
        return None
    by_name = {goal_name(goal.query, goal.start): goal for goal in rankings}
    names = {registered(query.id) for query in ruleset.queries}
    wanted = {name: slos.get(name, Slo()) for name in names}
    floors = {q: slo.completeness for q, slo in wanted.items() if slo.completeness is not None}
    tied = tied_queries(rankings)
    best = schedule(forest, options.allocation, priorities, floors, tied=tied)
    latencies = [parse_duration(s.latency) / 1e6 for s in wanted.values() if s.latency is not None]
    return RationSchedule(
        epoch=ruleset.epoch,
        revision=ruleset.revision,
        goals=tuple(by_name[goal.query, goal.start] for goal in forest.goals),
        points=best.points,
        allocation=options.allocation,
        latency=min([options.latency_goal, *latencies]),
        rationable=min(forest.full / everything, 1.0),
        budget=options.capacity,
        catch_up=options.overload is Overload.CATCH_UP,
        floors=tuple(
            sorted(Floor(QueryId(q), floors[q], needs) for q, needs in best.needs.items())
        ),
    )


def measured_forest(
    ruleset: Ruleset, rationed: Collection[tuple[QueryId, Label]], periods: Sequence[Interim]
) -> tuple[Forest, float]:
    """Return, for a schedule of rations, the probe trees of the goals ``rationed`` with measured
    costs; and the CPU seconds per second of all probes and results of the ruleset. Both without
    rationing."""
    found, result = flows(ruleset, periods), result_seconds(periods)
    kept = kept_shares(ruleset, periods)
    forest = forest_of(
        ruleset,
        rationed,
        price=lambda rule: found[rule.out].seconds,
        results=lambda query, edge: found[edge].tuples * kept[query],
        own=lambda query, edge: found[edge].tuples * kept[query] * result,
    )
    return forest, seconds_of(ruleset, periods, found, kept)


def seconds_of(
    ruleset: Ruleset,
    periods: Sequence[Interim],
    found: Mapping[Edge, Flow],
    kept: Mapping[QueryId, float],
) -> float:
    """Return the CPU seconds per second of all probes and results, given the traffic ``found`` and
    the shares of results ``kept`` (:func:`kept_shares`)."""
    results = sum(found[o.edge].tuples * kept[o.query] for o in ruleset.output_rules)
    per_row = result_seconds(periods)
    return sum(flow.seconds for flow in found.values()) + per_row * results


def kept_shares(ruleset: Ruleset, periods: Sequence[Interim]) -> dict[QueryId, float]:
    """Return, by join, its results as a share of the tuples on its output edges. Queries that share
    a store share edges too, and each has the tuples that its own filters keep.

    Joins that no period names share the remaining results evenly. Without counts the share is 1.
    """
    known, steps = _figures(periods), counted_steps(ruleset)
    rows, emitted = 0.0, dict[str, float]()
    for age, period in enumerate(reversed(periods)):
        rows += FADE**age * period.results.rows
        for name, count in period.emitted.items():
            emitted[name] = emitted.get(name, 0.0) + FADE**age * count
    outputs: dict[QueryId, set[SubJoinStep]] = {query.id: set() for query in ruleset.queries}
    for output in ruleset.output_rules:
        if output.edge in steps:
            outputs[output.query].add(steps[output.edge].step)
    others = sum(1 for query in outputs if query not in emitted)
    rest = max(rows - sum(emitted.values()), 0.0) / max(others, 1)
    found = dict[QueryId, float]()
    for query, taken in outputs.items():
        made = sum(known[step].made for step in taken if step in known)
        share = emitted.get(query, rest) / made if made and emitted else 1.0
        found[query] = min(share, 1.0)
    return found


def may_ration(options: PlanningSettings, mode: Mode) -> bool:
    """Whether the settings permit rationing. In step mode it needs an explicit capacity, since a
    replay is not limited in time otherwise."""
    stated = mode is Mode.LIVE or options.capacity is not None
    return options.overload is not Overload.WAIT and stated


def flows(ruleset: Ruleset, periods: Sequence[Interim]) -> dict[Edge, Flow]:
    """Return the traffic on all edges of ``ruleset``, from measurements under any ruleset.

    If only some substreams take a step, measurements on these are preferred to those on all
    tuples. A step without measurements gets the mean cost per tuple of all steps, and as many
    output as input tuples.
    """
    known, steps = _figures(periods), counted_steps(ruleset)
    of_all = {step: one for step, one in known.items() if step == step.whole}
    total = [sum(column) for column in zip(*of_all.values(), strict=True)] or [0.0, 0.0, 0.0]
    usual = _Figures(1.0, total[1] / total[0] if total[0] else 0.0, 1.0)
    found = {
        arrival_edge(r.id): Flow(rate, 0.0)
        for r in ruleset.relations
        for rate in [_rate(str(r.id), periods)]
    }
    functions = {one.start: one for one in ruleset.substreams}
    for rule in ruleset.paths:
        sent = found[rule.edge].tuples
        if rule.substreams:
            sent *= functions[rule.start].share(rule.substreams)
        counted = steps[rule.out].step
        step = known.get(counted) or known.get(counted.whole, usual)
        made, seconds = sent * step.made / step.probes, sent * step.seconds / step.probes
        found[rule.out] = Flow(made, seconds)
    return found


class _Figures(NamedTuple):
    """Weighted counts of a step: input tuples, CPU seconds, output tuples."""

    probes: float
    seconds: float
    made: float


def _figures(periods: Sequence[Interim]) -> dict[SubJoinStep, _Figures]:
    """Return the weighted counts of each step, for all tuples and for single substreams."""
    found: dict[SubJoinStep, _Figures] = {}
    for age, period in enumerate(reversed(periods)):
        weight = FADE**age
        for one in period.steps:
            counts = one.counts
            for step in {one.step, one.step.whole} if counts.probes else ():
                known = found.get(step, _Figures(0.0, 0.0, 0.0))
                found[step] = _Figures(
                    known.probes + weight * (counts.probes + counts.dropped),
                    known.seconds + weight * counts.seconds,
                    known.made + weight * counts.made,
                )
    return found


def _rate(relation: str, periods: Sequence[Interim]) -> float:
    """Return the arriving tuples of a relation per second, as a weighted mean."""
    tuples = seconds = 0.0
    for age, period in enumerate(reversed(periods)):
        tuples += FADE**age * period.arrivals.get(relation, 0)
        seconds += FADE**age * period.seconds
    return tuples / seconds if seconds else 0.0


def result_seconds(periods: Sequence[Interim]) -> float:
    """Return the CPU seconds per result row, as a weighted mean."""
    rows = seconds = 0.0
    for age, one in enumerate(reversed(periods)):
        rows += FADE**age * one.results.rows
        seconds += FADE**age * one.results.seconds
    return seconds / rows if rows else 0.0
