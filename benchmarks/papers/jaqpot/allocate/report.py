"""Rations of the goals of a problem file under a policy, as a JSON document and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch_contract.plans.plan import Objective, Plan
from anabranch_planner.allocation.forest import Forest
from anabranch_planner.allocation.of_plan import forest_of_plan
from anabranch_planner.allocation.rankings import goal_name
from anabranch_planner.command.problem_file import ProblemFile
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from benchmarks.papers.jaqpot.allocate.policies import Policy, allocate


@dataclass(frozen=True, slots=True)
class Allocated:
    """Rations of a problem's goals under a policy.

    Attributes:
        alias: goal, as (query, label that arrives last) -> alias of the label.
    """

    policy: Policy
    capacity: float
    forest: Forest
    shares: tuple[float, ...]
    alias: dict[tuple[str, str], str]


def allocate_problem(
    problem: ProblemFile, plan: Plan, objective: Objective, capacity: float, policy: Policy
) -> Allocated:
    """Return the rations that ``policy`` assigns to the goals of ``plan``.

    Raises:
        PlannerError: the capacity is out of range (``bad-capacity``).
    """
    model = CostModel(
        problem.statistics,
        objective=objective,
        parallelism=problem.parallelism,
        bounds=LoosestBounds(problem.queries),
    )
    forest = forest_of_plan(plan, problem.queries, model)
    shares = allocate(forest, capacity, policy)
    alias = {goal_name(q.id, m.label): m.alias for q in problem.queries for m in q.members}
    return Allocated(policy, capacity, forest, shares, alias)


def allocation_document(found: Allocated, seconds: float) -> dict[str, Any]:
    """Return the rations as JSON; only ``total_ms`` depends on the machine."""
    forest, shares = found.forest, found.shares
    rations: dict[str, dict[str, float]] = {}
    for goal, share in zip(forest.goals, shares, strict=True):
        rations.setdefault(goal.query, {})[found.alias[goal.query, goal.start]] = share
    return {
        "policy": found.policy.value,
        "capacity": found.capacity,
        "full": forest.full,
        "used": forest.used(shares),
        "output": forest.output(shares),
        "output_full": forest.output([1.0] * len(shares)),
        "completeness": forest.completeness(shares),
        "rations": rations,
        "total_ms": round(seconds * 1000, 3),
    }


def allocation_text(found: Allocated, seconds: float) -> str:
    """Return the rations as text, a line per query; names are never broken."""
    shown = allocation_document(found, seconds)
    full = shown["output_full"]
    kept = shown["output"] / full if full else 1.0
    lines = [
        f"policy    {shown['policy']}",
        f"used      {shown['used']:.10g} of {shown['full']:.10g} ({found.capacity:.1%} allowed)",
        f"results   {shown['output']:.10g} of {full:.10g} per unit of time ({kept:.1%})",
        f"time      {seconds * 1000:.1f} ms",
    ]
    for query, rations in shown["rations"].items():
        each = ", ".join(f"{alias} {share:.1%}" for alias, share in rations.items())
        lines += [
            "",
            f"query {query}  {shown['completeness'][query]:.1%} of its results",
            f"  {each}",
        ]
    return "\n".join(lines) + "\n"
