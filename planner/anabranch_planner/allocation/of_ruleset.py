"""Probe trees of a running ruleset, with measured costs, as input of load shedding."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from anabranch_contract.plans.ruleset import Edge, ProbeRule, Ruleset, arrival_edge
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep
from anabranch_planner.allocation.rankings import goal_name


def forest_of(
    ruleset: Ruleset,
    rationed: Collection[tuple[QueryId, Label]],
    price: Callable[[ProbeRule], float],
    results: Callable[[QueryId, Edge], float],
    own: Callable[[QueryId, Edge], float],
) -> Forest:
    """Probe trees of the goals ``rationed`` (query, alias that arrives last), in ruleset order.

    A step that also maintains an intermediate result, or serves a goal that is not rationed,
    processes every tuple, so its cost is 0 here. A query over a single relation has no step.

    Args:
        price: a probe rule's CPU seconds per unit of time if it processes every tuple.
        results: number of results of a query per unit of time that arrive on an edge.
        own: CPU seconds per unit of time for producing these results of a query on an edge.
    """
    arrivals = {arrival_edge(r.id) for r in ruleset.relations}
    ordered = ruleset.paths
    rule_of = {rule.out: rule for rule in ordered}
    fixed = {s.edge for s in ruleset.store_rules} - arrivals
    for output in ruleset.output_rules:
        known = rule_of.get(output.edge)
        if known is not None and (output.query, known.start) not in rationed:
            fixed.add(output.edge)
    for rule in reversed(ordered):
        if rule.out in fixed:
            fixed.add(rule.edge)
    number = {rule.out: at for at, rule in enumerate(ordered)}
    steps = tuple(
        ForestStep(number.get(rule.edge), 0.0 if rule.out in fixed else price(rule))
        for rule in ordered
    )
    only = {q.id: q.members[0][1] for q in ruleset.queries}
    goals: dict[tuple[str, str], ForestGoal] = {}
    for output in ruleset.output_rules:
        last = rule_of.get(output.edge)
        start = only[output.query] if last is None else last.start
        if (output.query, start) in rationed:
            name = goal_name(output.query, start)
            other = goals.get(name, ForestGoal(*name, (), 0.0, 0.0))
            goals[name] = replace(
                other,
                steps=(*other.steps, *([] if last is None else [number[output.edge]])),
                cost=other.cost + own(output.query, output.edge),
                output=other.output + results(output.query, output.edge),
            )
    return Forest(steps, tuple(goals.values()))
