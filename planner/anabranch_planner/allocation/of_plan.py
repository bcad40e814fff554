"""The probe forest of a plan, with costs from the cost model instead of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep
from anabranch_planner.allocation.rankings import goal_name
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import Prefix, trails
from anabranch_planner.cost.validate import step_price


def probing_of_plan(plan: Plan, queries: Sequence[JoinQuery], model: CostModel) -> float:
    """CPU time of all probe steps of ``plan``, including the maintenance of intermediate results,
    in the unit of :func:`forest_of_plan`.

    Raises:
        PlanError: ``plan`` does not answer ``queries``.
    """
    mirs = {mir.id: mir for mir in plan.mirs}
    steps = trails(plan, queries).steps.values()
    return sum(step_price(step, mirs, model) for step in steps)


def forest_of_plan(plan: Plan, queries: Sequence[JoinQuery], model: CostModel) -> Forest:
    """Probe trees of ``queries`` for load shedding; goals are sorted by query and start.

    Costs are in the unit of the plan's cost per unit of time. Steps that maintain an intermediate
    result process every tuple, so their cost is 0 here; the cost of producing results is also 0.

    Raises:
        PlanError: ``plan`` does not answer ``queries``.
    """
    found = trails(plan, queries)
    mirs = {mir.id: mir for mir in plan.mirs}
    ordered = sorted(found.steps, key=lambda prefix: (len(prefix.path), prefix))
    number: dict[Prefix, int] = {prefix: at for at, prefix in enumerate(ordered)}
    kept: set[Prefix] = set()
    goals: dict[tuple[str, str], ForestGoal] = {}
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        if order.maintains:
            kept.update(prefixes)
            continue
        last = found.steps[prefixes[-1]] if prefixes else None
        results = 0.0 if last is None else model.probe(last.after, order.start, order.substream)
        name = goal_name(order.goal, order.start)
        other = goals.get(name, ForestGoal(*name, (), 0.0, 0.0))
        ends = {*other.steps, *(number[prefix] for prefix in prefixes[-1:])}
        goals[name] = replace(other, steps=tuple(sorted(ends)), output=other.output + results)
    steps = []
    for prefix in ordered:
        price = 0.0 if prefix in kept else step_price(found.steps[prefix], mirs, model)
        parent = prefix._replace(path=prefix.path[:-1])
        steps.append(ForestStep(number.get(parent), price))
    return Forest(tuple(steps), tuple(goals[name] for name in sorted(goals)))
