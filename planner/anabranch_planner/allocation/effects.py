"""Completeness of results (the fraction produced) under a CPU budget, estimated from a plan.

Dry runs use it to compare plans with and without a query that has never run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from anabranch_contract.plans.plan import Plan
from anabranch_contract.plans.rations import Allocation, shares_at
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_planner.allocation.forest import Forest, ForestStep
from anabranch_planner.allocation.of_plan import forest_of_plan
from anabranch_planner.allocation.rankings import goal_name, rationed_goals, tied_queries
from anabranch_planner.allocation.schedule import schedule
from anabranch_planner.cost.model import CostModel


class Rationed(NamedTuple):
    """Probe trees of a plan, limited to the queries whose tuples load shedding may withhold.

    Attributes:
        tied: queries that admit the same fraction of tuples of each of their streams.
    """

    forest: Forest
    tied: frozenset[str]


def rationed_forest(
    plan: Plan, queries: Sequence[JoinQuery], model: CostModel, streams: Mapping[StreamName, Stream]
) -> Rationed:
    """Probe trees of ``plan`` for queries that load shedding may affect, with costs by ``model``.

    Args:
        queries: the joins that ``plan`` answers.
        streams: every stream that ``queries`` read; others are ignored.

    Raises:
        PlanError: ``plan`` does not answer ``queries``.
    """
    goals = rationed_goals(queries, streams)
    named = {goal_name(goal.query, goal.start) for goal in goals}
    forest = _restricted(forest_of_plan(plan, queries, model), named)
    return Rationed(forest, tied_queries(goals))


def expected_completeness(
    rationed: Rationed,
    allocation: Allocation,
    priorities: Mapping[str, int],
    floors: Mapping[str, float],
    budget: float,
) -> Mapping[str, float]:
    """Query -> expected fraction of its results, if the CPU budget is divided optimally.

    Args:
        priorities: query -> its priority; greater is more important.
        floors: query -> minimum fraction of its results.
        budget: CPU budget as a fraction of what all results would cost, 0 to 1.

    Raises:
        PlannerError: the solver fails (``no-solution``).
    """
    forest = rationed.forest
    wanted = {query: floor for query, floor in floors.items() if query in forest.outputs}
    best = schedule(forest, allocation, priorities, wanted, tied=rationed.tied)
    return forest.completeness(shares_at(best.points, budget))


def _restricted(forest: Forest, named: Collection[tuple[str, str]]) -> Forest:
    """The goals ``named`` of ``forest``; a step that other goals run anyway has cost 0."""
    fixed: set[int] = set()
    others = (g for g in forest.goals if (g.query, g.start) not in named)
    for last in (step for goal in others for step in goal.steps):
        step: int | None = last
        while step is not None and step not in fixed:
            fixed.add(step)
            step = forest.steps[step].parent
    steps = (
        ForestStep(step.parent, 0.0) if at in fixed else step
        for at, step in enumerate(forest.steps)
    )
    goals = (goal for goal in forest.goals if (goal.query, goal.start) in named)
    return Forest(tuple(steps), tuple(goals))
